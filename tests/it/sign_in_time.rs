//! What time does to signing in: months of use, restarts in the middle of an exchange, and an identity provider whose keys,
//! clock and answers are not what they should be.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::person::{Person, Software, parameter, tokens_in};
use crate::support::{Agent, Answer, Behaviour, Fake, FakeProvider, TestApp, eventually};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

async fn start() -> (TestApp, Person, Software) {
    let app = TestApp::start_with_sign_in().await;
    let person = app.sign_in_user("ann").await;
    let software = Software::register(&app, "http://localhost:7000/cb").await;
    (app, person, software)
}

async fn status(app: &TestApp, access: &str) -> u16 {
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    app.send_as(access, "POST", "/mcp", list).await.status
}

async fn grants(app: &TestApp) -> usize {
    app.get("/api/v0/grants").await.expect(200).json().as_array().unwrap().len()
}

fn assert_invalid_grant(answer: &Answer) {
    assert_eq!((answer.status, &answer.json()["error"]), (400, &json!("invalid_grant")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_comes_back_now_and_then_works_for_months() {
    let (mut app, person, software) = start().await;
    let (mut access, mut refresh) = software.tokens(&app, &person, &[]).await;
    let mut passed = Duration::ZERO;
    // Somebody works each day, is ill, has a holiday, and uses it now and then.
    let pauses = [HOUR, 2 * HOUR, 20 * HOUR, DAY, 3 * DAY, 29 * DAY, 59 * MINUTE, 14 * DAY, 29 * DAY];
    for (turn, pause) in pauses.into_iter().cycle().take(3 * pauses.len()).enumerate() {
        let before = access.clone();
        app.clock().advance(pause);
        passed += pause;
        app.gateway().tidy_credentials().await.unwrap();
        assert_eq!(status(&app, &before).await, if pause < HOUR { 200 } else { 401 }, "turn {turn}");
        if turn % 4 == 3 {
            app = app.restart().await;
        }
        let answer = software.refresh(&app, &refresh, &[]).await;
        assert_eq!(answer.status, 200, "turn {turn}: {}", answer.text());
        (access, refresh) = tokens_in(&answer);
        assert_eq!((status(&app, &access).await, grants(&app).await), (200, 1), "turn {turn}");
    }
    assert!(passed > 200 * DAY);
    app.clock().advance(30 * DAY + MINUTE);
    assert_invalid_grant(&software.refresh(&app, &refresh, &[]).await);
    app.gateway().tidy_credentials().await.unwrap();
    assert_eq!((grants(&app).await, status(&app, &access).await), (0, 401));
    // The consent of a program on the machine was never kept, and the person can agree again.
    let person = {
        let token = app.create_user("bob", "user").await;
        let mut person = Person::default();
        person.sign_in(&app, &token).await;
        person
    };
    let (access, _) = software.tokens(&app, &person, &[]).await;
    assert_eq!(status(&app, &access).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_consent_and_tokens_loses_nothing() {
    let (app, person, software) = start().await;
    let code = software.code(&app, &person, &[]).await;
    let app = app.restart().await;
    let (access, refresh) = tokens_in(&software.redeem(&app, &code, &[]).await.expect(200));
    let app = app.restart().await;
    assert_eq!(status(&app, &access).await, 200);
    // The second use of the code is noticed by a gateway that has not seen the first one.
    assert_invalid_grant(&software.redeem(&app, &code, &[]).await);
    assert_eq!(status(&app, &access).await, 401);
    assert_invalid_grant(&software.refresh(&app, &refresh, &[]).await);
    // A code does not live longer because nobody was there.
    let late = software.code(&app, &person, &[]).await;
    app.clock().advance(MINUTE + Duration::from_secs(1));
    let app = app.restart().await;
    assert_invalid_grant(&software.redeem(&app, &late, &[]).await);
    // The page for consent was open during the restart.
    let query = software.query(&[]);
    let page = person.open(&app, &format!("/authorize?{query}")).await.expect(200);
    let form_token = crate::support::person::hidden(&page, "form_token");
    let app = app.restart().await;
    let fields = [("query", query.as_str()), ("form_token", &form_token), ("decision", "allow")];
    let code = parameter(&person.send(&app, "/authorize", &fields).await, "code").unwrap();
    software.redeem(&app, &code, &[]).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_after_a_refresh_keeps_its_successor_for_those_who_missed_it() {
    let (app, person, software) = start().await;
    let (_, first) = software.tokens(&app, &person, &[]).await;
    // The answer is lost with the gateway.
    let (_, second) = tokens_in(&software.refresh(&app, &first, &[]).await.expect(200));
    let app = app.restart().await;
    let (access, again) = tokens_in(&software.refresh(&app, &first, &[]).await.expect(200));
    assert_eq!((again.as_str(), status(&app, &access).await), (second.as_str(), 200));
    // Until the successor is used the first one works, for days and over restarts.
    app.clock().advance(3 * DAY);
    app.gateway().tidy_credentials().await.unwrap();
    let app = app.restart().await;
    assert_eq!(tokens_in(&software.refresh(&app, &first, &[]).await.expect(200)).1, second);
    let (_, third) = tokens_in(&software.refresh(&app, &second, &[]).await.expect(200));
    // Now the hour of the second one runs; that of the first one is long over.
    let app = app.restart().await;
    app.clock().advance(HOUR - MINUTE);
    assert_eq!(tokens_in(&software.refresh(&app, &second, &[]).await.expect(200)).1, third);
    let (access, _) = tokens_in(&software.refresh(&app, &third, &[]).await.expect(200));
    app.clock().advance(2 * MINUTE);
    let app = app.restart().await;
    assert_eq!(status(&app, &access).await, 200);
    assert_invalid_grant(&software.refresh(&app, &second, &[]).await);
    assert_eq!((status(&app, &access).await, grants(&app).await), (401, 0));
    assert_invalid_grant(&software.refresh(&app, &third, &[]).await);
}

async fn start_with_provider() -> (TestApp, FakeProvider) {
    let provider = FakeProvider::start().await;
    let app = TestApp::start_enterprise_with(|config| provider.settings(config)).await;
    (app, provider)
}

/// Signs in as somebody in a new browser.
async fn sign_in(app: &TestApp, provider: &FakeProvider) -> Answer {
    provider.sign_in(app, &mut Person::default(), ("s-1", "ann", &[]), "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_may_change_its_keys_and_must_not_sign_with_others() {
    let (app, provider) = start_with_provider().await;
    sign_in(&app, &provider).await.expect(303);
    provider.clock.advance(11 * Duration::from_secs(1));
    provider.set_keys("second", &["first", "second"]);
    sign_in(&app, &provider).await.expect(303);
    provider.set_keys("second", &["second"]);
    sign_in(&app, &provider).await.expect(303);
    // Somebody signs with a key that the provider has withdrawn; it is noticed when the known keys are an hour old.
    provider.clock.advance(HOUR);
    provider.set_keys("first", &["second"]);
    eventually("the key no longer counts", async || sign_in(&app, &provider).await.status == 400).await;
    let refused = sign_in(&app, &provider).await.expect(400);
    assert!(refused.text().contains("You are not signed in"), "{}", refused.text());
    assert!(!refused.headers.get_all("set-cookie").iter().any(|set| {
        let set = set.to_str().unwrap();
        set.starts_with("__Host-toolgate=") && !set.contains("Max-Age=0")
    }));
    // It heals by itself.
    provider.clock.advance(11 * Duration::from_secs(1));
    provider.set_keys("second", &["second"]);
    sign_in(&app, &provider).await.expect(303);
    assert_eq!(app.get("/api/v0/users").await.expect(200).json().as_array().map(Vec::len), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_the_provider_may_be_off_by_a_minute() {
    let (app, provider) = start_with_provider().await;
    for (skew, status) in [(0, 303), (50, 303), (-50, 303), (-340, 303), (-400, 400), (600, 400), (0, 303)] {
        provider.set_skew(skew);
        let answer = sign_in(&app, &provider).await;
        assert_eq!(answer.status, status, "{skew}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_down_or_slow_is_a_page_and_heals_by_itself() {
    let (app, provider) = start_with_provider().await;
    let mut person = Person::default();
    provider.sign_in(&app, &mut person, ("s-1", "ann", &[]), "").await.expect(303);
    let software = Software::register(&app, "https://agent.example/cb").await;
    let (access, refresh) = software.tokens(&app, &person, &[]).await;
    let agent = Agent::connect_as(&app, "/mcp", &access).await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let works = async || agent.call_text("s__echo", json!({"text": "hi"})).await == "hi";
    provider.set_down(true);
    let page = sign_in(&app, &provider).await.expect(503);
    assert!(page.text().contains("Try again"), "{}", page.text());
    assert!(works().await);
    software.refresh(&app, &refresh, &[]).await.expect(200);
    provider.set_down(false);
    sign_in(&app, &provider).await.expect(303);
    // Nobody waits for it but the person who signs in.
    provider.set_hanging(true);
    let (page, ()) = tokio::join!(sign_in(&app, &provider), async {
        assert!(works().await);
        software.refresh(&app, &refresh, &[]).await.expect(200);
    });
    assert!(page.expect(503).text().contains("Try again"));
    provider.set_hanging(false);
    sign_in(&app, &provider).await.expect(303);
    let users: Value = app.get("/api/v0/users").await.expect(200).json();
    assert_eq!(users.as_array().map(Vec::len), Some(2), "{users}");
}
