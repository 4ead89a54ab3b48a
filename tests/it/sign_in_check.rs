//! `GET /api/v0/sign-in/check` and `toolgate doctor`: the steps of agents, tried from the gateway.

use axum::http::StatusCode;
use serde_json::{Value, json};
use toolgate::config::Config;
use url::Url;

use crate::support::balancer::Balancer;
use crate::support::cli::Cli;
use crate::support::process::Ended;
use crate::support::{FakeProvider, TestApp};

const OWN: [&str; 5] = ["address", "https", "protected resource", "authorization server", "registration"];
const ISSUER_STEPS: [&str; 3] = ["discovery", "keys", "clock"];

/// A gateway behind a proxy, which has the public address.
async fn start(change: impl FnOnce(&mut Config)) -> (TestApp, Balancer) {
    let proxy = Balancer::start(Vec::new()).await;
    let app = TestApp::start_enterprise_with(|config| {
        change(config);
        config.public_url = Some(Url::parse(&format!("http://{}", proxy.address)).unwrap());
    })
    .await;
    proxy.add(&app.address);
    (app, proxy)
}

/// The steps, and those of them that failed.
async fn check(app: &TestApp) -> (Vec<Value>, Vec<String>) {
    let steps = app.get("/api/v0/sign-in/check").await.expect(200).json().as_array().unwrap().clone();
    let name = |step: &Value| step["step"].as_str().unwrap().to_owned();
    let failed = steps.iter().filter(|step| step["ok"] == false).map(name).collect();
    assert!(steps.iter().all(|step| step["text"].as_str().is_some_and(|text| !text.is_empty())), "{steps:?}");
    (steps, failed)
}

fn names(steps: &[Value]) -> Vec<&str> {
    steps.iter().map(|step| step["step"].as_str().unwrap()).collect()
}

fn text_of(steps: &[Value], name: &str) -> String {
    let step = steps.iter().find(|step| step["step"] == name).unwrap();
    step["text"].as_str().unwrap().to_owned()
}

async fn doctor(app: &TestApp) -> Ended {
    let token = app.authorization.as_deref().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    Cli::new(&app.address).run_with(&["doctor"], &[("TOOLGATE_TOKEN", &token)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_is_tried_at_the_public_address() {
    let provider = FakeProvider::start().await;
    let (app, proxy) = start(|config| provider.settings(config)).await;
    let (steps, failed) = check(&app).await;
    assert_eq!(names(&steps), [&OWN[..], &ISSUER_STEPS].concat());
    assert_eq!(failed, Vec::<String>::new(), "{steps:?}");
    let ended = doctor(&app).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for step in OWN.iter().chain(&ISSUER_STEPS) {
        assert!(ended.stdout.contains(&format!("✓ sign-in, {step}: ")), "{step}: {ended:?}");
    }
    // The proxy no longer passes requests on, and the identity provider is down.
    proxy.remove(&app.address);
    provider.set_down(true);
    let (steps, failed) = check(&app).await;
    assert_eq!(failed, ["address", OWN[2], OWN[3], OWN[4], "discovery", "keys", "clock"], "{steps:?}");
    assert!(text_of(&steps, "address").contains("check PUBLIC_URL"), "{steps:?}");
    assert!(text_of(&steps, "discovery").contains(&provider.issuer), "{steps:?}");
    let ended = doctor(&app).await;
    assert!(ended.code == Some(1) && ended.stdout.contains("✗ sign-in, address\n"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_at_the_public_address_is_noticed() {
    let (app, proxy) = start(|_| {}).await;
    let (steps, failed) = check(&app).await;
    assert_eq!((names(&steps), failed), (OWN.to_vec(), Vec::new()), "{steps:?}");
    proxy.remove(&app.address);
    // A program that answers everything, and one that knows no such path.
    for (status, body) in [(StatusCode::OK, json!({})), (StatusCode::NOT_FOUND, json!({"error": "unknown"}))]
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let body = body.to_string();
        let router = axum::Router::new().fallback(move || async move { (status, body) });
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        proxy.add(&address);
        let (steps, failed) = check(&app).await;
        assert_eq!(failed, ["address", OWN[2], OWN[3], OWN[4]], "{steps:?}");
        proxy.remove(&address);
        serving.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_gateway_at_the_public_address_is_noticed() {
    let (app, proxy) = start(|_| {}).await;
    let (other, _proxy) = start(|_| {}).await;
    proxy.remove(&app.address);
    proxy.add(&other.address);
    let (steps, failed) = check(&app).await;
    assert_eq!(failed, OWN[2..], "{steps:?}");
    // One with the same settings, but other keys.
    proxy.remove(&other.address);
    let url = Url::parse(&format!("http://{}", proxy.address)).unwrap();
    let other = TestApp::start_enterprise_with(|config| config.public_url = Some(url)).await;
    proxy.add(&other.address);
    let (steps, failed) = check(&app).await;
    assert_eq!(failed, OWN[4..], "{steps:?}");
    assert!(text_of(&steps, "registration").contains("another gateway"), "{steps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_are_those_of_this_gateway() {
    let (app, _proxy) = start(|config| config.sign_in.registration_is_open = false).await;
    let (steps, failed) = check(&app).await;
    assert_eq!((names(&steps), failed), (OWN.to_vec(), Vec::new()), "{steps:?}");
    assert!(text_of(&steps, "registration").contains("OAUTH_DCR"), "{steps:?}");
    // With an issuer of tokens, agents need that one.
    let issuer = FakeProvider::start().await;
    let (app, _proxy) = start(|config| issuer.issuer_settings(config)).await;
    let (steps, failed) = check(&app).await;
    assert_eq!((names(&steps), failed), ([&OWN[..3], &ISSUER_STEPS].concat(), Vec::new()), "{steps:?}");
    issuer.set_down(true);
    let (steps, failed) = check(&app).await;
    assert_eq!(failed, ISSUER_STEPS, "{steps:?}");
    // Its clock is another one.
    issuer.set_down(false);
    issuer.clock.advance(std::time::Duration::from_secs(300));
    let (steps, failed) = check(&app).await;
    assert!(failed == ["clock"] && text_of(&steps, "clock").contains("NTP"), "{steps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_admins_ask_and_only_where_people_sign_in() {
    let (app, _proxy) = start(|_| {}).await;
    let user = app.create_user("ann", "user").await;
    app.send_as(&user, "GET", "/api/v0/sign-in/check", json!({})).await.expect(403).error();
    let agent = app.create_client("agent", &["*"]).await;
    app.send_as(&agent, "GET", "/api/v0/sign-in/check", json!({})).await.expect(401).error();
    let app = TestApp::start_enterprise().await;
    app.get("/api/v0/sign-in/check").await.expect(404).error();
    let ended = doctor(&app).await;
    let hint =
        "! sign-in: people cannot sign in in a browser\n    for that, start the gateway with PUBLIC_URL";
    assert!(ended.code == Some(0) && ended.stdout.contains(hint), "{ended:?}");
}
