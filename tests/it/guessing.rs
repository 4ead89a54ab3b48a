//! Wrong tokens are rate-limited, and callers with a valid token are not affected.

use serde_json::json;

use crate::support::{Answer, TestApp, client};

async fn guess(app: &TestApp, path: &str, source: Option<&str>) -> Answer {
    let mut headers = vec![("authorization", "Bearer not-a-valid-token")];
    headers.extend(source.map(|source| ("x-forwarded-for", source)));
    client::request(&app.address, "GET", path, &headers, Vec::new()).await
}

/// Sends wrong tokens until the limit is reached. It takes one burst, plus what is refilled in the time that passes.
async fn exhaust(app: &TestApp, path: &str, source: Option<&str>) -> Answer {
    for tried in 0..5000 {
        let answer = guess(app, path, source).await;
        if answer.status == 429 {
            assert!(tried >= 300, "{tried} were not too many");
            return answer;
        }
        answer.expect(401).error();
    }
    panic!("nobody minds");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_wrong_tokens_are_429_and_valid_ones_never() {
    let app = TestApp::start_enterprise().await;
    let agent = app.create_client("agent", &["*"]).await;
    let user = app.create_user("user", "user").await;
    let answer = exhaust(&app, "/api/v0/tools", None).await;
    assert_eq!(answer.headers["retry-after"], "1");
    assert!(!answer.headers.contains_key("www-authenticate"));
    answer.error();
    app.get("/api/v0/tools").await.expect(200);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    app.send_as(&agent, "POST", "/mcp", list.clone()).await.expect(200);
    // Valid tokens of the wrong kind do not count as guesses, and neither do requests without a token.
    for _ in 0..20 {
        app.send_as(&agent, "GET", "/api/v0/tools", json!({})).await.expect(401).error();
        app.send_as(&user, "POST", "/mcp", list.clone()).await.expect(401).error();
        client::request(&app.address, "GET", "/api/v0/tools", &[], Vec::new()).await.expect(401).error();
        app.send_as(&user, "GET", "/api/v0/clients", json!({})).await.expect(403).error();
    }
    // All entry points are counted together.
    exhausted(&app, "/mcp").await;
    client::request(&app.address, "GET", "/health", &[], Vec::new()).await.expect(200);
    guess(&app, "/nothing", None).await.expect(404);
}

/// Of a few tries some are refused: one may pass every tenth of a second.
async fn exhausted(app: &TestApp, path: &str) {
    let mut statuses = Vec::new();
    for _ in 0..50 {
        statuses.push(guess(app, path, None).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_trusted_proxy_each_client_address_is_limited_separately() {
    let app = TestApp::start_enterprise_with(|config| config.trust_proxy = true).await;
    exhaust(&app, "/mcp", Some("203.0.113.1")).await;
    // The addresses before the proxy's own come from the client, which may send anything.
    let mut statuses = Vec::new();
    for number in 0..50 {
        statuses.push(guess(&app, "/mcp", Some(&format!("198.51.100.{number}, 203.0.113.1"))).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    guess(&app, "/mcp", Some("203.0.113.2")).await.expect(401);
    guess(&app, "/mcp", None).await.expect(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_trusted_proxy_an_ipv6_network_is_one_source() {
    let app = TestApp::start_enterprise_with(|config| {
        config.trust_proxy = true;
        config.telemetry = true;
    })
    .await;
    exhaust(&app, "/mcp", Some("2001:db8:1:2::1")).await;
    let mut statuses = Vec::new();
    for number in 0..50 {
        statuses.push(guess(&app, "/mcp", Some(&format!("2001:db8:1:2:{number:x}::1"))).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    guess(&app, "/mcp", Some("2001:db8:1:3::1")).await.expect(401);
    let metrics = app.get("/metrics").await.expect(200).text();
    let refused = metrics.lines().find(|line| line.contains("bound=\"wrong_tokens\"")).unwrap();
    assert!(!refused.ends_with(" 0"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_valid_lately_is_no_guess() {
    let app = TestApp::start_enterprise().await;
    let mut retired = vec![
        app.create_client("gone", &["*"]).await,
        app.create_client("changed", &["*"]).await,
        app.create_user("gone", "user").await,
        app.create_user("changed", "user").await,
        app.create_user("renamed", "user").await,
    ];
    app.delete("/api/v0/clients/gone").await.expect(204);
    app.delete("/api/v0/users/gone").await.expect(204);
    let token = json!({ "access_token": "a-client-token" });
    app.put("/api/v0/clients/changed", token).await.expect(200);
    app.put("/api/v0/users/changed", json!({ "access_token": "a-user-token" })).await.expect(200);
    let renamed = json!({ "username": "other", "access_token": "another-token" });
    app.put("/api/v0/users/renamed", renamed).await.expect(200);
    let app = check_no_guess(app, &retired).await.restart().await;
    let app = check_no_guess(app, &retired).await;
    // A token that is used again is valid, and no guess after its second end either.
    let again = json!({ "name": "again", "access_token": retired[0] });
    app.post("/api/v0/clients", again).await.expect(201);
    app.send_as(&retired[0], "DELETE", "/mcp", json!({})).await.expect(400);
    app.delete("/api/v0/clients/again").await.expect(204);
    retired.truncate(1);
    check_no_guess(app, &retired).await;
}

/// Checks that these tokens are refused as often as they are sent, without being counted.
async fn check_no_guess(app: TestApp, tokens: &[String]) -> TestApp {
    for _ in 0..400 / tokens.len() {
        for token in tokens {
            app.send_as(token, "GET", "/api/v0/tools", json!({})).await.expect(401);
            app.send_as(token, "POST", "/mcp", json!({})).await.expect(401);
        }
    }
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_trusted_proxy_the_header_is_ignored() {
    let app = TestApp::start_enterprise().await;
    exhaust(&app, "/api/v0/tools", Some("203.0.113.1")).await;
    let mut statuses = Vec::new();
    for number in 0..50 {
        statuses.push(guess(&app, "/mcp", Some(&format!("198.51.100.{number}"))).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}
