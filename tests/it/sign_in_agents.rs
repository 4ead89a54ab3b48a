//! An agent on the whole way: registration, sign-in, consent, tokens, calls, renewal and revocation.

use serde_json::json;

use crate::support::person::{ISSUER, Person, Software, hidden, parameter, redirect, tokens_in};
use crate::support::{Agent, Behaviour, Fake, TestApp, client};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

async fn list(app: &TestApp, token: &str, path: &str) -> u16 {
    app.send("POST", path, &[("authorization", &format!("Bearer {token}"))], LIST).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_tokens_with_consent_and_works_with_them() {
    let app = TestApp::start_with_sign_in().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("maps", &fake).await;
    let user = app.create_user("ann", "user").await;
    let software = Software::register(&app, "https://agent.example/callback").await;
    let mut person = Person::default();
    // Not signed in: the page names the agent and where the answer goes, and asks for the token.
    let path = format!("/authorize?{}", software.query(&[]));
    let page = person.open(&app, &path).await.expect(200);
    for part in ["Test agent", "agent.example", "type=\"password\"", "action=\"/login\""] {
        assert!(page.text().contains(part), "{part}: {}", page.text());
    }
    let next = hidden(&page, "next");
    assert_eq!(next, path);
    let signed_in = person.send(&app, "/login", &[("token", &user), ("next", &next)]).await.expect(303);
    assert_eq!(signed_in.headers["location"], path);
    person.keep_cookie(&signed_in);
    // Now the consent page.
    let page = person.open(&app, &path).await.expect(200).text();
    for part in ["Test agent", "https://agent.example/callback", "ann", "1 server with", "Allow", "Deny"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let answer = person.decide(&app, &software.query(&[]), "allow").await;
    let (place, _) = redirect(&answer);
    assert_eq!(place, "https://agent.example/callback");
    assert_eq!(parameter(&answer, "state").as_deref(), Some("the state"));
    assert_eq!(parameter(&answer, "iss").as_deref(), Some(ISSUER));
    let code = parameter(&answer, "code").unwrap();
    let answer = software.redeem(&app, &code, &[]).await.expect(200);
    assert_eq!(answer.headers["cache-control"], "no-store");
    let body = answer.json();
    assert_eq!((&body["token_type"], &body["scope"]), (&json!("Bearer"), &json!("mcp")));
    assert_eq!(body["expires_in"], 3600);
    let (access, refresh) = tokens_in(&answer);
    // The token works at MCP endpoints, and never for the REST API.
    let agent = Agent::connect_as(&app, "/mcp", &access).await;
    let tools = agent.tools().await;
    assert!(tools.iter().any(|tool| tool.starts_with("maps__")));
    app.send_as(&access, "GET", "/api/v0/tools", json!({})).await.expect(401);
    let (renewed, _) = tokens_in(&software.refresh(&app, &refresh, &[]).await.expect(200));
    assert_eq!(list(&app, &renewed, "/mcp").await, 200);
    // Revoking one token ends the grant.
    software.post(&app, "/revoke", &[("token", &refresh)]).await.expect(200);
    for token in [&access, &renewed] {
        assert_eq!(list(&app, token, "/mcp").await, 401);
    }
    let refused = software.refresh(&app, &refresh, &[]).await.expect(400).json();
    assert_eq!(refused["error"], "invalid_grant");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agreement_is_remembered_for_https_only() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let hosted = Software::register(&app, "https://agent.example/cb").await;
    hosted.code(&app, &person, &[]).await;
    let again = person.open(&app, &format!("/authorize?{}", hosted.query(&[]))).await;
    assert!(parameter(&again, "code").is_some());
    // Not for another resource, another person, or when the agent asks for it.
    let mcp = format!("{ISSUER}/mcp");
    for query in [hosted.query(&[("resource", &mcp)]), hosted.query(&[("prompt", "consent")])] {
        person.open(&app, &format!("/authorize?{query}")).await.expect(200);
    }
    let other = app.sign_in_user("bob").await;
    other.open(&app, &format!("/authorize?{}", hosted.query(&[]))).await.expect(200);
    let local = Software::register(&app, "http://localhost:7000/cb").await;
    local.code(&app, &person, &[]).await;
    let page = person.open(&app, &format!("/authorize?{}", local.query(&[]))).await.expect(200).text();
    assert!(page.contains("any program there can call itself"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_for_its_resource_only() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let software = Software::register(&app, "http://127.0.0.1:7000/cb").await;
    let mcp = format!("{ISSUER}/mcp/");
    let page =
        person.open(&app, &format!("/authorize?{}", software.query(&[("resource", &mcp)]))).await.expect(200);
    assert!(page.text().contains("Only <code>https://gate.example.com/mcp</code>"), "{}", page.text());
    let (access, refresh) = software.tokens(&app, &person, &[("resource", &mcp)]).await;
    assert_eq!(
        (list(&app, &access, "/mcp").await, list(&app, &access, "/v0/groups/g/mcp").await),
        (200, 401)
    );
    for wrong in [format!("{ISSUER}/sse"), ISSUER.to_owned(), "https://evil.example/mcp".to_owned()] {
        let refused = software.refresh(&app, &refresh, &[("resource", &wrong)]).await.expect(400).json();
        assert_eq!(refused["error"], "invalid_target", "{wrong}");
    }
    software.refresh(&app, &refresh, &[("resource", &mcp)]).await.expect(200);
    // Without a resource at /authorize, one at /token narrows the token.
    let code = software.code(&app, &person, &[]).await;
    let narrow = software.redeem(&app, &code, &[("resource", &format!("{ISSUER}/sse"))]).await.expect(200);
    let (narrow, _) = tokens_in(&narrow);
    assert_eq!(list(&app, &narrow, "/mcp").await, 401);
    let (wide, _) = software.tokens(&app, &person, &[]).await;
    assert_eq!(list(&app, &wide, "/mcp").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_use_of_a_code_revokes_what_it_gave() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let software = Software::register(&app, "http://[::1]:7000/cb").await;
    let code = software.code(&app, &person, &[]).await;
    let (access, refresh) = tokens_in(&software.redeem(&app, &code, &[]).await.expect(200));
    assert_eq!(list(&app, &access, "/mcp").await, 200);
    let again = software.redeem(&app, &code, &[]).await.expect(400).json();
    assert_eq!(again["error"], "invalid_grant");
    assert_eq!(list(&app, &access, "/mcp").await, 401);
    assert_eq!(software.refresh(&app, &refresh, &[]).await.expect(400).json()["error"], "invalid_grant");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_access_token_signs_nobody_in() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let software = Software::register(&app, "http://localhost/cb").await;
    let (access, _) = software.tokens(&app, &person, &[]).await;
    let refused = person.send(&app, "/login", &[("token", &access)]).await.expect(401);
    assert!(!refused.headers.contains_key("set-cookie"));
    let agent = app.create_client("agent", &["*"]).await;
    person.send(&app, "/login", &[("token", &agent)]).await.expect(401);
    let cookie = person.cookie.as_deref().unwrap();
    // The cookie does not count at MCP endpoints.
    let body = LIST.as_bytes().to_vec();
    client::request(&app.address, "POST", "/mcp", &[("cookie", cookie)], body).await.expect(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_on_a_page_cannot_be_guessed_and_software_survives_a_restart() {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let software = Software::register(&app, "https://agent.example/cb").await;
    let (_, refresh) = software.tokens(&app, &person, &[]).await;
    let app = app.restart().await;
    // The registration, the session and the grant are still there.
    let answer = person.open(&app, &format!("/authorize?{}", software.query(&[]))).await;
    assert!(parameter(&answer, "code").is_some());
    software.refresh(&app, &refresh, &[]).await.expect(200);
    // Another gateway does not know the client id.
    let other = TestApp::start_with_sign_in().await;
    let page = person.open(&other, &format!("/authorize?{}", software.query(&[]))).await.expect(400);
    assert!(page.text().contains("does not know the program"), "{}", page.text());
    assert_eq!(software.refresh(&other, &refresh, &[]).await.expect(401).json()["error"], "invalid_client");
}
