//! Grants and browser sessions count on all gateways, and end on all of them.

use std::time::Duration;

use serde_json::json;

use super::enterprise_pair;
use super::support::client::Events;
use super::support::grants::{CLIENT_ID, approval, by, grant, user_id};
use super::support::{Agent, Behaviour, Fake, TestApp, bearer, client, eventually};
use gateway::sign_in::TokenProblem;

async fn status(app: &TestApp, token: &str) -> u16 {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    app.send_as(token, "POST", "/mcp", hello).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_one_gateway_works_at_once_at_the_other_and_soon_ends_there() {
    let (first, second) = enterprise_pair().await;
    for round in 0..3 {
        let user = format!("ann-{round}");
        first.create_user(&user, "user").await;
        let tokens = grant(&first, &user, "").await;
        assert_eq!(
            status(&second, tokens.access.expose()).await,
            200,
            "nobody told it of the user or the grant"
        );
        first.gateway().revoke(tokens.access.expose(), CLIENT_ID, &by()).await.unwrap();
        assert_eq!(status(&first, tokens.access.expose()).await, 401);
        eventually("the grant has ended", || async { status(&second, tokens.access.expose()).await == 401 })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_and_calls_at_another_gateway_end_with_the_grant() {
    let (first, second) = enterprise_pair().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    first.register_http("s", &fake).await;
    first.create_user("ann", "user").await;
    let tokens = grant(&first, "ann", "").await;
    let token = tokens.access.expose();
    eventually("the server is known", || async {
        !second.get("/api/v0/tools").await.expect(200).json().as_array().unwrap().is_empty()
    })
    .await;
    let agent = Agent::connect_as(&second, "/mcp", token).await;
    let (authorization, call) = (bearer(token), json!({"name": "s__slow", "arguments": {"ms": 60_000}}));
    let headers = [
        ("authorization", authorization.as_str()),
        ("accept", "text/event-stream"),
        ("mcp-session-id", agent.session.as_str()),
    ];
    // The session belongs to the second gateway: the first one forwards what is sent there.
    let mut here = Events::new(client::open(&second.address, "GET", "/mcp", &headers, vec![]).await);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    let forwarded = async {
        let headers = [
            ("authorization", authorization.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", agent.session.as_str()),
        ];
        client::request(&first.address, "POST", "/mcp", &headers, call.to_string().into()).await
    };
    let ending = async {
        eventually("both calls run", async || fake.calls_of("slow") == 2).await;
        first.gateway().revoke(tokens.refresh.expose(), CLIENT_ID, &by()).await.unwrap();
    };
    let (direct, forwarded, ()) = tokio::join!(agent.post(&call), forwarded, ending);
    direct.expect(401).error();
    assert_ne!(forwarded.status, 200, "{}", forwarded.text());
    while here.next().await.is_some() {}
    eventually("the server need not go on", async || fake.cancelled().len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_refresh_at_once_agree_on_one_successor() {
    let (first, second) = enterprise_pair().await;
    first.create_user("ann", "user").await;
    let mut tokens = grant(&first, "ann", "").await;
    for _ in 0..5 {
        let mut renewing = tokio::task::JoinSet::new();
        for app in [&first, &second, &first, &second, &first, &second] {
            let (gateway, refresh) = (app.gateway().clone(), tokens.refresh.clone());
            renewing.spawn(async move { gateway.renew_tokens(refresh.expose(), None, &by()).await.unwrap() });
        }
        let mut renewed = renewing.join_all().await;
        let last = renewed.pop().unwrap();
        assert!(renewed.iter().all(|tokens| tokens.refresh == last.refresh));
        assert_eq!(status(&second, last.access.expose()).await, 200);
        tokens = last;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_both_gateways_redeem_at_once_gives_nothing_that_stays() {
    let (first, second) = enterprise_pair().await;
    first.create_user("ann", "user").await;
    for _ in 0..5 {
        let code = first.gateway().approve(approval(&first, "ann", ""), &by()).await.unwrap();
        let redeem = async |app: &TestApp| app.gateway().redeem(code.expose(), None, &by()).await;
        let (one, other) = tokio::join!(redeem(&first), redeem(&second));
        let given = match (one, other) {
            (Ok(tokens), Err(TokenProblem::InvalidGrant(_))) => tokens,
            (Err(TokenProblem::InvalidGrant(_)), Ok(tokens)) => tokens,
            both => panic!("{both:?}"),
        };
        for app in [&first, &second] {
            eventually("the grant has ended", || async { status(app, given.access.expose()).await == 401 })
                .await;
        }
    }
    assert_eq!(first.get("/api/v0/grants").await.expect(200).json(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_session_is_one_session_at_all_gateways() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (first, second) = enterprise_pair().await;
    first.create_user("ann", "user").await;
    let ann = user_id(&first, "ann");
    let cookie = first.gateway().open_session(ann, &by()).await.unwrap();
    let at_second = second.gateway().session(cookie.expose()).await.unwrap().unwrap();
    let at_first = first.gateway().session(cookie.expose()).await.unwrap().unwrap();
    assert_eq!(at_first.form_token, at_second.form_token);
    // It is used at the first gateway only, and not idle at the second one either.
    for _ in 0..2 {
        first.clock().advance(11 * HOUR);
        assert!(first.gateway().session(cookie.expose()).await.unwrap().is_some());
        first.gateway().tidy_credentials().await.unwrap();
    }
    assert!(second.gateway().session(cookie.expose()).await.unwrap().is_some());
    first.gateway().end_credentials_of(ann, &by()).await.unwrap();
    assert!(at_first.ends.is_cancelled());
    eventually("the session has ended", async || at_second.ends.is_cancelled()).await;
    assert!(second.gateway().session(cookie.expose()).await.unwrap().is_none());
}
