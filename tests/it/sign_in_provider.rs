//! People who sign in at an identity provider.

use serde_json::json;
use toolgate::config::OidcClient;
use url::Url;

use crate::support::person::{ISSUER, Person, Software, hidden, parameter};
use crate::support::{FakeProvider, TestApp, client};

async fn start(allowed_groups: &[&str]) -> (TestApp, FakeProvider) {
    let provider = FakeProvider::start().await;
    let groups = allowed_groups.iter().map(|group| (*group).to_owned()).collect();
    let app = TestApp::start_enterprise_with(|config| {
        provider.settings(config);
        config.sign_in.allowed_groups = groups;
    })
    .await;
    (app, provider)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_works_for_somebody_who_signs_in_at_the_provider() {
    let (app, provider) = start(&[]).await;
    let software = Software::register(&app, "https://agent.example/cb").await;
    let mut person = Person::default();
    // Our page comes first: it names the agent, and nothing was sent to the provider yet.
    let page = person.open(&app, &format!("/authorize?{}", software.query(&[]))).await.expect(200);
    assert!(page.text().contains("Test agent") && page.text().contains("Sign in with 127.0.0.1"));
    assert!(!page.text().contains("type=\"password\"") && !page.headers.contains_key("set-cookie"));
    let next = hidden(&page, "next");
    let sent = person.send(&app, "/login", &[("next", &next)]).await.expect(303);
    let location = sent.headers["location"].to_str().unwrap();
    assert!(location.starts_with(&format!("{}/authorize?", provider.issuer)), "{location}");
    assert_eq!(parameter(&sent, "redirect_uri").unwrap(), format!("{ISSUER}/login/callback"));
    assert_eq!(parameter(&sent, "code_challenge_method").as_deref(), Some("S256"));
    assert!(parameter(&sent, "resource").is_none() && parameter(&sent, "nonce").is_some());
    let back = provider.sign_in(&app, &mut person, ("s-1", "ann", &["eng"]), &next).await.expect(303);
    assert_eq!(back.headers["location"], next);
    assert!(!person.cookie.as_deref().unwrap().contains("sign-in"), "the attempt is gone");
    let (access, _) = software.tokens(&app, &person, &[]).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    app.send_as(&access, "POST", "/mcp", list).await.expect(200);
    let whoami = person.open(&app, "/api/v0/users/whoami").await.expect(200).json();
    assert_eq!(whoami["username"], "ann");
    // The same account is the same user, whatever it is called; another one gets another name.
    let mut again = Person::default();
    provider.sign_in(&app, &mut again, ("s-1", "ann-smith", &["ops"]), "").await.expect(303);
    assert!(again.open(&app, "/login").await.text().contains("<strong>ann</strong>"));
    let mut other = Person::default();
    provider.sign_in(&app, &mut other, ("s-2", "ann", &[]), "").await.expect(303);
    assert!(other.open(&app, "/login").await.text().contains("<strong>ann-2</strong>"));
    let users = app.get("/api/v0/users").await.expect(200).json();
    let sources: Vec<_> =
        users.as_array().unwrap().iter().map(|user| (&user["username"], &user["source"])).collect();
    assert!(sources.contains(&(&json!("ann-2"), &json!("oidc"))), "{users}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_an_admin_by_a_group_sees_what_admins_see() {
    let (app, provider) = start(&[]).await;
    app.put("/api/v0/idp-groups/ops", json!({ "role": "admin" })).await.expect(200);
    let (mut ann, mut bob) = (Person::default(), Person::default());
    provider.sign_in(&app, &mut ann, ("s-1", "ann", &["eng"]), "").await.expect(303);
    provider.sign_in(&app, &mut bob, ("s-2", "bob", &["ops"]), "").await.expect(303);
    let software = Software::register(&app, "https://agent.example/cb").await;
    let (access, _) = software.tokens(&app, &bob, &[]).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    app.send_as(&access, "POST", "/mcp", list).await.expect(200);
    // Until the group makes ann an admin, she sees nothing of others.
    for (groups, seen, status) in [(&["eng"], 0, 403), (&["ops"], 1, 200)] {
        provider.sign_in(&app, &mut ann, ("s-1", "ann", groups), "").await.expect(303);
        let grants = ann.open(&app, "/api/v0/grants").await.expect(200).json();
        assert_eq!(grants.as_array().unwrap().len(), seen, "{grants}");
        ann.open(&app, "/api/v0/users").await.expect(status);
        ann.open(&app, "/api/v0/audit").await.expect(status);
        ann.open(&app, "/api/v0/access/explain?subject=user:bob&name=x").await.expect(status);
    }
    // The group may not be the last thing that makes anybody an admin, and then end.
    app.put("/api/v0/users/admin", json!({ "role": "user" })).await.expect(200);
    let cookie = ann.cookie.clone().unwrap();
    let headers = [("cookie", cookie.as_str()), ("origin", ISSUER)];
    let send = async |method: &str, body: &str| {
        client::request(&app.address, method, "/api/v0/idp-groups/ops", &headers, body.into()).await
    };
    for (method, body) in [("DELETE", ""), ("PUT", r#"{"role":"user"}"#)] {
        let error = send(method, body).await.expect(400).error();
        assert!(error.contains("because of the IdP group \"ops\""), "{error}");
    }
    send("PUT", r#"{"role":"admin","allow_list":["s"]}"#).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_once_and_only_in_the_browser_that_asked() {
    let (app, provider) = start(&[]).await;
    let mut person = Person::default();
    let sent = person.send(&app, "/login", &[]).await.expect(303);
    provider.answer(&sent, ("s-1", "ann", &[]));
    let state = parameter(&sent, "state").unwrap();
    let path = format!("/login/callback?code=c&state={state}");
    // Another browser, another state, another issuer.
    let stranger = Person::default().open(&app, &path).await.expect(400);
    assert!(stranger.text().contains("another browser"), "{}", stranger.text());
    person.keep_cookie(&sent);
    for wrong in [
        "/login/callback?code=c&state=x",
        "/login/callback?code=c",
        &format!("{path}&iss=https://evil.example"),
    ] {
        let refused = person.open(&app, wrong).await.expect(400);
        assert!(refused.text().contains("You are not signed in"));
    }
    let denied = person.open(&app, &format!("/login/callback?error=access_denied&state={state}")).await;
    assert!(denied.status == 403 || denied.status == 400, "{}", denied.text());
    let fine = person.open(&app, &path).await.expect(303);
    person.keep_cookie(&fine);
    person.open(&app, &path).await.expect(400);
    assert!(person.open(&app, "/login").await.text().contains("<strong>ann</strong>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_members_of_allowed_groups_sign_in_and_nobody_who_is_disabled() {
    let (app, provider) = start(&["eng"]).await;
    let mut person = Person::default();
    let refused = provider.sign_in(&app, &mut person, ("s-1", "ann", &["sales"]), "").await.expect(403);
    let sentence = "Your account is in no group that may use this gateway; ask its admin.";
    assert!(refused.text().contains(sentence), "{}", refused.text());
    provider.sign_in(&app, &mut person, ("s-1", "ann", &["sales", "eng"]), "").await.expect(303);
    person.open(&app, "/api/v0/users/whoami").await.expect(200);
    // Whoever left the group loses everything at the next sign-in.
    let mut again = Person::default();
    provider.sign_in(&app, &mut again, ("s-1", "ann", &[]), "").await.expect(403);
    person.open(&app, "/api/v0/users/whoami").await.expect(401);
    app.put("/api/v0/users/ann", json!({ "disabled": true })).await.expect(200);
    let refused = provider.sign_in(&app, &mut again, ("s-1", "ann", &["eng"]), "").await.expect(403);
    assert!(refused.text().contains("disabled your account"), "{}", refused.text());
    // Those who were refused are summed, which is written at the end.
    let app = app.restart().await;
    let audit = app.get("/api/v0/audit?action=user.sign_in").await.expect(200).json();
    let sums = audit["entries"].as_array().unwrap().iter().filter(|sum| sum["outcome"] == "refused");
    assert_eq!(sums.map(|sum| sum["count"].as_u64().unwrap()).sum::<u64>(), 3, "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_down_is_a_clear_page() {
    let app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some(Url::parse(ISSUER).unwrap());
        let issuer = "http://127.0.0.1:1".to_owned();
        config.sign_in.oidc =
            Some(OidcClient { issuer, client_id: "gateway".to_owned(), client_secret: None, scopes: None });
    })
    .await;
    let next = [("next", "/authorize?client_id=a")];
    let page = Person::default().send(&app, "/login", &next).await.expect(503).text();
    assert!(
        page.contains("You are not signed in") && page.contains("The identity provider cannot be used"),
        "{page}"
    );
    // Another attempt is for the same agent. What the network is like is nobody's business.
    assert!(page.contains("<a href=\"/authorize?client_id=a\">Try again</a>"), "{page}");
    assert!(!page.contains("127.0.0.1:1") && !page.contains("refused"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_a_browser_cannot_keep_is_refused_before_anybody_signs_in() {
    let (app, provider) = start(&[]).await;
    let software = Software::register(&app, "https://agent.example/cb").await;
    let mut person = Person::default();
    let path = |length: usize| format!("/authorize?{}", software.query(&[("x", &"y".repeat(length))]));
    let left = 3900 - path(1).len() + 1;
    let longest = path(left);
    assert_eq!(longest.len(), 3900);
    let page = person.open(&app, &longest).await.expect(200);
    let back =
        provider.sign_in(&app, &mut person, ("s-1", "ann", &[]), &hidden(&page, "next")).await.expect(303);
    assert_eq!(back.headers["location"], longest);
    person.open(&app, &longest).await.expect(200);
    // Whoever is signed in need not go to the provider.
    person.open(&app, &path(left + 1)).await.expect(200);
    let refused = Person::default().open(&app, &path(left + 1)).await.expect(400).text();
    assert!(refused.contains("too long for the way over the identity provider"), "{refused}");
    // The link leads to the agent, with the error.
    assert!(refused.contains("https://agent.example/cb?error=invalid_request&amp;"), "{refused}");
    assert!(refused.contains("state=the+state"), "{refused}");
}
