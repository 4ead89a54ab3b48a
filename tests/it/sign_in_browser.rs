//! What a browser sees: pages and their headers, cookies, forged forms, redirects, and the REST API with a cookie.

use serde_json::json;

use crate::support::person::{ISSUER, Person, Software, encoded, hidden, parameter};
use crate::support::{Answer, TestApp, client};

fn assert_page(answer: &Answer) {
    let header = |name: &str| answer.headers[name].to_str().unwrap();
    assert!(header("content-type").starts_with("text/html"));
    let policy = header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("form-action") && !policy.contains("unsafe"), "{policy}");
    assert_eq!((header("referrer-policy"), header("cache-control")), ("same-origin", "no-store"));
    assert!(!answer.text().contains("<script"));
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_sets_a_new_cookie_and_signing_out_ends_it() {
    let app = TestApp::start_with_sign_in().await;
    let token = app.create_user("ann", "user").await;
    let mut person = Person::default();
    assert_page(&person.open(&app, "/login").await.expect(200));
    let answer = person.sign_in(&app, &token).await;
    let set = answer.headers["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("__Host-toolgate="), "{set}");
    for part in ["Path=/", "HttpOnly", "Secure", "SameSite=Lax"] {
        assert!(set.split("; ").any(|given| given == part), "{part}: {set}");
    }
    assert!(!set.contains("Domain"));
    let page = person.open(&app, "/login").await.expect(200);
    assert!(page.text().contains("signed in as <strong>ann</strong>"));
    let first = person.cookie.clone();
    person.sign_in(&app, &token).await;
    assert_ne!(first, person.cookie);
    // The session before it has ended.
    let before = Person { cookie: first };
    assert!(before.open(&app, "/login").await.expect(200).text().contains("type=\"password\""));
    let out = person.send(&app, "/logout", &[]).await.expect(303);
    assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert!(person.open(&app, "/login").await.expect(200).text().contains("type=\"password\""));
    let local = TestApp::start_enterprise_with(|config| {
        config.public_url = Some("http://localhost:9".parse().unwrap())
    })
    .await;
    let token = local.create_user("ann", "user").await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = format!("token={token}").into_bytes();
    let answer = client::request(&local.address, "POST", "/login", &form, body).await.expect(303);
    let set = answer.headers["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("toolgate=") && !set.contains("Secure"), "{set}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_is_refused_and_many_are_limited() {
    let app = TestApp::start_with_sign_in().await;
    let person = Person::default();
    let refused = person.send(&app, "/login", &[("token", "not-a-token")]).await.expect(401);
    assert_page(&refused);
    assert!(!refused.headers.contains_key("set-cookie") && !refused.text().contains("not-a-token"));
    person.send(&app, "/login", &[]).await.expect(400);
    let mut tries = 0;
    let limited = loop {
        let answer = person.send(&app, "/login", &[("token", "not-a-token")]).await;
        if answer.status == 429 {
            break answer;
        }
        tries += 1;
        assert!(tries < 5000, "nobody minds");
    };
    assert!(tries >= 290, "{tries}");
    assert_eq!(limited.headers["retry-after"], "1");
    let token = app.create_user("ann", "user").await;
    person.send(&app, "/login", &[("token", &token)]).await.expect(303);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_pages_follow_a_sign_in() {
    let app = TestApp::start_with_sign_in().await;
    let token = app.create_user("ann", "user").await;
    let person = Person::default();
    for (next, location) in [
        ("/console#/tools", "/console#/tools"),
        ("/connect/github?t=1", "/connect/github?t=1"),
        ("https://evil.example/", "/login"),
        ("//evil.example/console", "/login"),
        ("/\\evil.example", "/login"),
        ("/api/v0/users", "/login"),
        ("/console\r\nx: y", "/login"),
        ("", "/login"),
    ] {
        let answer = person.send(&app, "/login", &[("token", &token), ("next", next)]).await.expect(303);
        assert_eq!(answer.headers["location"], location, "{next:?}");
    }
    let page = person.open(&app, "/login?next=https://evil.example/").await.expect(200);
    assert!(!page.text().contains("evil.example"));
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_forms_are_refused() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let other = app.sign_in_user("bob").await;
    let software = Software::register(&app, "https://agent.example/cb").await;
    let query = software.query(&[]);
    let page = person.open(&app, &format!("/authorize?{query}")).await.expect(200);
    assert_page(&page);
    let form_token = hidden(&page, "form_token");
    let form = |token: &'static str| [("query", ""), ("form_token", token), ("decision", "allow")];
    for token in ["", "wrong"] {
        assert_page(&person.send(&app, "/authorize", &form(token)).await.expect(403));
    }
    let good = [("query", query.as_str()), ("form_token", form_token.as_str()), ("decision", "allow")];
    // Like somebody who signed in again for another agent, they can decide again.
    let again = other.send(&app, "/authorize", &good).await.expect(403).text();
    let link = format!("<a href=\"/authorize?{}\">Show the question again</a>", query.replace('&', "&amp;"));
    assert!(again.contains(&link), "{again}");
    for origin in ["https://evil.example", "http://gate.example.com", "null"] {
        person.send_from(&app, "/authorize", origin, &good).await.expect(403);
        person.send_from(&app, "/login", origin, &[]).await.expect(403);
        person.send_from(&app, "/logout", origin, &[]).await.expect(403);
    }
    person.send(&app, "/authorize", &good[..2]).await.expect(400);
    assert!(parameter(&person.send(&app, "/authorize", &good).await, "code").is_some());
    // Without a session the person is asked again.
    let answer = Person::default().send(&app, "/authorize", &good).await.expect(303);
    assert_eq!(answer.headers["location"], format!("/authorize?{query}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_go_to_the_agent_only_where_the_person_agreed_before() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let software = Software::register(&app, "https://agent.example/cb?k=v").await;
    let wrong = software.query(&[("resource", "https://evil.example/mcp")]);
    let path = format!("/authorize?{wrong}");
    // A page with a link, signed in or not.
    for visitor in [&person, &Person::default()] {
        let page = visitor.open(&app, &path).await.expect(400);
        assert_page(&page);
        let link = "href=\"https://agent.example/cb?k=v&amp;error=invalid_target&amp;error_description=";
        assert!(page.text().contains(link), "{}", page.text());
        assert!(page.text().contains("&amp;state=the+state&amp;iss=https%3A%2F%2Fgate.example.com"));
    }
    // After a denial too, since that keeps nothing.
    let denied = person.decide(&app, &software.query(&[]), "deny").await;
    assert_eq!(parameter(&denied, "error").as_deref(), Some("access_denied"));
    assert_eq!(parameter(&denied, "state").as_deref(), Some("the state"));
    assert_eq!(parameter(&denied, "iss").as_deref(), Some(ISSUER));
    assert_eq!(parameter(&denied, "k").as_deref(), Some("v"));
    assert!(parameter(&denied, "code").is_none());
    person.open(&app, &path).await.expect(400);
    software.code(&app, &person, &[]).await;
    let answer = person.open(&app, &path).await;
    assert_eq!(parameter(&answer, "error").as_deref(), Some("invalid_target"));
    for (name, value, error) in [
        ("response_type", "token", "unsupported_response_type"),
        ("code_challenge_method", "plain", "invalid_request"),
        ("code_challenge", "short", "invalid_request"),
    ] {
        let query = software.query(&[]);
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, old)| (key.as_str(), if key == name { value } else { old.as_str() }))
            .collect();
        let query = encoded(&pairs);
        let answer = person.open(&app, &format!("/authorize?{query}")).await;
        assert_eq!(parameter(&answer, "error").as_deref(), Some(error), "{name}");
    }
    // Another person did not agree.
    app.sign_in_user("bob").await.open(&app, &path).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_redirected_to_an_address_that_is_not_registered() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let mut software = Software::register(&app, "https://agent.example/cb").await;
    software.code(&app, &person, &[]).await;
    let good = software.query(&[]);
    for redirect_uri in [
        "https://evil.example/cb",
        "https://agent.example/cb/",
        "https://agent.example/cb?x=1",
        "https://agent.example/cb#x",
        "https://agent.example@evil.example/cb",
        "https://agent.example/cb/../evil",
        "http://agent.example/cb",
        "//evil.example",
        "javascript:alert(1)",
        "https://agent.example/cb\r\nx: y",
    ] {
        software.redirect_uri = redirect_uri.to_owned();
        let page = person.open(&app, &format!("/authorize?{}", software.query(&[]))).await.expect(400);
        assert_page(&page);
        assert!(!page.headers.contains_key("location") && !page.text().contains("href="), "{redirect_uri}");
    }
    for query in [
        "",
        "client_id=unknown",
        "client_id=http://evil.example/x",
        "client_id=https://evil.example",
        "client_id=%3Cscript%3E",
        &format!("{good}&client_id=x"),
        &format!("{good}&redirect_uri=https://evil.example/cb"),
    ] {
        let page = person.open(&app, &format!("/authorize?{query}")).await.expect(400);
        assert_page(&page);
        assert!(!page.text().contains("href="), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_software_are_only_text() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let metadata = json!({ "client_name": "<script>alert(1)</script>\"'&\u{202e}",
        "redirect_uris": ["https://agent.example/cb"], "token_endpoint_auth_method": "none" });
    let software = Software::register_with(&app, metadata).await;
    for visitor in [&person, &Person::default()] {
        let page = visitor
            .open(&app, &format!("/authorize?{}", software.query(&[("x", "\"><script>")])))
            .await
            .expect(200);
        assert_page(&page);
        assert!(
            page.text().contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;<"),
            "{}",
            page.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_counts_for_the_rest_api_and_changes_need_the_own_origin() {
    let mut app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some(ISSUER.parse().unwrap());
        config.allowed_origins = vec!["https://app.example".to_owned()];
    })
    .await;
    let admin = app.create_user("boss", "admin").await;
    let mut person = Person::default();
    person.sign_in(&app, &admin).await;
    let cookie = person.cookie.clone().unwrap();
    app.authorization = None;
    let send = async |method: &str, more: &[(&str, &str)]| {
        let headers: Vec<_> = more.iter().copied().chain([("cookie", cookie.as_str())]).collect();
        let path = if method == "GET" { "/api/v0/users/whoami" } else { "/api/v0/clients" };
        let body = json!({ "name": format!("c{}", more.len()), "allow_list": ["*"] }).to_string();
        client::request(&app.address, method, path, &headers, body.into()).await
    };
    assert_eq!(send("GET", &[]).await.expect(200).json()["username"], "boss");
    send("GET", &[("origin", "https://app.example")]).await.expect(200);
    for more in [
        &[][..],
        &[("origin", "https://app.example")],
        &[("origin", "http://gate.example.com")],
        &[("origin", "https://evil.example")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
    ] {
        let refused = send("POST", more).await.expect(403);
        assert!(!refused.headers.contains_key("access-control-allow-credentials"));
    }
    send("POST", &[("origin", ISSUER)]).await.expect(201);
    send("POST", &[("sec-fetch-site", "same-origin"), ("accept", "*/*")]).await.expect(201);
    // A header counts more than the cookie, even a wrong one.
    for wrong in ["Bearer wrong-token", "Basic x", ""] {
        send("GET", &[("authorization", wrong)]).await.expect(401);
    }
    let user =
        app.send_as(&admin, "POST", "/api/v0/users", json!({ "username": "ann" })).await.expect(201).json();
    let mut ann = Person::default();
    ann.sign_in(&app, user["access_token"].as_str().unwrap()).await;
    assert_eq!(ann.open(&app, "/api/v0/clients").await.status, 403);
    app.send_as(&admin, "DELETE", "/api/v0/users/ann", json!({})).await.expect(204);
    assert_eq!(ann.open(&app, "/api/v0/users/whoami").await.status, 401);
}
