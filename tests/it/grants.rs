//! Grants: software that acts for a user. Codes, tokens and their ends, with the clock of the gateway moved forward.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::client::Events;
use crate::support::grants::{CLIENT_ID, REDIRECT, approval, by, grant, user_id};
use crate::support::person::ISSUER;
use crate::support::{Agent, Behaviour, Fake, SseAgent, TestApp, bearer, client, eventually};
use gateway::sign_in::{IssuedTokens, TokenProblem};
use model::Reach;
use toolgate::config::JwtSettings;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

async fn start() -> (TestApp, Fake) {
    let app = TestApp::start_with_sign_in().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    app.create_user("ann", "user").await;
    (app, fake)
}

fn hello() -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

/// The status with which an MCP endpoint answers a token.
async fn status(app: &TestApp, tokens: &IssuedTokens, path: &str) -> u16 {
    app.send_as(tokens.access.expose(), "POST", path, hello()).await.status
}

async fn renew(app: &TestApp, refresh: &str) -> Result<IssuedTokens, TokenProblem> {
    app.gateway().renew_tokens(refresh, None, &by()).await
}

fn is_invalid(result: &Result<IssuedTokens, TokenProblem>) -> bool {
    matches!(result, Err(TokenProblem::InvalidGrant(_)))
}

async fn listed(app: &TestApp) -> Vec<Value> {
    app.get("/api/v0/grants").await.expect(200).json().as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_access_token_is_for_its_endpoints_and_nothing_else() {
    let (app, _fake) = start().await;
    let paths = ["/mcp", "/v0/groups/g/mcp", "/v0/servers/s/mcp"];
    let all = grant(&app, "ann", "").await;
    for path in paths {
        assert_eq!(status(&app, &all, path).await, 200, "{path}");
    }
    for path in paths {
        let one = grant(&app, "ann", path).await;
        for other in paths {
            assert_eq!(status(&app, &one, other).await == 200, other == path, "{path} at {other}");
        }
        let refused = app.send_as(one.access.expose(), "POST", "/message", hello()).await;
        refused.expect(401).error();
    }
    let agent = Agent::connect_as(&app, "/mcp", all.access.expose()).await;
    assert_eq!(agent.call_text("s__echo", json!({"text": "hi"})).await, "hi");
    // The messages of a stream have an address of their own.
    for path in ["/sse", "/v0/groups/g/sse"] {
        let tokens = grant(&app, "ann", path).await;
        let agent = SseAgent::connect_as(&app, path, tokens.access.expose()).await;
        drop(agent);
        assert_eq!(status(&app, &tokens, "/mcp").await, 401, "{path}");
    }
    let admins = grant(&app, "admin", "").await;
    for (method, path) in [("GET", "/api/v0/servers"), ("GET", "/api/v0/users"), ("GET", "/api/v0/grants")] {
        app.send_as(admins.access.expose(), method, path, json!({})).await.expect(401).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_can_be_narrowed_and_never_widened() {
    let (app, _fake) = start().await;
    let code = app.gateway().approve(approval(&app, "ann", ""), &by()).await.unwrap();
    let mcp = Some(Reach::parse("/mcp"));
    let narrow = app.gateway().redeem(code.expose(), mcp.clone(), &by()).await.unwrap();
    assert_eq!(status(&app, &narrow, "/mcp").await, 200);
    assert_eq!(status(&app, &narrow, "/v0/servers/s/mcp").await, 401);
    // The grant itself is for everything.
    let whole = renew(&app, narrow.refresh.expose()).await.unwrap();
    assert_eq!(status(&app, &whole, "/v0/servers/s/mcp").await, 200);

    let code = app.gateway().approve(approval(&app, "ann", "/v0/servers/s/mcp"), &by()).await.unwrap();
    let refused = app.gateway().redeem(code.expose(), mcp.clone(), &by()).await;
    assert!(matches!(refused, Err(TokenProblem::InvalidTarget)), "{refused:?}");
    let one = app.gateway().redeem(code.expose(), None, &by()).await.unwrap();
    for wider in [mcp, Some(Reach::Everything)] {
        let refused = app.gateway().renew_tokens(one.refresh.expose(), wider, &by()).await;
        assert!(matches!(refused, Err(TokenProblem::InvalidTarget)), "{refused:?}");
    }
    assert_eq!(status(&app, &one, "/v0/servers/s/mcp").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_or_revoked_token_is_refused_and_never_counts_as_a_guess() {
    let (app, _fake) = start().await;
    let expired = grant(&app, "ann", "").await;
    app.clock().advance(HOUR + SECOND);
    let revoked = grant(&app, "ann", "").await;
    assert_eq!(status(&app, &revoked, "/mcp").await, 200);
    app.gateway().revoke(revoked.access.expose(), CLIENT_ID, &by()).await.unwrap();
    // Others on the same address guess so often that they are refused.
    let mut guesses = 0;
    while app.send_as("tga_guessed-guessed", "POST", "/mcp", hello()).await.status != 429 {
        guesses += 1;
        assert!(guesses < 5000, "nobody minds");
    }
    for _ in 0..30 {
        for tokens in [&expired, &revoked] {
            assert_eq!(status(&app, tokens, "/mcp").await, 401);
        }
    }
    // The grant itself goes on.
    let renewed = renew(&app, expired.refresh.expose()).await.unwrap();
    assert_eq!(status(&app, &renewed, "/mcp").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_works_once_and_a_second_use_ends_what_it_gave() {
    let (app, _fake) = start().await;
    let gateway = app.gateway();
    let code = gateway.approve(approval(&app, "ann", ""), &by()).await.unwrap();
    let pending = gateway.pending_code(code.expose()).await.unwrap().unwrap();
    assert_eq!((pending.client_id.as_str(), pending.redirect_uri.as_str()), (CLIENT_ID, REDIRECT));
    assert_eq!((pending.code_challenge.as_str(), &pending.reach), ("challenge", &Reach::Everything));
    let tokens = gateway.redeem(code.expose(), None, &by()).await.unwrap();
    assert_eq!(tokens.expires_in, HOUR);
    let made = app.get("/api/v0/audit?action=grant.create").await.expect(200).json();
    assert_eq!(made["entries"][0]["actor"], json!({"kind": "user", "name": "ann"}), "{made}");
    assert_eq!(status(&app, &tokens, "/mcp").await, 200);
    assert!(gateway.pending_code(code.expose()).await.unwrap().is_some(), "so that a second use is noticed");
    assert!(is_invalid(&gateway.redeem(code.expose(), None, &by()).await));
    assert_eq!(status(&app, &tokens, "/mcp").await, 401);
    assert!(is_invalid(&renew(&app, tokens.refresh.expose()).await));
    assert_eq!(listed(&app).await, Vec::<Value>::new());
    let revoked = app.get("/api/v0/audit?action=grant.revoke").await.expect(200).json();
    assert_eq!(revoked["entries"].as_array().map(Vec::len), Some(1), "{revoked}");

    let late = gateway.approve(approval(&app, "ann", ""), &by()).await.unwrap();
    app.clock().advance(61 * SECOND);
    assert!(gateway.pending_code(late.expose()).await.unwrap().is_none());
    assert!(is_invalid(&gateway.redeem(late.expose(), None, &by()).await));
    for wrong in ["", "tgc_", "garbage", tokens.refresh.expose()] {
        assert!(gateway.pending_code(wrong).await.unwrap().is_none());
        assert!(is_invalid(&gateway.redeem(wrong, None, &by()).await));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_many_redeem_at_once_gives_one_grant_at_most_and_that_ends() {
    let (app, _fake) = start().await;
    let code = app.gateway().approve(approval(&app, "ann", ""), &by()).await.unwrap();
    let mut redeeming = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (gateway, code) = (app.gateway().clone(), code.clone());
        redeeming.spawn(async move { gateway.redeem(code.expose(), None, &by()).await });
    }
    let redeemed: Vec<_> = redeeming.join_all().await.into_iter().filter_map(Result::ok).collect();
    assert_eq!(redeemed.len(), 1);
    assert_eq!(status(&app, &redeemed[0], "/mcp").await, 401);
    assert_eq!(listed(&app).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_refresh_token_gives_the_same_successor_for_an_hour() {
    let (app, _fake) = start().await;
    let first = grant(&app, "ann", "").await;
    let second = renew(&app, first.refresh.expose()).await.unwrap();
    assert_ne!(second.refresh, first.refresh);
    // Several places that have the same copy.
    for _ in 0..3 {
        let again = renew(&app, first.refresh.expose()).await.unwrap();
        assert_eq!(again.refresh, second.refresh);
        assert_eq!(status(&app, &again, "/mcp").await, 200);
    }
    // Its successor was used, but it is within the hour.
    let third = renew(&app, second.refresh.expose()).await.unwrap();
    app.clock().advance(HOUR - 60 * SECOND);
    assert_eq!(renew(&app, first.refresh.expose()).await.unwrap().refresh, second.refresh);
    assert_eq!(renew(&app, second.refresh.expose()).await.unwrap().refresh, third.refresh);
    app.gateway().tidy_credentials().await.unwrap();
    // The successor of the second one was not used, so that one works on. The first one is a stolen copy.
    app.clock().advance(DAY);
    app.gateway().tidy_credentials().await.unwrap();
    assert_eq!(renew(&app, second.refresh.expose()).await.unwrap().refresh, third.refresh);
    let fourth = renew(&app, third.refresh.expose()).await.unwrap();
    assert!(is_invalid(&renew(&app, first.refresh.expose()).await));
    assert!(is_invalid(&renew(&app, third.refresh.expose()).await), "the whole family has ended");
    assert_eq!(status(&app, &fourth, "/mcp").await, 401);
    assert_eq!(listed(&app).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_refresh_at_once_agree_on_one_successor() {
    let (app, _fake) = start().await;
    let tokens = grant(&app, "ann", "").await;
    let mut renewing = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (gateway, refresh) = (app.gateway().clone(), tokens.refresh.clone());
        renewing
            .spawn(async move { gateway.renew_tokens(refresh.expose(), None, &by()).await.unwrap().refresh });
    }
    let successors = renewing.join_all().await;
    assert!(successors.iter().all(|successor| *successor == successors[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_token_lasts_for_30_days_from_the_last_use() {
    let (app, _fake) = start().await;
    let mut tokens = grant(&app, "ann", "").await;
    for _ in 0..4 {
        app.clock().advance(29 * DAY);
        app.gateway().tidy_credentials().await.unwrap();
        tokens = renew(&app, tokens.refresh.expose()).await.unwrap();
        assert_eq!(status(&app, &tokens, "/mcp").await, 200);
    }
    app.clock().advance(30 * DAY);
    assert!(is_invalid(&renew(&app, tokens.refresh.expose()).await));
    assert_eq!(listed(&app).await.len(), 1);
    app.gateway().tidy_credentials().await.unwrap();
    assert_eq!(listed(&app).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_calls_end_with_the_grant_and_not_with_the_access_token() {
    let (app, fake) = start().await;
    let tokens = grant(&app, "ann", "").await;
    let agent = Agent::connect_as(&app, "/mcp", tokens.access.expose()).await;
    let authorization = bearer(tokens.access.expose());
    let headers = [
        ("authorization", authorization.as_str()),
        ("accept", "text/event-stream"),
        ("mcp-session-id", agent.session.as_str()),
    ];
    let mut stream = Events::new(client::open(&app.address, "GET", "/mcp", &headers, vec![]).await);
    let params = json!({"name": "s__slow", "arguments": {"ms": 60_000}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let ending = async {
        eventually("the call runs", async || fake.calls_of("slow") == 1).await;
        app.clock().advance(2 * HOUR);
        assert_eq!(status(&app, &tokens, "/mcp").await, 401, "the access token has expired");
        // Another one of the same grant, in the same session.
        let renewed = renew(&app, tokens.refresh.expose()).await.unwrap();
        let mut agent = Agent::connect_as(&app, "/mcp", renewed.access.expose()).await;
        agent.use_token(renewed.access.expose());
        assert_eq!(fake.cancelled().len(), 0);
        let id = listed(&app).await[0]["id"].as_str().unwrap().to_owned();
        app.delete(&format!("/api/v0/grants/{id}")).await.expect(204);
        agent
    };
    let (answer, later) = tokio::join!(agent.post(&call), ending);
    answer.expect(401).error();
    while stream.next().await.is_some() {}
    eventually("the server need not go on", async || fake.cancelled().len() == 1).await;
    later.post(&call).await.expect(401).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_and_end_their_own_grants_and_admins_all() {
    let (app, _fake) = start().await;
    let bob = app.create_user("bob", "user").await;
    let (anns, bobs) = (grant(&app, "ann", "/mcp").await, grant(&app, "bob", "").await);
    assert_eq!(status(&app, &anns, "/mcp").await, 200);
    let all = listed(&app).await;
    assert_eq!(all.len(), 2);
    let of = |name: &str| all.iter().find(|grant| grant["username"] == name).unwrap().clone();
    let base = ISSUER;
    assert_eq!(of("ann")["resource"], format!("{base}/mcp"));
    assert_eq!(of("bob")["resource"], base);
    assert_eq!((&of("ann")["client_name"], &of("ann")["client_id"]), (&json!("Agent"), &json!(CLIENT_ID)));
    assert!(of("ann")["last_used_at"].is_string() && of("bob")["last_used_at"].is_null(), "{all:?}");
    assert!(of("ann")["created_at"].is_string());
    let own = app.send_as(&bob, "GET", "/api/v0/grants", json!({})).await.expect(200).json();
    assert_eq!(own, json!([of("bob")]));
    let path = |name: &str| format!("/api/v0/grants/{}", of(name)["id"].as_str().unwrap());
    app.send_as(&bob, "DELETE", &path("ann"), json!({})).await.expect(404).error();
    assert_eq!(status(&app, &anns, "/mcp").await, 200);
    app.send_as(&bob, "DELETE", &path("bob"), json!({})).await.expect(204);
    assert_eq!(status(&app, &bobs, "/mcp").await, 401);
    app.delete(&path("ann")).await.expect(204);
    assert_eq!(status(&app, &anns, "/mcp").await, 401);
    for unknown in [path("ann"), "/api/v0/grants/nobody".into(), format!("/api/v0/grants/{}", "0".repeat(32))]
    {
        app.delete(&unknown).await.expect(404).error();
    }
    let audit = app.get("/api/v0/audit?action=grant.revoke").await.expect(200).json();
    assert_eq!(audit["entries"].as_array().map(Vec::len), Some(2), "{audit}");
    assert!(!audit.to_string().contains("planted"), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_lists_and_ends_grants() {
    let (app, _fake) = start().await;
    let tokens = grant(&app, "ann", "").await;
    let cli = Cli::new(&app.address);
    let token = app.authorization.as_deref().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    cli.ok(&["login", &token]).await;
    let shown = cli.json(&["list", "grants"]).await;
    let id = shown[0]["id"].as_str().unwrap().to_owned();
    let table = cli.ok(&["list", "grants"]).await;
    assert!(table.contains(&id) && table.contains("ann") && table.contains("Agent"), "{table}");
    cli.ok(&["delete", "grant", &id]).await;
    assert_eq!(status(&app, &tokens, "/mcp").await, 401);
    assert_eq!(cli.json(&["list", "grants"]).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_and_sessions_survive_a_restart_and_end_with_their_user() {
    let (app, fake) = start().await;
    let tokens = grant(&app, "ann", "").await;
    let cookie = app.gateway().open_session(user_id(&app, "ann"), &by()).await.unwrap();
    assert_eq!(status(&app, &tokens, "/mcp").await, 200);
    let app = app.restart().await;
    assert_eq!(status(&app, &tokens, "/mcp").await, 200);
    assert!(listed(&app).await[0]["last_used_at"].is_string());
    let session = app.gateway().session(cookie.expose()).await.unwrap().unwrap();
    assert_eq!(session.user.name().as_str(), "ann");
    let renewed = renew(&app, tokens.refresh.expose()).await.unwrap();
    let code = app.gateway().approve(approval(&app, "ann", ""), &by()).await.unwrap();
    app.delete("/api/v0/users/ann").await.expect(204);
    assert!(session.ends.is_cancelled());
    assert_eq!(status(&app, &renewed, "/mcp").await, 401);
    assert!(app.gateway().session(cookie.expose()).await.unwrap().is_none());
    assert!(is_invalid(&renew(&app, renewed.refresh.expose()).await));
    assert!(is_invalid(&app.gateway().redeem(code.expose(), None, &by()).await));
    // A user of the same name is somebody else.
    app.create_user("ann", "user").await;
    assert_eq!(status(&app, &renewed, "/mcp").await, 401);
    drop(fake);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_session_lasts_12_hours_idle_and_7_days_in_all() {
    let (app, _fake) = start().await;
    let (gateway, ann) = (app.gateway(), user_id(&app, "ann"));
    let cookie = gateway.open_session(ann, &by()).await.unwrap();
    let first = gateway.session(cookie.expose()).await.unwrap().unwrap();
    let other = gateway.open_session(ann, &by()).await.unwrap();
    assert_ne!(gateway.session(other.expose()).await.unwrap().unwrap().form_token, first.form_token);
    for _ in 0..15 {
        app.clock().advance(11 * HOUR);
        assert!(gateway.session(cookie.expose()).await.unwrap().is_some());
        gateway.tidy_credentials().await.unwrap();
    }
    assert!(gateway.session(other.expose()).await.unwrap().is_none(), "it was idle");
    app.clock().advance(4 * HOUR);
    assert!(gateway.session(cookie.expose()).await.unwrap().is_none(), "7 days are over");
    gateway.tidy_credentials().await.unwrap();
    assert!(first.ends.is_cancelled());

    let cookie = gateway.open_session(ann, &by()).await.unwrap();
    let session = gateway.session(cookie.expose()).await.unwrap().unwrap();
    gateway.close_session(cookie.expose(), &by()).await.unwrap();
    assert!(session.ends.is_cancelled() && gateway.session(cookie.expose()).await.unwrap().is_none());
    for wrong in ["", "tgs_", "garbage"] {
        assert!(gateway.session(wrong).await.unwrap().is_none());
        gateway.close_session(wrong, &by()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_credentials_of_a_user_end_together_and_those_of_others_stay() {
    let (app, _fake) = start().await;
    app.create_user("bob", "user").await;
    let (anns, bobs) = (grant(&app, "ann", "").await, grant(&app, "bob", "").await);
    let cookie = app.gateway().open_session(user_id(&app, "ann"), &by()).await.unwrap();
    app.gateway().end_credentials_of(user_id(&app, "ann"), &by()).await.unwrap();
    assert_eq!((status(&app, &anns, "/mcp").await, status(&app, &bobs, "/mcp").await), (401, 200));
    assert!(app.gateway().session(cookie.expose()).await.unwrap().is_none());
    assert!(is_invalid(&renew(&app, anns.refresh.expose()).await));
    let again = grant(&app, "ann", "").await;
    assert_eq!(status(&app, &again, "/mcp").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consent_counts_for_exactly_what_was_agreed_until_the_grant_is_ended() {
    let (app, _fake) = start().await;
    let (gateway, ann) = (app.gateway(), user_id(&app, "ann"));
    let (all, mcp) = (Reach::Everything, Reach::parse("/mcp"));
    assert!(!gateway.has_agreed_before(ann, CLIENT_ID, REDIRECT).await.unwrap());
    grant(&app, "ann", "").await;
    assert!(gateway.is_approved(ann, CLIENT_ID, REDIRECT, &all).await.unwrap());
    assert!(!gateway.is_approved(ann, CLIENT_ID, REDIRECT, &mcp).await.unwrap());
    assert!(!gateway.is_approved(ann, CLIENT_ID, "https://agent.example/callback/", &all).await.unwrap());
    assert!(!gateway.is_approved(ann, "https://other.example/oauth", REDIRECT, &all).await.unwrap());
    assert!(!gateway.is_approved(user_id(&app, "admin"), CLIENT_ID, REDIRECT, &all).await.unwrap());
    assert!(gateway.has_agreed_before(ann, CLIENT_ID, REDIRECT).await.unwrap());
    let id = listed(&app).await[0]["id"].as_str().unwrap().to_owned();
    app.delete(&format!("/api/v0/grants/{id}")).await.expect(204);
    assert!(!gateway.is_approved(ann, CLIENT_ID, REDIRECT, &all).await.unwrap());

    // What a local program asks for is not remembered, but the person has seen where the answer goes.
    let local = "http://127.0.0.1:5000/callback";
    let mut once = approval(&app, "ann", "");
    (once.redirect_uri, once.remember) = (local.to_owned(), false);
    gateway.approve(once, &by()).await.unwrap();
    assert!(!gateway.is_approved(ann, CLIENT_ID, local, &all).await.unwrap());
    assert!(gateway.has_agreed_before(ann, CLIENT_ID, local).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_client_of_a_token_can_revoke_it() {
    let (app, _fake) = start().await;
    let tokens = grant(&app, "ann", "").await;
    let gateway = app.gateway();
    let software = gateway.refresh_software(tokens.refresh.expose()).await.unwrap();
    assert_eq!(software, Some((CLIENT_ID.to_owned(), r#"{"planted":"software"}"#.to_owned())));
    for token in [tokens.access.expose(), tokens.refresh.expose(), "garbage", ""] {
        gateway.revoke(token, "https://other.example/oauth", &by()).await.unwrap();
    }
    assert_eq!(status(&app, &tokens, "/mcp").await, 200);
    gateway.revoke(tokens.refresh.expose(), CLIENT_ID, &by()).await.unwrap();
    assert_eq!(status(&app, &tokens, "/mcp").await, 401);
    assert_eq!(gateway.refresh_software(tokens.refresh.expose()).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_register_software_and_its_grants_end_with_it() {
    let (app, _fake) = start().await;
    let metadata = json!({"client_name": "Agent", "redirect_uris": [REDIRECT], "extra": 1});
    let made = app.post("/api/v0/oauth-clients", metadata).await.expect(201).json();
    assert!(made["client_secret"].is_string(), "{made}");
    let client_id = made["client_id"].as_str().unwrap();
    let software = app.gateway().oauth_client(client_id).await.unwrap().unwrap();
    assert!(software.contains(REDIRECT) && !software.contains(made["client_secret"].as_str().unwrap()));
    let open = json!({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"});
    let open = app.post("/api/v0/oauth-clients", open).await.expect(201).json();
    assert!(open.get("client_secret").is_none(), "{open}");
    let listed = app.get("/api/v0/oauth-clients").await.expect(200).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    assert!(!listed.to_string().contains("client_secret\""), "{listed}");
    for wrong in [json!({}), json!({"redirect_uris": ["http://agent.example/"]}), json!({"redirect_uris": 1})]
    {
        app.post("/api/v0/oauth-clients", wrong).await.expect(400).error();
    }
    let mut approved = approval(&app, "ann", "");
    approved.client_id = client_id.to_owned();
    let code = app.gateway().approve(approved, &by()).await.unwrap();
    let tokens = app.gateway().redeem(code.expose(), None, &by()).await.unwrap();
    assert_eq!(status(&app, &tokens, "/mcp").await, 200);
    let path = format!("/api/v0/oauth-clients/{}", made["id"].as_str().unwrap());
    app.delete(&path).await.expect(204);
    app.delete(&path).await.expect(404).error();
    assert_eq!(status(&app, &tokens, "/mcp").await, 401);
    assert_eq!(app.gateway().oauth_client(client_id).await.unwrap(), None);
    assert_eq!(app.gateway().oauth_client("unknown").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_an_agent_are_recorded_for_its_user() {
    let (app, _fake) = start().await;
    let tokens = grant(&app, "ann", "").await;
    let agent = Agent::connect_as(&app, "/mcp", tokens.access.expose()).await;
    agent.call_text("s__echo", json!({"text": "hi"})).await;
    eventually("the call is recorded", async || {
        let calls = app.get("/api/v0/calls?principal=ann").await.expect(200).json();
        calls.to_string().contains("\"user\"")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_agents_get_no_tokens_theirs_do_not_count() {
    let (app, _fake) = start().await;
    let tokens = grant(&app, "ann", "").await;
    assert_eq!(status(&app, &tokens, "/mcp").await, 200);
    let app = app.restart_with(|config| config.sign_in.is_on = false).await;
    assert_eq!(status(&app, &tokens, "/mcp").await, 401);
    let app = app.restart_with(|config| (config.sign_in.is_on, config.public_url) = (true, None)).await;
    assert_eq!(status(&app, &tokens, "/mcp").await, 401);
    let public_url = Some(ISSUER.parse().unwrap());
    let app = app
        .restart_with(|config| {
            config.public_url = public_url;
            config.sign_in.jwt =
                Some(JwtSettings { issuer: "https://login.example.com".to_owned(), audience: None });
        })
        .await;
    assert_eq!(status(&app, &tokens, "/mcp").await, 401);
    // Nothing was lost.
    let app = app.restart_with(|config| config.sign_in.jwt = None).await;
    assert_eq!(status(&app, &tokens, "/mcp").await, 200);
}
