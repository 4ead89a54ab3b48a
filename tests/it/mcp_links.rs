//! One link per session, in the caller's own era: calls, subscriptions and lists of a caller belong to the same link, and
//! a server may show other lists to other callers.

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::modern::ModernAgent;
use crate::support::{Agent, Behaviour, Fake, TestApp, eventually};

fn everything() -> Value {
    json!({"sampling": {}, "elicitation": {}, "roots": {"listChanged": true}})
}

fn tool(name: &str, about: &str) -> Value {
    json!({"name": name, "description": about, "inputSchema": {"type": "object"}})
}

/// A server that has a tool more for each of these capabilities, and another definition of `echo`.
fn choosy(era: &str) -> Behaviour {
    Behaviour::of(json!({
        "era": era,
        "tools": [tool("pid", "plain"), tool("echo", "plain")],
        "tools_for": {
            "sampling": [tool("ask_model", "for sampling")],
            "elicitation": [tool("ask_person", "for elicitation"), tool("echo", "with questions")],
            "extensions": [tool("draw", "for extensions")],
        },
    }))
}

async fn start(behaviour: Behaviour) -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(behaviour).await;
    app.register_http("s", &fake).await;
    (app, fake)
}

const TEXT: &str = "fake://text";

async fn subscribe(agent: &Agent, uri: &str) {
    assert_eq!(agent.request("resources/subscribe", json!({"uri": uri})).await["result"], json!({}));
}

#[tokio::test]
async fn a_server_of_both_eras_is_called_in_the_callers_era() {
    let (app, fake) = start(Behaviour::of(json!({"era": "both", "tools": [tool("message", "")]}))).await;
    let legacy = Agent::connect_with(&app, "/mcp", everything()).await;
    let message: Value = serde_json::from_str(&legacy.call_text("s__message", json!({})).await).unwrap();
    assert_eq!(message["params"].get("_meta"), None, "a byte proxy adds nothing");
    let modern = ModernAgent::at(&app, "/mcp");
    let message: Value = serde_json::from_str(&modern.call_text("s__message", json!({})).await).unwrap();
    assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    let declared =
        fake.seen_of("initialize").iter().map(|seen| seen.params["capabilities"].clone()).collect::<Vec<_>>();
    assert_eq!(declared, [everything()]);
}

#[tokio::test]
async fn a_server_of_both_eras_asks_a_legacy_client_in_its_own_way() {
    for path in ["/mcp", "/v0/servers/s/mcp"] {
        let (app, _fake) = start(Behaviour::of(json!({"era": "both"}))).await;
        let agent = Agent::connect_with(&app, path, everything()).await;
        let tool = if path == "/mcp" { "s__ask" } else { "ask" };
        let mut talk = agent.begin_call(json!(7), tool, json!({})).await;
        let question = talk.expect("elicitation/create").await;
        agent.reply(&question, json!({"action": "accept", "content": {"colour": "red"}})).await;
        let answer = talk.answer().await;
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("red"), "{answer}");
    }
}

#[tokio::test]
async fn a_process_of_both_eras_is_used_in_one_era_only() {
    let app = TestApp::start().await;
    let tools = json!([tool("pid", ""), tool("seen", "")]);
    app.register_stdio("s", &Behaviour::of(json!({"era": "both", "tools": tools}))).await;
    let legacy = Agent::connect(&app, "/mcp").await;
    let modern = ModernAgent::at(&app, "/mcp");
    let first = modern.call_text("s__pid", json!({})).await;
    let second = legacy.call_text("s__pid", json!({})).await;
    assert_ne!(first, second);
    assert_eq!(legacy.call_text("s__pid", json!({})).await, second);
    let seen: Value = serde_json::from_str(&legacy.call_text("s__seen", json!({})).await).unwrap();
    assert_eq!(seen[0], "initialize", "{seen}");
}

#[tokio::test]
async fn each_set_of_capabilities_sees_its_own_lists() {
    for era in ["legacy", "modern", "both"] {
        let (app, _fake) = start(choosy(era)).await;
        let plain = Agent::connect(&app, "/mcp").await;
        let able = Agent::connect_with(&app, "/mcp", everything()).await;
        assert_eq!(plain.tools().await, ["s__echo", "s__pid"], "{era}");
        let expected = ["s__ask_model", "s__ask_person", "s__echo", "s__pid"];
        assert_eq!(able.tools().await, expected, "{era}");
        assert_eq!(plain.tools().await, ["s__echo", "s__pid"], "{era}");
        // The same name with another definition: each sees its own.
        let echo = |list: Value| {
            let tools = list["result"]["tools"].as_array().unwrap().clone();
            tools.iter().find(|tool| tool["name"] == "s__echo").unwrap()["description"].clone()
        };
        assert_eq!(echo(plain.request("tools/list", json!({})).await), "plain");
        assert_eq!(echo(able.request("tools/list", json!({})).await), "with questions");
        // What only some callers see can be called by them.
        assert_eq!(able.call_text("s__ask_model", json!({"text": "hi"})).await, "hi");
        assert_eq!(plain.error("tools/call", json!({"name": "s__ask_model"})).await["code"], -32602);
        // People and flags work on all names.
        let tools = app.get("/api/v0/tools").await.expect(200).json();
        let known: Vec<_> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        for name in expected {
            assert!(known.contains(&name), "{era}: {known:?}");
        }
        app.post("/api/v0/tools/disable?entity=s__ask_model", json!({})).await.expect(200);
        assert_eq!(able.tools().await, ["s__ask_person", "s__echo", "s__pid"], "{era}");
    }
}

#[tokio::test]
async fn a_modern_client_sees_the_lists_for_its_capabilities() {
    let (app, _fake) = start(choosy("modern")).await;
    let able = ModernAgent::at(&app, "/mcp").with(json!({"sampling": {}, "extensions": {"x/y": {}}}));
    assert_eq!(
        able.list("tools/list", "tools", "name").await,
        ["s__ask_model", "s__draw", "s__echo", "s__pid"]
    );
    assert_eq!(able.call_text("s__draw", json!({"text": "hi"})).await, "hi");
    let plain = ModernAgent::at(&app, "/mcp");
    assert_eq!(plain.list("tools/list", "tools", "name").await, ["s__echo", "s__pid"]);
}

#[tokio::test]
async fn a_call_finds_what_nobody_listed_yet() {
    let (app, _fake) = start(choosy("legacy")).await;
    let able = Agent::connect_with(&app, "/mcp", everything()).await;
    assert_eq!(able.call_text("s__ask_person", json!({"text": "hi"})).await, "hi");
}

#[tokio::test]
async fn extensions_and_unknown_capabilities_reach_the_server_as_declared() {
    let declared = json!({
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
        "x-vendor": {"depth": 3},
        "roots": {"listChanged": false},
    });
    let (app, fake) = start(choosy("legacy")).await;
    let agent = Agent::connect_with(&app, "/mcp", declared.clone()).await;
    assert_eq!(agent.tools().await, ["s__draw", "s__echo", "s__pid"]);
    assert!(fake.seen_of("initialize").iter().any(|seen| seen.params["capabilities"] == declared));
    let (app, fake) = start(choosy("modern")).await;
    let agent = Agent::connect_with(&app, "/mcp", declared.clone()).await;
    assert_eq!(agent.tools().await, ["s__draw", "s__echo", "s__pid"]);
    agent.call_text("s__echo", json!({"text": "hi"})).await;
    let call = fake.seen_of("tools/call").pop().unwrap();
    assert_eq!(call.params["_meta"]["io.modelcontextprotocol/clientCapabilities"], declared);
}

#[tokio::test]
async fn a_subscription_is_made_on_the_link_of_the_calls() {
    let app = TestApp::start().await;
    for (name, mode) in [("shared", "stateless"), ("own", "stateful")] {
        let mut input = stdio_input(name, &Behaviour::of(json!({"era": "legacy"})));
        input["session_mode"] = json!(mode);
        app.register(input).await;
        let agent = Agent::connect_with(&app, &format!("/v0/servers/{name}/mcp"), everything()).await;
        let mut stream = agent.listen().await;
        subscribe(&agent, TEXT).await;
        agent.call_text("touch", json!({"uri": TEXT})).await;
        let notice = stream.expect("notifications/resources/updated").await;
        assert_eq!(notice["params"]["uri"], TEXT, "{name}");
        let seen: Value = serde_json::from_str(&agent.call_text("seen", json!({})).await).unwrap();
        assert!(seen.as_array().unwrap().contains(&json!("resources/subscribe")), "{name}: {seen}");
    }
}

#[tokio::test]
async fn an_update_reaches_only_the_subscribers_of_its_link() {
    let app = TestApp::start().await;
    let mut input = stdio_input("s", &Behaviour::of(json!({"era": "legacy"})));
    input["session_mode"] = json!("stateful");
    app.register(input).await;
    let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
    let (mut first, mut second) = (one.listen().await, two.listen().await);
    subscribe(&one, TEXT).await;
    subscribe(&two, TEXT).await;
    one.call_text("s__touch", json!({"uri": TEXT})).await;
    first.expect("notifications/resources/updated").await;
    // The other process did not change anything, so the next message there is about another resource.
    subscribe(&two, "fake://blob").await;
    two.call_text("s__touch", json!({"uri": "fake://blob"})).await;
    let notice = second.expect("notifications/resources/updated").await;
    assert_eq!(notice["params"]["uri"], "fake://blob");
}

#[tokio::test]
async fn a_lost_link_is_opened_again_with_its_subscriptions() {
    let (app, fake) = start(Behaviour::of(json!({"era": "legacy"}))).await;
    let agent = Agent::connect_with(&app, "/mcp", everything()).await;
    let mut stream = agent.listen().await;
    subscribe(&agent, TEXT).await;
    let subscribed = || fake.seen_of("resources/subscribe").len();
    assert_eq!(subscribed(), 1);
    fake.drop_sessions();
    // Nobody calls: the link heals by itself.
    eventually("it subscribes again", async || subscribed() == 2).await;
    eventually("its stream is open", async || {
        fake.notify_resource_updated(TEXT);
        fake.open_streams() >= 2
    })
    .await;
    fake.notify_resource_updated(TEXT);
    stream.expect("notifications/resources/updated").await;
}

#[tokio::test]
async fn a_stateful_session_sees_and_calls_what_its_own_call_added() {
    for wire in ["stdio", "http"] {
        let app = TestApp::start().await;
        let behaviour = Behaviour::of(json!({"era": "legacy", "tools": [tool("learn", "")]}));
        let fake = Fake::start(behaviour.clone()).await;
        let mut input = match wire {
            "stdio" => stdio_input("s", &behaviour),
            _ => json!({"name": "s", "transport": "streamable_http", "url": fake.url()}),
        };
        input["session_mode"] = json!("stateful");
        app.register(input).await;
        let (one, two) = (Agent::connect(&app, "/mcp").await, Agent::connect(&app, "/mcp").await);
        let (before, mut stream) = (one.tools().await, one.listen().await);
        assert!(!before.contains(&"s__learned".to_owned()));
        one.call_text("s__learn", json!({"name": "learned"})).await;
        stream.expect("notifications/tools/list_changed").await;
        assert!(one.tools().await.contains(&"s__learned".to_owned()), "{wire}");
        assert_eq!(one.call_text("s__learned", json!({"text": "hi"})).await, "hi", "{wire}");
        assert!(!two.tools().await.contains(&"s__learned".to_owned()), "{wire}");
        assert_eq!(two.error("tools/call", json!({"name": "s__learned"})).await["code"], -32602, "{wire}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_a_second_session_serves_everybody_on_the_first() {
    let mut behaviour = choosy("legacy");
    behaviour.max_sessions = Some(1);
    let (app, _fake) = start(behaviour).await;
    let able = Agent::connect_with(&app, "/mcp", everything()).await;
    assert_eq!(able.tools().await, ["s__echo", "s__pid"]);
    assert_eq!(able.call_text("s__echo", json!({"text": "hi"})).await, "hi");
    let server = app.get("/api/v0/servers/s").await.expect(200).json();
    assert!(server["status_reason"].as_str().unwrap().contains("another link failed"), "{server}");
}

#[tokio::test]
async fn with_too_many_sets_of_capabilities_the_nearest_process_serves() {
    let app = TestApp::start().await;
    app.register_stdio("s", &choosy("legacy")).await;
    let sets = [
        json!({"roots": {}}),
        json!({"sampling": {}}),
        json!({"elicitation": {}}),
        json!({"sampling": {}, "roots": {"listChanged": true}, "elicitation": {"form": {}}}),
    ];
    let mut processes = Vec::new();
    for set in sets {
        let agent = Agent::connect_with(&app, "/mcp", set).await;
        processes.push((agent.call_text("s__pid", json!({})).await, agent.tools().await));
    }
    let (last, tools) = processes.pop().unwrap();
    let nearest = processes.iter().find(|(process, _)| *process == last);
    assert_eq!(nearest.map(|(_, tools)| tools), Some(&tools), "{last} {processes:?}");
    let server = app.get("/api/v0/servers/s").await.expect(200).json();
    assert!(server["status_reason"].as_str().unwrap().contains("nearest"), "{server}");
}

#[tokio::test]
async fn a_modern_servers_grants_decide() {
    let mut behaviour = Behaviour::of(json!({"era": "modern"}));
    behaviour.grants = Some(vec![TEXT.into()]);
    let (app, _fake) = start(behaviour).await;
    let wanted = json!({"resourceSubscriptions": [TEXT, "fake://blob"]});
    let (_talk, granted) = ModernAgent::at(&app, "/mcp").listen(json!(1), wanted).await;
    assert_eq!(granted["resourceSubscriptions"], json!([TEXT]));
    let legacy = Agent::connect(&app, "/mcp").await;
    subscribe(&legacy, TEXT).await;
    assert_eq!(legacy.error("resources/subscribe", json!({"uri": "fake://blob"})).await["code"], -32603);
}

#[tokio::test]
async fn a_subscription_and_a_level_are_answered_when_the_server_has_answered() {
    let (app, fake) = start(Behaviour::of(json!({"era": "legacy"}))).await;
    let agent = Agent::connect_with(&app, "/v0/servers/s/mcp", everything()).await;
    subscribe(&agent, TEXT).await;
    assert_eq!(fake.seen_of("resources/subscribe").len(), 1);
    assert_eq!(agent.request("logging/setLevel", json!({"level": "debug"})).await["result"], json!({}));
    let told = fake.seen_of("logging/setLevel");
    assert!(told.iter().any(|seen| seen.params["level"] == "debug"), "{told:?}");
    fake.update(|behaviour| {
        drop(behaviour.fail.insert("resources/unsubscribe".into(), json!({"code": -32000})))
    });
    assert_eq!(agent.request("resources/unsubscribe", json!({"uri": TEXT})).await["result"], json!({}));
    assert_eq!(fake.seen_of("resources/unsubscribe").len(), 1);
}

#[tokio::test]
async fn notices_that_the_gateway_does_not_know_go_to_the_callers_link() {
    let (app, fake) = start(Behaviour::of(json!({"era": "legacy"}))).await;
    let agent = Agent::connect_with(&app, "/v0/servers/s/mcp", everything()).await;
    agent.tell("notifications/roots/list_changed", json!({})).await;
    agent.tell("notifications/vendor/ping", json!({"n": 1})).await;
    eventually("both arrive", async || {
        fake.seen_of("notifications/roots/list_changed").len() == 1
            && fake.seen_of("notifications/vendor/ping").iter().any(|seen| seen.params == json!({"n": 1}))
    })
    .await;
    let aggregated = Agent::connect(&app, "/mcp").await;
    aggregated.tell("notifications/vendor/ping", json!({"n": 2})).await;
    agent.call_text("echo", json!({"text": "hi"})).await;
    assert_eq!(fake.seen_of("notifications/vendor/ping").len(), 1);
}

#[tokio::test]
async fn a_modern_server_is_asked_once_whether_it_also_speaks_the_legacy_era() {
    let (app, fake) = start(Behaviour::of(json!({"era": "modern"}))).await;
    for capabilities in [json!({}), everything(), json!({"roots": {}})] {
        let agent = Agent::connect_with(&app, "/mcp", capabilities).await;
        assert!(agent.tools().await.contains(&"s__echo".to_owned()));
        assert_eq!(agent.call_text("s__echo", json!({"text": "hi"})).await, "hi");
    }
    assert_eq!(fake.seen_of("initialize").len(), 1);
}

#[tokio::test]
async fn a_further_set_of_capabilities_replaces_the_one_unused_for_the_longest_time() {
    let (app, fake) = start(choosy("legacy")).await;
    for number in 0..20 {
        let agent = Agent::connect_with(&app, "/mcp", json!({"extensions": {"x": {"number": number}}})).await;
        assert_eq!(agent.tools().await, ["s__draw", "s__echo", "s__pid"]);
    }
    eventually("the links of the first ones are closed", async || fake.deleted_sessions().len() == 4).await;
    // One of those that were replaced comes again.
    let agent = Agent::connect_with(&app, "/mcp", json!({"extensions": {"x": {"number": 0}}})).await;
    assert_eq!(agent.tools().await, ["s__draw", "s__echo", "s__pid"]);
    assert_eq!(app.server("s").await["status"], "connected");
}

#[tokio::test]
async fn a_change_of_the_lists_for_some_capabilities_is_announced_to_their_clients() {
    let (app, fake) = start(choosy("legacy")).await;
    let able = Agent::connect_with(&app, "/mcp", everything()).await;
    assert_eq!(able.tools().await.len(), 4);
    let mut stream = able.listen().await;
    fake.update(|behaviour| {
        let more = serde_json::value::to_raw_value(&tool("dream", "new")).unwrap();
        behaviour.tools_for.get_mut("sampling").unwrap().push(more);
    });
    fake.notify_tools_changed();
    stream.expect("notifications/tools/list_changed").await;
    assert!(able.tools().await.contains(&"s__dream".to_owned()));
    assert!(!Agent::connect(&app, "/mcp").await.tools().await.contains(&"s__dream".to_owned()));
}

#[tokio::test]
async fn reading_lists_for_the_first_time_is_no_change_of_them() {
    let (app, _fake) = start(choosy("both")).await;
    let agent = Agent::connect_with(&app, "/mcp", everything()).await;
    let mut stream = agent.listen().await;
    assert_eq!(agent.tools().await.len(), 4);
    subscribe(&agent, TEXT).await;
    agent.call_text("s__echo", json!({"text": "hi"})).await;
    app.post("/api/v0/prompts/disable?entity=s__plain", json!({})).await.expect(200);
    // The first message is about what really changed.
    assert_eq!(stream.next().await.unwrap()["method"], "notifications/prompts/list_changed");
}

#[tokio::test]
async fn two_calls_with_the_same_id_are_both_cancelled() {
    let (app, fake) = start(Behaviour::of(json!({"era": "legacy"}))).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "s__slow", "arguments": {"ms": 600_000}}});
    let cancel = async {
        eventually("both run", async || fake.running_calls() == 2).await;
        agent.tell("notifications/cancelled", json!({"requestId": 7})).await;
    };
    tokio::join!(agent.post(&call), agent.post(&call), cancel);
    eventually("both are cancelled", async || fake.cancelled().len() == 2).await;
}

#[tokio::test]
async fn the_lists_of_one_set_of_capabilities_do_not_change_how_others_call() {
    let region = json!({"name": "region", "inputSchema": {"type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}});
    let behaviour = Behaviour::of(json!({
        "era": "modern",
        "tools": [region],
        "tools_for": {"sampling": [tool("region", "without a header")]},
    }));
    let (app, fake) = start(behaviour).await;
    let able = ModernAgent::at(&app, "/mcp").with(json!({"sampling": {}}));
    assert_eq!(able.list("tools/list", "tools", "name").await, ["s__region"]);
    app.call("s__region", json!({"region": "north"})).await;
    assert_eq!(fake.seen_of("tools/call").pop().unwrap().headers["mcp-param-region"], "north");
}
