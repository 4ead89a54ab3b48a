//! URIs that two servers of a view share: the lists, tool definitions and results of both name them in one qualified
//! form, under which they can be read.

use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, ModernAgent, TestApp};

const APP: &str = "ui://app/main.html";
const A: &str = "ui://a.toolgate/dWk6Ly9hcHAvbWFpbi5odG1s";
const B: &str = "ui://b.toolgate/dWk6Ly9hcHAvbWFpbi5odG1s";
const TEXT_A: &str = "toolgate://res/a/ZmFrZTovL3RleHQ";

/// A server with a tool that has a user interface, and a prompt with links.
async fn fake(era: &str, resources: &[&str]) -> Fake {
    let link = json!({"type": "resource_link", "uri": "fake://text", "name": "text"});
    let behaviour = json!({
        "era": era,
        "tools": [
            {"name": "echo", "inputSchema": {}, "_meta": {"ui": {"resourceUri": APP}, "ui/resourceUri": APP}},
            {"name": "verbatim", "inputSchema": {}},
        ],
        "prompts": [{"name": "links"}],
        "resources": resources.iter().map(|uri| json!({"uri": uri, "name": uri})).collect::<Vec<_>>(),
        "results": {"links": {"messages": [{"role": "user", "content": link}]}},
    });
    Fake::start(Behaviour::of(behaviour)).await
}

/// The answer of a tool with links of every kind.
fn linked() -> String {
    json!({"jsonrpc": "2.0", "id": "$ID", "result": {
        "content": [
            {"type": "resource_link", "uri": APP, "name": "app"},
            {"type": "resource", "resource": {"uri": "fake://text", "text": "fake://text"}},
            {"type": "resource_link", "uri": "fake://own", "name": "own"},
        ],
        "structuredContent": {"uri": APP},
        "_meta": {"ui": {"resourceUri": APP}},
        "resultType": "complete",
    }})
    .to_string()
    .replace("\"$ID\"", "$ID")
}

fn links(result: &Value) -> [&Value; 5] {
    [
        &result["content"][0]["uri"],
        &result["content"][1]["resource"]["uri"],
        &result["content"][2]["uri"],
        &result["structuredContent"]["uri"],
        &result["_meta"]["ui"]["resourceUri"],
    ]
}

fn tool<'a>(list: &'a Value, name: &str) -> &'a Value {
    list["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn links_to_a_shared_uri_have_the_form_in_which_it_is_listed() {
    for era in ["legacy", "modern"] {
        let app = TestApp::start().await;
        let a = fake(era, &[APP, "fake://text", "fake://own"]).await;
        app.register_http("a", &a).await;
        let (agent, modern) = (Agent::connect(&app, "/mcp").await, ModernAgent::at(&app, "/mcp"));
        let mut stream = agent.listen().await;
        let call = || json!({"name": "a__verbatim", "arguments": {"answer": linked()}});
        // While one server has them, everything is as it wrote it.
        let result = agent.request("tools/call", call()).await["result"].clone();
        assert_eq!(links(&result), [APP, "fake://text", "fake://own", APP, APP], "{era}");
        assert_eq!(
            tool(&agent.request("tools/list", json!({})).await["result"], "a__echo")["_meta"]["ui"]["resourceUri"],
            APP
        );

        let b = fake(era, &[APP, "fake://text"]).await;
        app.register_http("b", &b).await;
        stream.expect("notifications/tools/list_changed").await;
        let listed = agent.list("resources/list", "resources", "uri").await;
        let mut expected = [A, TEXT_A, "fake://own", B, "toolgate://res/b/ZmFrZTovL3RleHQ"];
        expected.sort_unstable();
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        let legacy_tools = agent.request("tools/list", json!({})).await["result"].clone();
        for tools in [legacy_tools, modern.result("tools/list", json!({})).await] {
            for (name, uri) in [("a__echo", A), ("b__echo", B)] {
                let meta = json!({"ui": {"resourceUri": uri}, "ui/resourceUri": uri});
                assert_eq!(tool(&tools, name)["_meta"], meta, "{era}");
            }
        }
        let legacy = agent.request("tools/call", call()).await["result"].clone();
        for result in [legacy, modern.result("tools/call", call()).await] {
            assert_eq!(links(&result), [A, TEXT_A, "fake://own", APP, A], "{era}");
        }
        let prompt = agent.request("prompts/get", json!({"name": "a__links"})).await;
        assert_eq!(prompt["result"]["messages"][0]["content"]["uri"], TEXT_A);
        // Every such link can be read, and what is read carries it.
        for uri in [A, B, TEXT_A, "fake://own"] {
            let read = agent.request("resources/read", json!({"uri": uri})).await;
            assert_eq!(read["result"]["contents"][0]["uri"], uri, "{read}");
        }
        let error = agent.error("resources/read", json!({"uri": APP})).await;
        assert_eq!(error["code"], -32602);
        let said = error["message"].as_str().unwrap();
        assert!(said.contains(A) && said.contains(B), "{said}");

        // The endpoint of one server, and a group with one of them, share nothing.
        let group = json!({"name": "g", "included_servers": ["a"], "included_resources": ["*"]});
        app.post("/api/v0/tool-groups", group).await.expect(201);
        for (path, name) in [("/v0/servers/a/mcp", "verbatim"), ("/v0/groups/g/mcp", "a__verbatim")] {
            let agent = Agent::connect(&app, path).await;
            let call = json!({"name": name, "arguments": {"answer": linked()}});
            let result = agent.request("tools/call", call).await["result"].clone();
            assert_eq!(links(&result), [APP, "fake://text", "fake://own", APP, APP], "{path}");
            assert_eq!(
                agent.request("resources/read", json!({"uri": A})).await["result"]["contents"][0]["uri"],
                A
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_qualified_user_interface_is_accepted_wherever_a_uri_is() {
    let app = TestApp::start().await;
    let (a, b) = (fake("legacy", &[APP]).await, fake("legacy", &[APP]).await);
    app.register_http("a", &a).await;
    app.register_http("b", &b).await;
    let record = app.post("/api/v0/resources/get", json!({"uri": A})).await.expect(200).json();
    assert_eq!((&record["uri"], &record["server"]), (&json!(APP), &json!("a")));
    // Over REST every resource has the same form, and what is read is as the server sent it.
    assert_eq!(record["qualified_uri"], "toolgate://res/a/dWk6Ly9hcHAvbWFpbi5odG1s");
    let read = app.post("/api/v0/resources/read", json!({"uri": A})).await.expect(200).json();
    assert_eq!(read["contents"][0]["uri"], APP);
    let refused = app.post("/api/v0/resources/read", json!({"uri": APP})).await.expect(400).error();
    assert!(refused.contains("toolgate://res/a/") && refused.contains("toolgate://res/b/"), "{refused}");
    let group = json!({"name": "g", "included_servers": ["a", "b"], "included_resources": [B]});
    app.post("/api/v0/tool-groups", group).await.expect(201);
    let member = Agent::connect(&app, "/v0/groups/g/mcp").await;
    assert_eq!(member.list("resources/list", "resources", "uri").await, [APP]);
    let agent = Agent::connect(&app, "/mcp").await;
    let mut stream = agent.listen().await;
    assert!(agent.request("resources/subscribe", json!({"uri": B})).await.get("error").is_none());
    b.notify_resource_updated(APP);
    assert_eq!(stream.expect("notifications/resources/updated").await["params"]["uri"], B);
}
