//! Pasting the configuration of another program: the preview, and the import itself.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp, stdio_command};

fn by_name<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{list}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pasted_config_is_shown_before_it_is_applied() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let (command, args) = stdio_command(&Behaviour::default());
    let text = json!({ "mcpServers": {
        "local": { "command": command, "args": args, "env": { "TOKEN": "lemur-0001" } },
        "web": { "url": fake.url(), "headers": { "Authorization": "Bearer quokka-0003", "X-Key": "dugong-0004" } },
        "broken": { "command": 7 },
    } })
    .to_string();
    let preview = app.post("/api/dashboard/import/preview", json!({ "text": text })).await.expect(200);
    for secret in ["lemur", "quokka", "dugong", "uthorization"] {
        assert!(!preview.text().contains(secret), "{}", preview.text());
    }
    let servers = preview.json()["servers"].clone();
    let local = by_name(&servers, "local");
    assert_eq!((&local["action"], &local["transport"]), (&json!("add"), &json!("stdio")));
    assert_eq!(local["env_keys"], json!(["TOKEN"]));
    assert_eq!(by_name(&servers, "web")["header_keys"], json!(["X-Key"]));
    let broken = by_name(&servers, "broken");
    assert_eq!(broken["action"], "skip");
    assert!(broken["reason"].is_string());
    assert!(app.get("/api/v0/servers").await.json().as_array().unwrap().is_empty(), "nothing is stored");

    let names = json!(["web", "broken", "local", "unheard-of"]);
    let body = json!({ "text": text, "names": names });
    let applied = app.post("/api/dashboard/import", body.clone()).await.expect(200).json();
    let told = |applied: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let outcomes = applied["outcomes"].as_array().unwrap().iter();
        outcomes.map(|outcome| (text(&outcome["name"]), text(&outcome["outcome"]))).collect()
    };
    let pairs = |expected: [(&str, &str); 4]| expected.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
    assert_eq!(
        told(&applied),
        pairs([("web", "added"), ("broken", "skipped"), ("local", "added"), ("unheard-of", "skipped")])
    );
    assert_eq!(app.call("local__echo", json!({ "text": "x" })).await, "x");

    let servers = app.post("/api/dashboard/import/preview", json!({ "text": text })).await.json();
    assert_eq!(by_name(&servers["servers"], "web")["action"], "skip", "{servers}");
    let text = text.replace("lemur-0001", "lemur-0002");
    let servers = app.post("/api/dashboard/import/preview", json!({ "text": text })).await.json();
    assert_eq!(by_name(&servers["servers"], "local")["action"], "change");
    let body = json!({ "text": text, "names": ["local"] });
    let applied = app.post("/api/dashboard/import", body).await.expect(200).json();
    assert_eq!(applied, json!({ "outcomes": [{ "name": "local", "outcome": "changed" }] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_fails_alone() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let text =
        json!({ "mcpServers": { "up": { "url": fake.url() }, "down": { "command": "/no/such/program" } } });
    let body = json!({ "text": text.to_string(), "names": ["down", "up"] });
    let applied = app.post("/api/dashboard/import", body).await.expect(200).json();
    assert_eq!(applied["outcomes"][0]["outcome"], "failed");
    assert!(applied["outcomes"][0]["reason"].as_str().unwrap().contains("/no/such/program"));
    assert_eq!(applied["outcomes"][1], json!({ "name": "up", "outcome": "added" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_refused_with_the_field() {
    let app = TestApp::start().await;
    for body in [json!({}), json!({ "text": 1 }), json!({ "text": "hello" }), json!({ "text": "{" })] {
        let error = app.post("/api/dashboard/import/preview", body).await.expect(400).error();
        assert!(error.contains("text"), "{error}");
    }
    let error = app.post("/api/dashboard/import", json!({ "text": "{}" })).await.expect(400).error();
    assert!(error.contains("names"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_the_gateway_are_not_handed_to_a_pasted_server() {
    let app = TestApp::start().await;
    let text = json!({ "mcpServers": { "s": { "command": "x", "env": { "A": "${PATH}" } } } }).to_string();
    let preview = app.post("/api/dashboard/import/preview", json!({ "text": text })).await.expect(200).json();
    assert_eq!(preview["servers"][0]["action"], "skip");
    assert!(preview["servers"][0]["reason"].as_str().unwrap().contains("PATH"), "{preview}");
}
