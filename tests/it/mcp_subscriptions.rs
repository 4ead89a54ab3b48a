//! Subscriptions to resources, over servers of both eras.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, TestApp, eventually};

async fn start(era: &str) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

/// Whether the server currently has a subscription to this resource.
fn is_wanted(fake: &Fake, era: &str, uri: &str) -> bool {
    match era {
        "modern" => fake.seen_of("subscriptions/listen").last().is_some_and(|seen| {
            let uris = &seen.params["notifications"]["resourceSubscriptions"];
            uris.as_array().is_some_and(|uris| uris.contains(&json!(uri)))
        }),
        _ => {
            let count =
                |method: &str| fake.seen_of(method).iter().filter(|seen| seen.params["uri"] == uri).count();
            count("resources/subscribe") > count("resources/unsubscribe")
        }
    }
}

async fn ok(agent: &Agent, method: &str, uri: &str) {
    assert_eq!(agent.request(method, json!({"uri": uri})).await["result"], json!({}), "{method} {uri}");
}

const TEXT: &str = "fake://text";
const QUALIFIED: &str = "toolgate://res/s/ZmFrZTovL3RleHQ";

#[tokio::test]
async fn updates_carry_the_uri_that_was_subscribed_to() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let (plain, qualified) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
        let native = Agent::connect(&app, "/v0/servers/s/mcp").await;
        let bystander = Agent::connect(&app, "/mcp").await;
        let mut streams = [plain.listen().await, qualified.listen().await, native.listen().await];
        let mut nothing = bystander.listen().await;
        ok(&plain, "resources/subscribe", TEXT).await;
        ok(&qualified, "resources/subscribe", QUALIFIED).await;
        ok(&native, "resources/subscribe", TEXT).await;
        ok(&native, "resources/subscribe", "fake://item/5").await;
        eventually("the server knows", async || {
            is_wanted(&fake, era, "fake://item/5") && fake.open_streams() > 0
        })
        .await;
        if era == "legacy" {
            assert_eq!(fake.seen_of("resources/subscribe").len(), 2, "one for each resource");
        }
        fake.notify_resource_updated(TEXT);
        for (stream, uri) in streams.iter_mut().zip([TEXT, QUALIFIED, TEXT]) {
            let notice = stream.expect("notifications/resources/updated").await;
            assert_eq!(notice["params"]["uri"], uri, "{era}");
        }
        fake.notify_resource_updated("fake://item/5");
        let notice = streams[2].expect("notifications/resources/updated").await;
        assert_eq!(notice["params"]["uri"], "fake://item/5");
        app.delete("/api/v0/servers/s").await.expect(204);
        nothing.expect("notifications/tools/list_changed").await;
    }
}

#[tokio::test]
async fn the_server_is_told_when_the_last_subscriber_leaves() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
        ok(&one, "resources/subscribe", TEXT).await;
        ok(&one, "resources/subscribe", TEXT).await;
        ok(&two, "resources/subscribe", TEXT).await;
        eventually("the server knows", async || is_wanted(&fake, era, TEXT)).await;
        ok(&one, "resources/unsubscribe", TEXT).await;
        ok(&one, "resources/unsubscribe", TEXT).await;
        ok(&one, "resources/unsubscribe", "fake://never").await;
        assert!(is_wanted(&fake, era, TEXT));
        two.end().await.expect(204);
        eventually("nobody wants it", async || !is_wanted(&fake, era, TEXT)).await;
    }
}

#[tokio::test]
async fn subscriptions_are_made_again_when_the_server_comes_back() {
    for era in ["legacy", "modern"] {
        let (app, mut fake) = start(era).await;
        let agent = Agent::connect(&app, "/mcp").await;
        let mut stream = agent.listen().await;
        ok(&agent, "resources/subscribe", TEXT).await;
        eventually("the server knows", async || is_wanted(&fake, era, TEXT)).await;
        fake.forget_seen();
        fake.restart().await;
        eventually("the server knows again", async || {
            agent.request("tools/call", json!({"name": "s__echo"})).await;
            is_wanted(&fake, era, TEXT) && fake.open_streams() > 0
        })
        .await;
        fake.notify_resource_updated(TEXT);
        let notice = stream.expect("notifications/resources/updated").await;
        assert_eq!(notice["params"]["uri"], TEXT, "{era}");
    }
}

#[tokio::test]
async fn a_subscription_that_the_server_refuses_is_refused() {
    let (app, fake) = start("legacy").await;
    fake.update(|behaviour| {
        behaviour
            .fail
            .insert("resources/subscribe".into(), json!({"code": -32099, "message": "not this one"}));
    });
    let agent = Agent::connect(&app, "/mcp").await;
    let error: Value = agent.error("resources/subscribe", json!({"uri": TEXT})).await;
    assert_eq!(error, json!({"code": -32099, "message": "not this one"}));
    fake.update(|behaviour| behaviour.fail.clear());
    ok(&agent, "resources/subscribe", TEXT).await;
    assert_eq!(fake.seen_of("resources/subscribe").len(), 2);
}

#[tokio::test]
async fn subscriptions_and_log_levels_outlive_a_change_of_the_server() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let agent = Agent::connect(&app, "/mcp").await;
        let mut stream = agent.listen().await;
        agent.request("logging/setLevel", json!({"level": "notice"})).await;
        ok(&agent, "resources/subscribe", TEXT).await;
        eventually("the server knows", async || is_wanted(&fake, era, TEXT)).await;
        let again =
            json!({"name": "s", "transport": "streamable_http", "url": fake.url(), "description": "new"});
        for change in 0..3 {
            fake.forget_seen();
            match change {
                0 => {
                    drop(app.patch("/api/v0/servers/s", json!({"headers": {"x-new": "1"}})).await.expect(200))
                }
                1 => drop(app.post("/api/v0/servers?force=true", again.clone()).await.expect(201)),
                _ => {
                    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
                    app.post("/api/v0/servers/s/enable", json!({})).await.expect(200);
                }
            }
            eventually(&format!("{era} {change}: the server knows again"), async || {
                is_wanted(&fake, era, TEXT) && fake.open_streams() > 0
            })
            .await;
            if era == "legacy" {
                let level =
                    async || fake.seen_of("logging/setLevel").pop().map(|seen| seen.params["level"].clone());
                eventually("the level is known", async || level().await == Some(json!("notice"))).await;
            }
        }
        // Other notifications do not matter here.
        fake.notify_resource_updated(TEXT);
        while stream.next().await.unwrap()["method"] != "notifications/resources/updated" {}
    }
}
