//! `subscriptions/listen`: the first message says what was granted, all messages carry the id of the request, only
//! requested notifications come, and the stream ends with a result, whatever the reason.

use serde_json::{Value, json};

use crate::support::mcp::Talk;
use crate::support::modern::{Post, SUBSCRIPTION_KEY};
use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp, eventually, nested_uris};

const PLACES: [&str; 3] = ["/mcp", "/v0/groups/g/mcp", "/v0/servers/s/mcp"];
const TEXT: &str = "fake://text";
const QUALIFIED: &str = "toolgate://res/s/ZmFrZTovL3RleHQ";

async fn start(era: &str) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": era}))).await;
    app.register_http("s", &fake).await;
    let group = json!({"name": "g", "included_servers": ["s"], "included_prompts": ["*"],
        "included_resources": ["*"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    (app, fake)
}

fn everything() -> Value {
    json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true})
}

fn to(uris: &[&str]) -> Value {
    json!({"resourceSubscriptions": uris})
}

/// The next notification, which must have this method and the id of this subscription.
async fn tagged(talk: &mut Talk, method: &str, id: &Value) -> Value {
    let notice = talk.expect(method).await;
    assert_eq!(notice["params"]["_meta"][SUBSCRIPTION_KEY], *id, "{notice}");
    assert!(notice.get("id").is_none(), "{notice}");
    notice["params"].clone()
}

/// The result with which the gateway ends a subscription, and nothing after it.
async fn assert_ends_well(talk: &mut Talk, id: &Value) {
    let last = talk.next().await.expect("an end comes");
    let result = json!({"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: id}});
    assert_eq!(last, json!({"jsonrpc": "2.0", "id": id, "result": result}));
    assert!(talk.next().await.is_none());
}

#[tokio::test]
async fn what_is_granted_is_said_first_and_once() {
    let (app, _fake) = start("modern").await;
    for path in PLACES {
        let agent = ModernAgent::at(&app, path);
        for (wanted, granted) in [
            (everything(), everything()),
            (json!({}), json!({})),
            (
                json!({"toolsListChanged": true, "promptsListChanged": false}),
                json!({"toolsListChanged": true}),
            ),
            (json!({"vendor/thing": true}), json!({})),
            (to(&[TEXT, "toolgate://res/no", QUALIFIED]), to(&[TEXT, QUALIFIED])),
            (to(&["fake://item/1"]), to(&["fake://item/1"])),
        ] {
            let (_talk, given) = agent.listen(json!("sub \"1\""), wanted.clone()).await;
            assert_eq!(given, granted, "{path}: {wanted}");
        }
        // A URI that is in no list is unknown; on a server's own endpoint, the server itself decides.
        let (_talk, given) = agent.listen(json!(1), to(&["fake://nothing"])).await;
        let granted = if path.contains("/servers/") { to(&["fake://nothing"]) } else { json!({}) };
        assert_eq!(given, granted, "{path}");
    }
}

#[tokio::test]
async fn an_endpoint_without_prompts_grants_none() {
    let app = TestApp::start().await;
    let behaviour = json!({"era": "modern", "prompts": [], "resources": [], "templates": []});
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    app.register_http("s", &fake).await;
    let agent = ModernAgent::at(&app, "/v0/servers/s/mcp");
    assert_eq!(agent.listen(json!(1), everything()).await.1, json!({"toolsListChanged": true}));
}

#[tokio::test]
async fn invalid_filters_are_refused() {
    let (app, _fake) = start("modern").await;
    let agent = ModernAgent::at(&app, "/mcp");
    for params in [
        json!({}),
        json!({"notifications": null}),
        json!({"notifications": []}),
        json!({"notifications": {"toolsListChanged": "yes"}}),
        json!({"notifications": {"resourceSubscriptions": "fake://text"}}),
        json!({"notifications": {"resourceSubscriptions": [5]}}),
    ] {
        let (status, error) = agent.error("subscriptions/listen", params.clone()).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{params}: {error}");
    }
    let message = agent.message(json!(1), "subscriptions/listen", json!({"notifications": {}}));
    let post = Post::of(message.to_string()).adding("accept", "application/json");
    agent.send(&post).await.expect(406).error();
}

#[tokio::test]
async fn changes_reach_only_affected_listeners_that_asked() {
    let (app, fake) = start("modern").await;
    let other = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("t", &other).await;
    let mut all = Vec::new();
    for (number, path) in PLACES.into_iter().enumerate() {
        all.push((ModernAgent::at(&app, path).listen(json!(number), everything()).await.0, json!(number)));
    }
    let everywhere = ModernAgent::at(&app, "/mcp");
    let id = json!("only prompts");
    let (mut prompts, _) = everywhere.listen(id.clone(), json!({"promptsListChanged": true})).await;
    app.post("/api/v0/tools/disable", json!({"entity": "s__echo"})).await.expect(200);
    app.post("/api/v0/prompts/disable?entity=s__plain", json!({})).await.expect(200);
    fake.update(|behaviour| behaviour.templates = Some(Vec::new()));
    fake.notify_resources_changed();
    for (talk, id) in &mut all {
        for kind in ["tools", "prompts", "resources"] {
            let params = tagged(talk, &format!("notifications/{kind}/list_changed"), id).await;
            assert_eq!(params.as_object().unwrap().len(), 1, "{params}");
        }
    }
    tagged(&mut prompts, "notifications/prompts/list_changed", &id).await;
    // A change of another server affects only the endpoint for all servers.
    app.post("/api/v0/prompts/disable?entity=t__plain", json!({})).await.expect(200);
    tagged(&mut all[0].0, "notifications/prompts/list_changed", &json!(0)).await;
    tagged(&mut prompts, "notifications/prompts/list_changed", &id).await;
    app.post("/api/v0/prompts/enable?entity=s__plain", json!({})).await.expect(200);
    for (talk, id) in &mut all {
        tagged(talk, "notifications/prompts/list_changed", id).await;
    }
}

/// Whether the server currently has a subscription to this resource.
fn is_wanted(fake: &Fake, era: &str, uri: &str) -> bool {
    match era {
        "modern" => fake.seen_of("subscriptions/listen").last().is_some_and(|seen| {
            let uris = &seen.params["notifications"]["resourceSubscriptions"];
            fake.open_streams() > 0 && uris.as_array().is_some_and(|uris| uris.contains(&json!(uri)))
        }),
        _ => {
            let count =
                |method: &str| fake.seen_of(method).iter().filter(|seen| seen.params["uri"] == uri).count();
            count("resources/subscribe") > count("resources/unsubscribe")
        }
    }
}

#[tokio::test]
async fn updates_carry_the_uri_that_was_subscribed_to() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let mut streams = Vec::new();
        for (path, uri) in
            [("/mcp", TEXT), ("/mcp", QUALIFIED), ("/v0/groups/g/mcp", TEXT), ("/v0/servers/s/mcp", TEXT)]
        {
            let (talk, granted) = ModernAgent::at(&app, path).listen(json!(7), to(&[uri, uri])).await;
            assert_eq!(granted, to(&[uri, uri]), "{era} {path}");
            streams.push((talk, uri));
        }
        let (mut bystander, _) = ModernAgent::at(&app, "/mcp").listen(json!(7), everything()).await;
        let legacy = Agent::connect(&app, "/mcp").await;
        let mut heard = legacy.listen().await;
        legacy.request("resources/subscribe", json!({"uri": TEXT})).await;
        eventually("the server knows", async || is_wanted(&fake, era, TEXT)).await;
        if era == "legacy" {
            assert_eq!(fake.seen_of("resources/subscribe").len(), 1, "one for all of them");
        }
        fake.notify_resource_updated("fake://blob");
        fake.notify_resource_updated(TEXT);
        for (talk, uri) in &mut streams {
            let params = tagged(talk, "notifications/resources/updated", &json!(7)).await;
            assert_eq!(params["uri"], *uri, "{era}");
        }
        let notice = heard.expect("notifications/resources/updated").await;
        assert_eq!(notice["params"], json!({"uri": TEXT}), "{era}");
        // No other stream is notified, and none is notified twice.
        app.post("/api/v0/prompts/disable?entity=s__plain", json!({})).await.expect(200);
        tagged(&mut bystander, "notifications/prompts/list_changed", &json!(7)).await;
        fake.notify_resource_updated(TEXT);
        for (talk, _) in &mut streams {
            tagged(talk, "notifications/resources/updated", &json!(7)).await;
        }
    }
}

#[tokio::test]
async fn the_server_is_told_when_the_last_listener_leaves() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let agent = ModernAgent::at(&app, "/mcp");
        let (one, _) = agent.listen(json!(1), to(&[TEXT, QUALIFIED])).await;
        let (two, _) = ModernAgent::at(&app, "/v0/servers/s/mcp").listen(json!(1), to(&[TEXT])).await;
        let legacy = Agent::connect(&app, "/mcp").await;
        legacy.request("resources/subscribe", json!({"uri": TEXT})).await;
        eventually("the server knows", async || is_wanted(&fake, era, TEXT)).await;
        drop(one);
        drop(two);
        // One subscriber is left; a further subscription uses the existing one.
        let (mut three, _) = agent.listen(json!(3), to(&[TEXT])).await;
        assert!(fake.seen_of("resources/unsubscribe").is_empty());
        legacy.end().await.expect(204);
        eventually("it is told", async || {
            fake.notify_resource_updated(TEXT);
            is_wanted(&fake, era, TEXT)
        })
        .await;
        tagged(&mut three, "notifications/resources/updated", &json!(3)).await;
        assert!(fake.seen_of("resources/subscribe").len() <= 1);
        drop(three);
        eventually("nobody wants it", async || !is_wanted(&fake, era, TEXT)).await;
        if era == "legacy" {
            assert_eq!(fake.seen_of("resources/unsubscribe").len(), 1);
        }
    }
}

#[tokio::test]
async fn a_resource_that_the_server_refuses_is_left_out() {
    let (app, fake) = start("legacy").await;
    fake.update(|behaviour| {
        let failure = json!({"code": -32099, "message": "not this one"});
        behaviour.fail.insert("resources/subscribe".into(), failure);
    });
    let agent = ModernAgent::at(&app, "/mcp");
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": [TEXT]});
    let (_talk, granted) = agent.listen(json!(1), wanted).await;
    assert_eq!(granted, json!({"toolsListChanged": true}));
}

#[tokio::test]
async fn an_unresponsive_server_delays_no_listener() {
    let (app, fake) = start("legacy").await;
    let other = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("t", &other).await;
    fake.update(|behaviour| behaviour.stall = vec!["resources/subscribe".into()]);
    let agent = ModernAgent::at(&app, "/mcp");
    let theirs = "toolgate://res/t/ZmFrZTovL3RleHQ";
    let (mut talk, granted) = agent.listen(json!(1), to(&[QUALIFIED, theirs])).await;
    assert_eq!(granted, to(&[theirs]));
    other.notify_resource_updated(TEXT);
    assert_eq!(tagged(&mut talk, "notifications/resources/updated", &json!(1)).await["uri"], theirs);
}

#[tokio::test]
async fn an_update_of_a_sub_resource_counts_for_the_resource() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        fake.update(|behaviour| behaviour.show_tools(&["verbatim".into()]));
        app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
        let agent = ModernAgent::at(&app, "/mcp");
        let (mut talk, _) = agent.listen(json!(1), to(&[QUALIFIED])).await;
        let update = |uri: &str| {
            let params = json!({"uri": uri});
            json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})
                .to_string()
        };
        let before = ["fake://textile", "fake://text/part"].map(update);
        let answer = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#;
        agent.call("s__verbatim", json!({"before": before, "answer": answer})).await;
        let params = tagged(&mut talk, "notifications/resources/updated", &json!(1)).await;
        assert_eq!(params["uri"], QUALIFIED, "{era}");
    }
}

#[tokio::test]
async fn a_subscription_ends_well_when_the_gateway_stops() {
    let (mut app, fake) = start("legacy").await;
    let mut streams = Vec::new();
    for (number, path) in PLACES.into_iter().enumerate() {
        let id = json!(format!("id {number}"));
        streams.push((ModernAgent::at(&app, path).listen(id.clone(), to(&[TEXT])).await.0, id));
    }
    let reading = async {
        for (talk, id) in &mut streams {
            assert_ends_well(talk, id).await;
        }
    };
    tokio::join!(app.stop(), reading);
    assert!(fake.sessions().is_empty());
}

#[tokio::test]
async fn a_subscription_ends_well_with_what_it_is_about() {
    for era in ["legacy", "modern"] {
        let (app, fake) = start(era).await;
        let id = json!(12345678901234567890u64);
        let (mut grouped, _) =
            ModernAgent::at(&app, "/v0/groups/g/mcp").listen(id.clone(), to(&[TEXT])).await;
        let (mut native, _) =
            ModernAgent::at(&app, "/v0/servers/s/mcp").listen(id.clone(), everything()).await;
        let (mut global, _) = ModernAgent::at(&app, "/mcp").listen(id.clone(), everything()).await;
        eventually("the server knows", async || is_wanted(&fake, era, TEXT)).await;
        app.delete("/api/v0/tool-groups/g").await.expect(204);
        assert_ends_well(&mut grouped, &id).await;
        eventually("nobody wants it", async || !is_wanted(&fake, era, TEXT)).await;
        app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
        assert_ends_well(&mut native, &id).await;
        for kind in ["tools", "prompts", "resources"] {
            tagged(&mut global, &format!("notifications/{kind}/list_changed"), &id).await;
        }
    }
}

#[tokio::test]
async fn subscriptions_are_made_again_when_the_server_comes_back() {
    for era in ["legacy", "modern"] {
        let (app, mut fake) = start(era).await;
        let agent = ModernAgent::at(&app, "/mcp");
        let (mut talk, _) = agent.listen(json!(1), to(&[TEXT])).await;
        eventually("the server knows", async || is_wanted(&fake, era, TEXT)).await;
        fake.forget_seen();
        fake.restart().await;
        eventually("the server knows again", async || {
            agent.request("tools/call", json!({"name": "s__echo"})).await;
            is_wanted(&fake, era, TEXT) && fake.open_streams() > 0
        })
        .await;
        fake.notify_resource_updated(TEXT);
        assert_eq!(
            tagged(&mut talk, "notifications/resources/updated", &json!(1)).await["uri"],
            TEXT,
            "{era}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_not_read_is_closed_and_nobody_else_notices() {
    let (app, fake) = start("legacy").await;
    let agent = ModernAgent::at(&app, "/v0/servers/s/mcp");
    // Long URIs, each a part of the one before: an update of the last one is an update of all.
    let uris = nested_uris();
    let uri = uris.last().unwrap();
    let (mut unread, _) = agent.listen(json!("unread"), json!({"resourceSubscriptions": uris})).await;
    let (mut read, _) = agent.listen(json!("read"), to(&[uri])).await;
    // How much the kernel keeps for a stream that is not read depends on the machine.
    let mut rounds = 0;
    while is_wanted(&fake, "legacy", &uris[0]) {
        fake.notify_resource_updated(uri);
        tagged(&mut read, "notifications/resources/updated", &json!("read")).await;
        assert_eq!(agent.call_text("echo", json!({"text": "still here"})).await, "still here");
        rounds += 1;
        assert!(rounds < 1000, "the stream was never closed");
    }
    while unread.next().await.is_some() {}
    assert!(is_wanted(&fake, "legacy", uri), "the other one goes on");
    drop(read);
    eventually("nobody wants it", async || !is_wanted(&fake, "legacy", uri)).await;
}

#[tokio::test]
async fn two_first_subscribers_both_wait_for_the_servers_response() {
    let (app, fake) = start("legacy").await;
    fake.update(|behaviour| {
        behaviour.delay_ms.insert("resources/subscribe".into(), 400);
        let failure = json!({"code": -32099, "message": "not this one"});
        behaviour.fail.insert("resources/subscribe".into(), failure);
    });
    let legacy = [Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await];
    let agent = ModernAgent::at(&app, "/mcp");
    let subscribe = json!({"uri": TEXT});
    let (one, two, (_talk, granted)) = tokio::join!(
        legacy[0].error("resources/subscribe", subscribe.clone()),
        legacy[1].error("resources/subscribe", subscribe.clone()),
        agent.listen(json!(1), to(&[TEXT])),
    );
    assert_eq!((&one["code"], &two["code"], granted), (&json!(-32099), &json!(-32099), json!({})));
    // A server that agrees is asked once.
    fake.update(|behaviour| behaviour.fail.clear());
    fake.forget_seen();
    let (one, two, (_talk, granted)) = tokio::join!(
        legacy[0].request("resources/subscribe", subscribe.clone()),
        legacy[1].request("resources/subscribe", subscribe.clone()),
        agent.listen(json!(1), to(&[TEXT])),
    );
    assert_eq!((&one["result"], &two["result"], granted), (&json!({}), &json!({}), to(&[TEXT])));
    assert_eq!(fake.seen_of("resources/subscribe").len(), 1);
}
