//! `GET /api/v0/tools` and `GET /api/v0/tool`: which tools are listed, and the content of a record.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp};

fn keys(record: &Value) -> Vec<&str> {
    record.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_has_the_keys_of_the_contract_and_no_others() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let plain = app.get("/api/v0/tool?name=s__echo").await.expect(200).text();
    let schema = r#"{"type":"object","properties":{"text":{"type":"string"}}}"#;
    let expected = format!(
        r#"{{"name":"s__echo","enabled":true,"description":"Returns its arguments as text","input_schema":{schema},"annotations":{{}}}}"#
    );
    assert_eq!(plain, expected);
    let vendor = app.get("/api/v0/tool?name=s__vendor").await.expect(200);
    let optional = ["title", "output_schema", "icons", "meta", "execution"];
    let mut all = [["name", "enabled", "description", "input_schema", "annotations"], optional].concat();
    all.sort_unstable();
    assert_eq!(keys(&vendor.json()), all);
    for kept in [
        r#""maximum":98765432109876543210"#,
        r#""multipleOf":1.0"#,
        r#""title":"Vendor \u00e9 tool""#,
        r#"{"title":"Annotated","idempotentHint":true,"vendorHint":"kept"}"#,
        r#""execution":{"taskSupport":"forbidden","vendor":true}"#,
        r#""meta":{"example.com/big":12345678901234567890123,"example.com/nested":{"a":[1,2.50,null]}}"#,
        r#""output_schema":{"type":"object","x-out":1e2}"#,
        r#""patternProperties":{"^x-":{"type":"string"}},"if":{"required":["zeta"]}"#,
    ] {
        assert!(vendor.text().contains(kept), "{kept} is not in {}", vendor.text());
    }
    let listed = app.get("/api/v0/tools?server=s").await.expect(200).text();
    assert!(listed.contains(&plain) && listed.contains(&vendor.text()), "a list has the same records");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_the_same_after_a_restart() {
    let app = TestApp::start().await;
    let mut fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let before = app.get("/api/v0/tools").await.expect(200).text();
    fake.stop().await;
    let app = app.restart().await;
    assert_eq!(app.get("/api/v0/tools").await.expect(200).text(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_upstream_leaves_out_is_empty_not_missing() {
    let app = TestApp::start().await;
    let tools = json!([
        { "name": "bare", "inputSchema": { "type": "object" } },
        { "name": "nulls", "description": null, "inputSchema": { "type": "object" }, "annotations": null, "title": null },
    ]);
    let fake = Fake::start(Behaviour::of(json!({ "tools": tools }))).await;
    app.register_http("s", &fake).await;
    for name in ["s__bare", "s__nulls"] {
        let record = app.get(&format!("/api/v0/tool?name={name}")).await.expect(200).json();
        let expected = json!({
            "name": name, "enabled": true, "description": "", "input_schema": { "type": "object" }, "annotations": {},
        });
        assert_eq!(record, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_sorted_by_full_name_over_all_servers() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "page_size": 7 }))).await;
    for server in ["b", "a", "a-b", "a_b", "B"] {
        app.register_http(server, &fake).await;
    }
    let names = app.tools("").await;
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted);
    assert!(names.len() > 5 * 30, "all pages of all servers are there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_tool_is_still_listed_as_disabled() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let count = app.tools("").await.len();
    app.post("/api/v0/tools/disable?entity=s__echo", json!({})).await.expect(200);
    let tools = app.get("/api/v0/tools").await.expect(200).json();
    let tools = tools.as_array().unwrap();
    assert_eq!(tools.len(), count);
    let disabled: Vec<_> = tools.iter().filter(|tool| tool["enabled"] == false).collect();
    assert_eq!(disabled.len(), 1);
    assert_eq!(disabled[0]["name"], "s__echo");
    assert_eq!(app.get("/api/v0/tool?name=s__echo").await.expect(200).json()["enabled"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_disabled_server_are_listed_only_on_request() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("on", &fake).await;
    app.register_http("off", &fake).await;
    app.post("/api/v0/servers/off/disable", json!({})).await.expect(200);
    let is_of_off = |name: &String| name.starts_with("off__");
    assert!(!app.tools("").await.iter().any(is_of_off));
    assert!(!app.tools("?all=false").await.iter().any(is_of_off));
    assert_eq!(app.get("/api/v0/tools?server=off").await.expect(200).text(), "[]");
    assert!(app.tools("?all=true").await.iter().any(is_of_off));
    let listed = app.get("/api/v0/tools?server=off&all=true").await.expect(200).json();
    let listed = listed.as_array().unwrap();
    assert!(listed.len() > 30 && listed.iter().all(|tool| tool["enabled"] == false));
    let one = app.get("/api/v0/tool?name=off__echo").await.expect(200).json();
    assert_eq!(one["enabled"], false, "one tool can always be looked up");
    assert!(app.tools("?server=on").await.iter().all(|name| name.starts_with("on__")));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_get_a_sentence_that_names_the_mistake() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    for (path, status, word) in [
        ("/api/v0/tools?server=nobody", 404, "nobody"),
        ("/api/v0/tools?server=nobody&all=true", 404, "nobody"),
        ("/api/v0/tools?server=S", 404, "S"),
        ("/api/v0/tools?all=perhaps", 400, "all"),
        ("/api/v0/tool", 400, "name"),
        ("/api/v0/tool?name=", 400, "name"),
        ("/api/v0/tool?Name=s__echo", 400, "name"),
        ("/api/v0/tool?name=echo", 400, "echo"),
        ("/api/v0/tool?name=s", 400, "__"),
        ("/api/v0/tool?name=s__", 404, "s__"),
        ("/api/v0/tool?name=s__nothing", 404, "s__nothing"),
        ("/api/v0/tool?name=nobody__echo", 404, "nobody"),
        ("/api/v0/tool?name=s__echo__", 404, "s__echo__"),
        ("/api/v0/tool?name=s__ECHO", 404, "s__ECHO"),
    ] {
        let error = app.get(path).await.expect(status).error();
        assert!(error.contains(word), "{path}: {error}");
    }
    assert_eq!(app.tools("?server=").await.len(), app.tools("").await.len(), "an empty value is no value");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_with_odd_names_are_found_and_called() {
    let app = TestApp::start().await;
    let names = ["a__b", "_lead", "with space", "sl/ash", "q?&=+%", "\u{fc}n\u{ef}code", "quote\"s", "tail_"];
    let tools: Vec<_> = names.iter().map(|name| json!({ "name": name, "inputSchema": {} })).collect();
    let fake = Fake::start(Behaviour::of(json!({ "tools": tools }))).await;
    app.register_http("s", &fake).await;
    for name in names {
        let full = format!("s__{name}");
        let query: String = url::form_urlencoded::byte_serialize(full.as_bytes()).collect();
        let record = app.get(&format!("/api/v0/tool?name={query}")).await.expect(200).json();
        assert_eq!(record["name"], full);
        assert_eq!(app.call(&full, json!({ "text": "ran" })).await, "ran");
        let switched = app.post(&format!("/api/v0/tools/disable?entity={query}"), json!({})).await;
        assert_eq!(switched.expect(200).json(), json!([full]));
    }
}
