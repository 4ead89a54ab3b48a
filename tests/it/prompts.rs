//! Prompts over REST: listing, rendering, enabling and disabling.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn app_with(behaviour: Value) -> (TestApp, Fake) {
    let (app, fake) = (TestApp::start().await, Fake::start(Behaviour::of(behaviour)).await);
    app.register_http("s", &fake).await;
    (app, fake)
}

async fn names(app: &TestApp, query: &str) -> Vec<String> {
    let prompts = app.get(&format!("/api/v0/prompts{query}")).await.expect(200).json();
    prompts.as_array().unwrap().iter().map(|prompt| prompt["name"].as_str().unwrap().to_owned()).collect()
}

async fn prompt(app: &TestApp, name: &str) -> Value {
    app.get(&format!("/api/v0/prompt?name={name}")).await.expect(200).json()
}

async fn switch(app: &TestApp, verb: &str, entity: &str) -> Value {
    app.post(&format!("/api/v0/prompts/{verb}?entity={entity}"), json!(null)).await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_of_every_kind_of_server_are_listed_and_rendered() {
    let app = TestApp::start().await;
    let (servers, _fakes) = app.register_each_kind(&json!({ "page_size": 2 })).await;
    for server in servers {
        let greet = json!({
            "name": format!("{server}__greet"), "enabled": true, "description": "Greets somebody",
            "arguments": [
                {"name": "who", "description": "Whom to greet", "required": true},
                {"name": "tone", "description": "", "required": false},
            ],
            "title": "Greeting", "meta": {"example.com/kept": 1},
        });
        let bare = |name: &str, description: &str| {
            let name = format!("{server}__{name}");
            json!({"name": name, "enabled": true, "description": description, "arguments": []})
        };
        let listed = app.get(&format!("/api/v0/prompts?server={server}")).await.expect(200).json();
        let picture = bare("picture", "Has an image in its messages");
        assert_eq!(listed, json!([greet, picture, bare("plain", "Takes nothing")]));
        assert_eq!(prompt(&app, &format!("{server}__greet")).await, greet);

        let input = json!({"name": format!("{server}__greet"), "arguments": {"who": "Ada"}});
        let rendered = app.post("/api/v0/prompts/render", input).await.expect(200).json();
        let content = json!({"type": "text", "text": "Hello, Ada!"});
        let messages = json!([{"role": "user", "content": content}]);
        assert_eq!(rendered, json!({"description": "Rendered", "messages": messages}), "{server}");
        let input = json!({"name": format!("{server}__picture")});
        let rendered = app.post("/api/v0/prompts/render", input).await.expect(200).json();
        assert_eq!(rendered["messages"][0]["content"]["mimeType"], "image/png", "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_upstream_wrote_in_a_prompt_is_passed_on_as_written() {
    let icons = r#"[{"src":"https://example.com/\u00e9.png","x-vendor":98765432109876543210}]"#;
    let meta = r#"{"example.com/big":12345678901234567890123,"z":1.0,"a":[2.50]}"#;
    let messages =
        r#"[{"content":{"x":1.0,"type":"text","text":"\u00e9","_meta":{"b":1e2}},"role":"assistant"}]"#;
    let fragment = format!(
        r#"{{"prompts":[{{"icons":{icons},"name":"p","_meta":{meta}}}],
        "results":{{"p":{{"_meta":{meta},"messages":{messages},"x-vendor":true}}}}}}"#
    );
    for era in ["legacy", "modern"] {
        let mut behaviour = Behaviour::of(json!({ "era": era }));
        behaviour.merge(&fragment).unwrap();
        let (mut app, fake) = (TestApp::start().await, Fake::start(behaviour).await);
        app.register_http("s", &fake).await;
        for _ in ["as registered", "as stored"] {
            let record = app.get("/api/v0/prompt?name=s__p").await.expect(200).text();
            let shown = format!(r#""icons":{icons},"meta":{meta}}}"#);
            assert!(record.ends_with(&shown), "{record}");
            let input = json!({"name": "s__p"});
            let rendered = app.post("/api/v0/prompts/render", input).await.expect(200).text();
            assert_eq!(rendered, format!(r#"{{"messages":{messages},"meta":{meta}}}"#), "{era}");
            app = app.restart().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_with_null_members_still_count() {
    let arguments =
        json!([{"name": "a", "description": null, "required": true}, {"name": "b", "required": null}]);
    let prompts = json!([
        {"name": "p", "description": null, "title": null, "arguments": arguments},
        {"name": "q", "arguments": null},
    ]);
    let (app, _fake) = app_with(json!({ "prompts": prompts })).await;
    let shown = json!([
        {"name": "a", "description": "", "required": true},
        {"name": "b", "description": "", "required": false},
    ]);
    let record = json!({"name": "s__p", "enabled": true, "description": "", "arguments": shown});
    assert_eq!(prompt(&app, "s__p").await, record);
    assert_eq!(prompt(&app, "s__q").await["arguments"], json!([]));
    let refused = app.post("/api/v0/prompts/render", json!({"name": "s__p"})).await.expect(400);
    assert!(refused.error().contains("arguments.a"), "{}", refused.error());
    app.post("/api/v0/prompts/render", json!({"name": "s__p", "arguments": {"a": ""}})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_lists_cover_enabled_servers_unless_all_is_asked_for() {
    let (app, fake) = app_with(json!({})).await;
    app.register_http("s-b", &fake).await;
    app.register_http("t", &fake).await;
    app.post("/api/v0/servers/t/disable", json!({})).await.expect(200);
    let of =
        |server: &str| ["greet", "picture", "plain"].map(|prompt| format!("{server}__{prompt}")).to_vec();
    assert_eq!(names(&app, "").await, [of("s-b"), of("s")].concat(), "sorted by full name");
    assert_eq!(names(&app, "?all=true").await, [of("s-b"), of("s"), of("t")].concat());
    assert_eq!(names(&app, "?server=s").await, of("s"));
    assert!(names(&app, "?server=t").await.is_empty());
    assert_eq!(names(&app, "?server=t&all=true").await, of("t"));
    assert!(app.get("/api/v0/prompts?server=gone").await.expect(404).error().contains("gone"));
    assert!(app.get("/api/v0/prompts?all=perhaps").await.expect(400).error().contains("all"));
    assert_eq!(prompt(&app, "t__greet").await["enabled"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_is_not_named_well_or_not_there_is_refused() {
    let (app, _fake) = app_with(json!({})).await;
    for (query, status, said) in [
        ("", 400, "name"),
        ("?name=", 400, "name"),
        ("?name=greet", 400, "<server>__<prompt>"),
        ("?name=s__gone", 404, "s__gone"),
        ("?name=s__echo", 404, "s__echo"),
        ("?name=gone__greet", 404, "gone"),
    ] {
        let refused = app.get(&format!("/api/v0/prompt{query}")).await.expect(status);
        assert!(refused.error().contains(said), "{query}: {}", refused.error());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_a_render_request_is_named_and_goes_nowhere() {
    let (app, fake) = app_with(json!({})).await;
    let greet = |arguments: Value| json!({"name": "s__greet", "arguments": arguments});
    for (body, status, said) in [
        (json!({}), 400, "name"),
        (json!({"name": null}), 400, "name"),
        (json!({"name": 7}), 400, "name"),
        (json!({"name": ""}), 400, "<server>__<prompt>"),
        (json!({"name": "greet"}), 400, "<server>__<prompt>"),
        (json!({"name": "s__gone"}), 404, "s__gone"),
        (json!({"name": "gone__greet"}), 404, "gone"),
        (json!({"name": "s__greet"}), 400, "arguments.who"),
        (greet(json!({"tone": "warm"})), 400, "arguments.who"),
        (greet(json!({"who": 1})), 400, "arguments.who"),
        (greet(json!({"who": null})), 400, "arguments.who"),
        (greet(json!({"who": "Ada", "tone": ["warm"]})), 400, "arguments.tone"),
        (greet(json!({"who": "Ada", "tone": {}})), 400, "arguments.tone"),
        (greet(json!({"who": "Ada", "tone": true})), 400, "arguments.tone"),
        (greet(json!("who")), 400, "arguments"),
        (greet(json!([])), 400, "arguments"),
        (json!({"name": "s__plain", "argumentz": {}}), 400, "argumentz"),
        (json!([]), 400, "object"),
    ] {
        let refused = app.post("/api/v0/prompts/render", body.clone()).await.expect(status);
        assert!(refused.error().contains(said), "{body}: {}", refused.error());
    }
    for raw in ["", "{", "\u{feff}{}"] {
        app.send("POST", "/api/v0/prompts/render", &[], raw).await.expect(400).error();
    }
    app.get("/api/v0/prompts/render").await.expect(405).error();
    assert!(fake.seen_of("prompts/get").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_arrive_as_they_were_given() {
    let (app, fake) = app_with(json!({})).await;
    let arguments = json!({"who": "\"Ada\"\n\u{0}ü😀", "": "empty key", "a\"b": "", "unlisted": "kept"});
    let input = json!({"name": "s__greet", "arguments": arguments});
    app.post("/api/v0/prompts/render", input).await.expect(200);
    app.send("POST", "/api/v0/prompts/render", &[("content-type", "text/plain")], r#"{"name":"s__plain"}"#)
        .await
        .expect(200);
    let seen = fake.seen_of("prompts/get");
    assert_eq!((&seen[0].params["name"], &seen[0].params["arguments"]), (&json!("greet"), &arguments));
    assert_eq!(seen[1].params["arguments"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_upstream_is_a_500_with_the_reason() {
    let failure = json!({"code": -32050, "message": "the muse is away", "data": {"retry": false}});
    let (app, mut fake) = app_with(json!({ "fail": {"prompts/get": failure} })).await;
    let render = || app.post("/api/v0/prompts/render", json!({"name": "s__plain"}));
    assert!(render().await.expect(500).error().contains("the muse is away"));

    fake.update(|behaviour| behaviour.merge(r#"{"fail":{},"stall":["prompts/get"]}"#).unwrap());
    app.patch("/api/v0/servers/s", json!({"timeout_ms": 100})).await.expect(200);
    assert!(render().await.expect(500).error().contains("0.1 s"));

    let asks = r#"{"stall":[],"era":"modern","results":{"plain":{"resultType":"input_required"}}}"#;
    fake.update(|behaviour| behaviour.merge(asks).unwrap());
    app.post(
        "/api/v0/servers?force=true",
        json!({"name": "s", "transport": "streamable_http", "url": fake.url()}),
    )
    .await
    .expect(201);
    assert!(render().await.expect(500).error().contains("MCP client"));

    fake.stop().await;
    assert!(render().await.expect(500).error().contains("s__plain"));
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    assert!(render().await.expect(400).error().contains("disabled"));
    assert_eq!(names(&app, "?all=true").await.len(), 3, "the stored list stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_prompt_is_listed_as_disabled_and_still_renders() {
    let (mut app, fake) = app_with(json!({})).await;
    assert_eq!(switch(&app, "disable", "s__greet").await, json!(["s__greet"]));
    assert_eq!(switch(&app, "disable", "s__greet").await, json!(["s__greet"]), "a single one always");
    for _ in ["at once", "after a restart"] {
        assert_eq!(prompt(&app, "s__greet").await["enabled"], false);
        assert_eq!(prompt(&app, "s__plain").await["enabled"], true);
        assert_eq!(names(&app, "").await.len(), 3);
        let input = json!({"name": "s__greet", "arguments": {"who": "Ada"}});
        app.post("/api/v0/prompts/render", input).await.expect(200);
        app = app.restart().await;
    }
    // After it disappeared and came back, it is still disabled.
    let original = Behaviour::default().prompts();
    fake.update(|behaviour| behaviour.prompts = Some(original[1..].to_vec()));
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    assert_eq!(names(&app, "").await, ["s__picture", "s__plain"]);
    fake.update(|behaviour| behaviour.prompts = None);
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    assert_eq!(prompt(&app, "s__greet").await["enabled"], false);
    assert_eq!(switch(&app, "enable", "s__greet").await, json!(["s__greet"]));
    assert_eq!(prompt(&app, "s__greet").await["enabled"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn switching_a_servers_prompts_names_those_that_changed() {
    let (app, _fake) = app_with(json!({})).await;
    switch(&app, "disable", "s__plain").await;
    assert_eq!(switch(&app, "disable", "s").await, json!(["s__greet", "s__picture"]));
    assert_eq!(switch(&app, "disable", "s").await, json!([]));
    assert_eq!(switch(&app, "enable", "s").await, json!(["s__greet", "s__picture", "s__plain"]));
    for key in ["entity", "name"] {
        let answer = app.post("/api/v0/prompts/disable", json!({ key: "s__greet" })).await.expect(200);
        assert_eq!(answer.json(), json!(["s__greet"]));
    }
    let tools = app.get("/api/v0/tools").await.json();
    assert!(tools.as_array().unwrap().iter().all(|tool| tool["enabled"] == true), "tools are another matter");

    // Disabling the server hides all prompts and keeps their own flags.
    let hidden = app.post("/api/v0/servers/s/disable", json!({})).await.expect(200).json();
    assert_eq!(hidden["prompts_affected"], json!(["s__picture", "s__plain"]));
    assert_eq!(switch(&app, "enable", "s__greet").await, json!(["s__greet"]));
    assert_eq!(prompt(&app, "s__greet").await["enabled"], false);
    app.post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    assert_eq!(prompt(&app, "s__greet").await["enabled"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn switching_what_does_not_exist_is_refused() {
    let (app, _fake) = app_with(json!({})).await;
    for verb in ["enable", "disable"] {
        let path = format!("/api/v0/prompts/{verb}");
        for (query, body, status) in [
            ("", json!({}), 400),
            ("", json!({"entity": 1}), 400),
            ("", json!({"entity": ""}), 400),
            ("?entity=", json!({}), 400),
            ("", json!({"entity": "s", "colour": 1}), 400),
            ("?entity=gone", json!({}), 404),
            ("?entity=s__gone", json!({}), 404),
            ("?entity=s__echo", json!({}), 404),
            ("?entity=gone__greet", json!({}), 404),
        ] {
            app.post(&format!("{path}{query}"), body.clone()).await.expect(status).error();
        }
        app.send("POST", &path, &[], "").await.expect(400).error();
        app.get(&path).await.expect(405).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_follow_what_the_upstream_announces() {
    let app = TestApp::start().await;
    let fakes = app.register_each_kind(&json!({})).await.1;
    for fake in &fakes {
        fake.update(|behaviour| behaviour.merge(r#"{"prompts":[{"name":"fresh"}]}"#).unwrap());
        fake.notify_prompts_changed();
    }
    for server in ["http-legacy", "http-modern", "sse-legacy"] {
        let query = format!("?server={server}");
        eventually("the new prompt is listed", || async {
            names(&app, &query).await == [format!("{server}__fresh")]
        })
        .await;
    }
}
