//! `POST /api/v0/tools/invoke`: the arguments that the tool gets, and the result that the caller gets.

use serde_json::json;

use crate::support::{Behaviour, Fake, Kinds, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn arguments_arrive_as_they_were_written_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let arguments = concat!(
        r#"{"zeta":98765432109876543210,"alpha":1.0,"exp":-1E+2,"tiny":1e-400,"minus":-0,"#,
        r#""text":"caf\u00e9 \/ \"q\" \\ \t\ud83d\ude00 plain é","nested":{"b":1,"a":[ 1,  2.50 ],"b":2},"#,
        r#""twice":1,"twice":2,"nothing":null,"":"empty key","\u006bey":"escaped key","_meta":{"progressToken":7},"#,
        r#""Name":"another","arguments":{"name":"kept"}}"#,
    );
    for server in &kinds.servers {
        let members = &arguments[1..];
        let body = format!(" \n{{ \"name\" : \"{server}__echo_args\" ,{members} \r\n");
        let result = app.invoke_raw(&body).await.expect(200).json();
        assert_eq!(result["content"][0]["text"], arguments, "{server}");
        let (first, rest) = members.split_at(members.find(",\"alpha\"").unwrap());
        let body = format!("{{{first},\"n\\u0061me\":\"{server}__echo_\\u0061rgs\"{rest}");
        let result = app.invoke_raw(&body).await.expect(200).json();
        assert_eq!(result["content"][0]["text"], arguments, "{server}, name in the middle and escaped");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_arguments_sends_an_empty_object() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    assert_eq!(app.call("s__echo_args", json!({})).await, "{}");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_unwrapped_only_for_a_tool_that_takes_a_name_and_no_arguments() {
    let app = TestApp::start().await;
    let tool = |name: &str, properties: serde_json::Value| json!({ "name": name, "inputSchema": { "type": "object", "properties": properties } });
    let tools = json!([
        tool("named", json!({ "name": {} })),
        tool("both", json!({ "name": {}, "arguments": {} })),
        tool("neither", json!({ "other": {} })),
        tool("no_properties", json!(null)),
        { "name": "odd_schema", "inputSchema": true },
    ]);
    let fake = Fake::start(Behaviour::of(json!({ "tools": tools }))).await;
    app.register_http("s", &fake).await;
    for (body, arrives) in [
        (r#"{"name":"s__named","arguments":{"name":"x", "n":1.0}}"#, r#"{"name":"x","n":1.0}"#),
        (r#"{"arguments":{"name":"x"},"name":"s__named"}"#, r#"{"name":"x"}"#),
        (r#"{"name":"s__named","arguments":{}}"#, "{}"),
        (
            r#"{"name":"s__named","arguments":{"name":"x"},"more":1}"#,
            r#"{"arguments":{"name":"x"},"more":1}"#,
        ),
        (r#"{"name":"s__named","arguments":{},"arguments":{}}"#, r#"{"arguments":{}}"#),
        (r#"{"name":"s__named","arguments":["name"]}"#, r#"{"arguments":["name"]}"#),
        (r#"{"name":"s__named","arguments":null}"#, r#"{"arguments":null}"#),
        (r#"{"name":"s__named","arguments":"x"}"#, r#"{"arguments":"x"}"#),
        (r#"{"name":"s__named","Arguments":{"name":"x"}}"#, r#"{"Arguments":{"name":"x"}}"#),
        (r#"{"name":"s__both","arguments":{"name":"x"}}"#, r#"{"arguments":{"name":"x"}}"#),
        (r#"{"name":"s__neither","arguments":{"name":"x"}}"#, r#"{"arguments":{"name":"x"}}"#),
        (r#"{"name":"s__no_properties","arguments":{"name":"x"}}"#, r#"{"arguments":{"name":"x"}}"#),
        (r#"{"name":"s__odd_schema","arguments":{"name":"x"}}"#, r#"{"arguments":{"name":"x"}}"#),
    ] {
        fake.forget_seen();
        app.invoke_raw(body).await.expect(200);
        let arrived = fake.seen_of("tools/call").remove(0).params["arguments"].clone();
        assert_eq!(arrived, serde_json::from_str::<serde_json::Value>(arrives).unwrap(), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_every_form_come_back_whole_over_every_kind_of_link() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let invoke =
            async |tool: &str| app.invoke(&format!("{server}__{tool}"), json!({})).await.expect(200).json();
        let text = app
            .invoke(&format!("{server}__echo"), json!({ "text": "hi \u{1f600}" }))
            .await
            .expect(200)
            .json();
        assert_eq!(
            text,
            json!({ "content": [{ "type": "text", "text": "hi \u{1f600}" }], "isError": false }),
            "{server}"
        );
        let image = invoke("image").await;
        assert_eq!(image["content"][0]["type"], "image", "{server}");
        assert_eq!(image["content"][0]["mimeType"], "image/png", "{server}");
        assert!(image["content"][0]["data"].as_str().unwrap().starts_with("iVBOR"), "{server}");
        let structured = invoke("structured").await;
        assert_eq!(structured["structuredContent"], json!({ "city": "Oslo", "degrees": 21.5 }), "{server}");
        assert_eq!(structured["_meta"]["example.com/k"], 1, "{server}");
        assert_eq!(structured["isError"], false, "{server}");
        assert_eq!(structured.as_object().unwrap().len(), 4, "{server}: {structured}");
        let failed = invoke("fail").await;
        assert_eq!(
            failed,
            json!({ "content": [{ "type": "text", "text": "it went wrong" }], "isError": true }),
            "{server}"
        );
        assert_eq!(app.call(&format!("{server}__garbage"), json!({})).await, "after the garbage", "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_result_arrives() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    for server in &kinds.servers {
        let said = app.call(&format!("{server}__huge"), json!({ "bytes": 1 << 20 })).await;
        assert_eq!(said.len(), 1 << 20, "{server}");
    }
    // The size limit for requests does not apply to results.
    let said = app.call("http-modern__huge", json!({ "bytes": 5 << 20 })).await;
    assert_eq!(said.len(), 5 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_stay_with_their_calls_when_many_are_under_way() {
    let app = TestApp::start().await;
    let kinds = Kinds::register(&app).await;
    let mut calls = Vec::new();
    for round in 0..20 {
        for server in &kinds.servers {
            let (tool, text) = (format!("{server}__echo"), format!("{server} {round}"));
            let app = &app;
            calls.push(async move { assert_eq!(app.call(&tool, json!({ "text": text })).await, text) });
        }
    }
    all_at_once(calls).await;
}

async fn all_at_once<F: Future<Output = ()>>(calls: Vec<F>) {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        calls.retain_mut(|call| call.as_mut().poll(context).is_pending());
        if calls.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_header_of_the_caller_goes_upstream() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        app.register_http(era, &fake).await;
        let headers = [
            ("authorization", "Bearer downstream-secret"),
            ("cookie", "downstream-secret=1"),
            ("x-downstream", "downstream-secret"),
            ("user-agent", "downstream-secret"),
            ("mcp-session-id", "downstream-secret"),
            ("mcp-param-x", "downstream-secret"),
        ];
        let body = json!({ "name": format!("{era}__headers") }).to_string();
        let answer = app.send("POST", "/api/v0/tools/invoke", &headers, body).await.expect(200);
        assert!(!answer.text().contains("downstream"), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_a_modern_tool_wants_in_headers_are_there() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "modern" }))).await;
    app.register_http("s", &fake).await;
    for region in ["eu", "d\u{fc}sseldorf", " padded "] {
        app.invoke("s__region", json!({ "region": region, "limit": 5 })).await.expect(200);
    }
    let sent = fake.seen_of("tools/call").pop().unwrap();
    assert_eq!(sent.headers["mcp-method"], "tools/call");
    assert_eq!(sent.headers["mcp-name"], "region");
    assert_eq!(sent.headers["mcp-param-limit"], "5");
    app.get("/api/v0/tool?name=s__bad_header").await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_tool_can_still_be_invoked() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tools/disable?entity=s", json!({})).await.expect(200);
    assert_eq!(app.call("s__echo", json!({ "text": "hi" })).await, "hi");
}
