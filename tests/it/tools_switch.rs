//! `POST /api/v0/tools/enable` and `/disable`: one tool or all tools of a server.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp};

const TWO: [&str; 2] = ["echo", "add"];

async fn with_two_tools() -> (TestApp, Fake) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    fake.set_tools(&TWO);
    app.register_http("s", &fake).await;
    (app, fake)
}

async fn enabled(app: &TestApp) -> Vec<String> {
    let tools = app.get("/api/v0/tools?all=true").await.expect(200).json();
    let on = tools.as_array().unwrap().iter().filter(|tool| tool["enabled"] == true);
    on.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_may_be_in_the_query_or_in_the_body() {
    let (app, _fake) = with_two_tools().await;
    for (query, body) in [
        ("?entity=s__echo", ""),
        ("?entity=s__echo", "{}"),
        ("?entity=s__echo", "not JSON"),
        ("?entity=s%5F_echo", ""),
        ("?entity=s__echo", r#"{"entity":"s__add"}"#),
        ("", r#"{"entity":"s__echo"}"#),
        ("", r#"{"name":"s__echo"}"#),
        ("?entity=", r#"{"name":"s__echo"}"#),
        ("", r#"{"entity":null,"name":"s__echo"}"#),
    ] {
        for (verb, left) in [("disable", vec!["s__add"]), ("enable", vec!["s__add", "s__echo"])] {
            let path = format!("/api/v0/tools/{verb}{query}");
            let answer = app.send("POST", &path, &[], body).await.expect(200).json();
            assert_eq!(answer, json!(["s__echo"]), "{path} {body}");
            assert_eq!(enabled(&app).await, left, "{path} {body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tool_is_always_returned_but_of_a_server_only_what_changed() {
    let (app, _fake) = with_two_tools().await;
    let switch = async |path: &str| -> Value { app.send("POST", path, &[], "").await.expect(200).json() };
    assert_eq!(switch("/api/v0/tools/disable?entity=s__echo").await, json!(["s__echo"]));
    assert_eq!(switch("/api/v0/tools/disable?entity=s__echo").await, json!(["s__echo"]));
    assert_eq!(switch("/api/v0/tools/disable?entity=s").await, json!(["s__add"]));
    assert_eq!(switch("/api/v0/tools/disable?entity=s").await, json!([]));
    assert_eq!(switch("/api/v0/tools/enable?entity=s").await, json!(["s__add", "s__echo"]));
    assert_eq!(switch("/api/v0/tools/enable?entity=s").await, json!([]));
    assert_eq!(switch("/api/v0/tools/enable?entity=s__add").await, json!(["s__add"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flag_of_a_tool_is_its_own_whatever_its_server_does() {
    let (app, _fake) = with_two_tools().await;
    app.send("POST", "/api/v0/tools/disable?entity=s__echo", &[], "").await.expect(200);
    app.send("POST", "/api/v0/servers/s/disable", &[], "").await.expect(200);
    assert_eq!(enabled(&app).await, Vec::<String>::new());
    let switched = app.send("POST", "/api/v0/tools/disable?entity=s__add", &[], "").await.expect(200).json();
    assert_eq!(switched, json!(["s__add"]), "a tool of a disabled server can be switched");
    let app = app.restart().await;
    let switched = app.send("POST", "/api/v0/tools/enable?entity=s__echo", &[], "").await.expect(200).json();
    assert_eq!(switched, json!(["s__echo"]));
    assert_eq!(enabled(&app).await, Vec::<String>::new());
    let shown = app.send("POST", "/api/v0/servers/s/enable", &[], "").await.expect(200).json();
    assert_eq!(shown["tools_affected"], json!(["s__echo"]));
    assert_eq!(enabled(&app).await, ["s__echo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_unknown_name_changes_nothing() {
    let (app, _fake) = with_two_tools().await;
    for verb in ["enable", "disable"] {
        for (query, body, status, word) in [
            ("", "", 400, "entity"),
            ("", "{}", 400, "entity"),
            ("?entity=", "", 400, "entity"),
            ("?name=s__echo", "", 400, "entity"),
            ("", r#"{"entity":""}"#, 400, "entity"),
            ("", r#"{"name":null}"#, 400, "entity"),
            ("", r#"{"entity":7}"#, 400, "entity"),
            ("", r#"{"name":["s__echo"]}"#, 400, "name"),
            ("", r#"{"tool":"s__echo"}"#, 400, "tool"),
            ("", r#""s__echo""#, 400, "object"),
            ("", r#"{"entity""#, 400, "JSON"),
            ("?entity=nobody", "", 404, "nobody"),
            ("?entity=S", "", 404, "S"),
            ("?entity=s__nothing", "", 404, "s__nothing"),
            ("?entity=nobody__echo", "", 404, "nobody"),
            ("?entity=echo", "", 404, "echo"),
            ("?entity=s__", "", 404, "s__"),
        ] {
            let answer = app.send("POST", &format!("/api/v0/tools/{verb}{query}"), &[], body).await;
            let error = answer.expect(status).error();
            assert!(error.contains(word), "{verb} {query} {body}: {error}");
        }
    }
    assert_eq!(enabled(&app).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_comes_back_is_still_disabled_and_a_new_one_is_enabled() {
    let (app, fake) = with_two_tools().await;
    app.send("POST", "/api/v0/tools/disable?entity=s", &[], "").await.expect(200);
    for (tools, on) in [(vec!["add"], vec![]), (vec!["add", "echo", "image"], vec!["s__image"])] {
        fake.set_tools(&tools);
        app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
        assert_eq!(enabled(&app).await, on);
    }
}
