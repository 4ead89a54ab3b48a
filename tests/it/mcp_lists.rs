//! The lists that agents see: complete, in a stable order, and announced when they change.

use serde_json::json;

use crate::support::{Agent, Behaviour, Fake, TestApp};

#[tokio::test]
async fn lists_are_complete_and_ordered_and_have_no_pages() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"tool_count": 120, "page_size": 7}))).await;
    app.register_http("b", &fake).await;
    app.register_http("a", &fake).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let first = agent.request("tools/list", json!({})).await;
    assert!(first["result"].get("nextCursor").is_none());
    let names = agent.tools().await;
    assert_eq!(names, app.tools("").await);
    assert!(names.is_sorted() && names.len() > 240, "{names:?}");
    for (method, member) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let (once, again) = (agent.request(method, json!({})).await, agent.request(method, json!({})).await);
        assert_eq!(once["result"], again["result"]);
        assert!(once["result"].get("nextCursor").is_none());
        assert!(!once["result"][member].as_array().unwrap().is_empty());
        assert_eq!(agent.error(method, json!({"cursor": "abc"})).await["code"], -32602);
    }
    app.post("/api/v0/tools/disable", json!({"entity": "a__echo"})).await.expect(200);
    let shown = agent.tools().await;
    assert!(!shown.contains(&"a__echo".to_owned()) && shown.contains(&"b__echo".to_owned()));
}

#[tokio::test]
async fn definitions_arrive_byte_for_byte_but_for_the_name() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    for (path, name) in [("/mcp", "s__vendor"), ("/v0/servers/s/mcp", "vendor")] {
        let agent = Agent::connect(&app, path).await;
        let list =
            agent.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).await.expect(200).text();
        let whole = format!(r#"{{"x-first":"before the name","name":"{name}","title":"Vendor \u00e9 tool""#);
        for part in [
            whole.as_str(),
            r#""maximum":98765432109876543210"#,
            r#""multipleOf":1.0"#,
            r#""x-out":1e2"#,
            r#""example.com/nested":{"a":[1,2.50,null]}},"x-vendor":{"deep":{"er":true}}}"#,
        ] {
            assert!(list.contains(part), "{part}");
        }
    }
}

#[tokio::test]
async fn a_uri_that_two_servers_share_is_listed_qualified_once_per_server() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let other = Fake::start(Behaviour::of(json!({"resources": [
        {"uri": "fake://text", "name": "text"}, {"uri": "fake://own", "name": "own"}]})))
    .await;
    app.register_http("a", &fake).await;
    let agent = Agent::connect(&app, "/mcp").await;
    let uris = async || agent.list("resources/list", "resources", "uri").await;
    assert!(uris().await.contains(&"fake://text".to_owned()));
    app.register_http("b", &other).await;
    let listed = uris().await;
    let (a, b) = ("toolgate://res/a/ZmFrZTovL3RleHQ", "toolgate://res/b/ZmFrZTovL3RleHQ");
    for uri in [a, b, "fake://own", "fake://blob"] {
        assert_eq!(listed.iter().filter(|listed| *listed == uri).count(), 1, "{uri}: {listed:?}");
        let read = agent.request("resources/read", json!({"uri": uri})).await;
        assert!(read["result"]["contents"][0].get("uri").is_some() || uri == "fake://own", "{read}");
    }
    assert!(!listed.contains(&"fake://text".to_owned()));
    let error = agent.error("resources/read", json!({"uri": "fake://text"})).await;
    assert_eq!(error["code"], -32602);
    let said = error["message"].as_str().unwrap();
    assert!(said.contains(a) && said.contains(b), "{said}");
    let native = Agent::connect(&app, "/v0/servers/b/mcp").await;
    assert_eq!(
        native
            .list("resources/list", "resources", "uri")
            .await
            .iter()
            .filter(|uri| uri.starts_with("toolgate:"))
            .count(),
        0
    );
}

#[tokio::test]
async fn only_changed_views_are_notified() {
    let app = TestApp::start().await;
    let (one, two) = (Fake::start(Behaviour::default()).await, Fake::start(Behaviour::default()).await);
    app.register_http("one", &one).await;
    app.register_http("two", &two).await;
    let group = json!({"name": "g", "included_tools": ["one__echo", "two__echo"]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    let mut streams = Vec::new();
    for path in ["/mcp", "/v0/groups/g/mcp", "/v0/servers/one/mcp", "/v0/servers/two/mcp"] {
        let agent = Agent::connect(&app, path).await;
        streams.push(agent.listen().await);
    }
    let [all, group, first, second] = &mut streams[..] else { unreachable!() };
    let names: Vec<_> = app.tools("?server=one").await;
    let mut names: Vec<_> = names.iter().map(|name| name.strip_prefix("one__").unwrap()).collect();
    names.push("brand_new");
    one.set_tools(&names);
    all.expect("notifications/tools/list_changed").await;
    first.expect("notifications/tools/list_changed").await;
    // The group and the other server are first notified of their own changes.
    app.post("/api/v0/prompts/disable?entity=two__plain", json!({})).await.expect(200);
    all.expect("notifications/prompts/list_changed").await;
    second.expect("notifications/prompts/list_changed").await;
    app.post("/api/v0/tools/disable", json!({"entity": "one__echo"})).await.expect(200);
    group.expect("notifications/tools/list_changed").await;
    all.expect("notifications/tools/list_changed").await;
    first.expect("notifications/tools/list_changed").await;
    two.update(|behaviour| behaviour.templates = Some(Vec::new()));
    two.notify_resources_changed();
    all.expect("notifications/resources/list_changed").await;
    second.expect("notifications/resources/list_changed").await;
    // Without a change there is no notification: the next one is for the following change.
    one.notify_tools_changed();
    app.post("/api/v0/tools/enable", json!({"entity": "one__echo"})).await.expect(200);
    for stream in [&mut *all, group, first] {
        stream.expect("notifications/tools/list_changed").await;
    }
    app.delete("/api/v0/servers/one").await.expect(204);
    for stream in [all, group] {
        stream.expect("notifications/tools/list_changed").await;
    }
    assert!(first.next().await.is_none_or(|message| message["method"] == "notifications/tools/list_changed"));
}

#[tokio::test]
async fn a_change_announced_on_a_calls_own_stream_is_noticed_for_every_client() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "get_stream": false}))).await;
    app.register_http("s", &fake).await;
    for (number, capabilities) in [json!({}), json!({"elicitation": {}, "roots": {}})].into_iter().enumerate()
    {
        let agent = Agent::connect_with(&app, "/mcp", capabilities).await;
        let mut stream = agent.listen().await;
        agent.call("s__add_tool", json!({"name": format!("more_{number}"), "own_stream": true})).await;
        stream.expect("notifications/tools/list_changed").await;
        assert!(agent.tools().await.contains(&format!("s__more_{number}")));
    }
}
