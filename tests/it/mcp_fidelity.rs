//! Messages arrive byte for byte, in both directions and over every transport; the gateway changes only ids, progress
//! tokens and names.

use serde_json::{Value, json, value::RawValue};

use crate::support::agent::{Agent, SseAgent, text_of};
use crate::support::{Behaviour, Fake, TestApp};

/// What typed models drop or change: vendor keys, order, integers beyond 64 bits, `1.0`, `1e3`, escapes, text outside
/// the basic plane written in both ways, and the names of protocol keys where they mean nothing.
const ODD: &str = concat!(
    r#"{"z-last":98765432109876543210,"a":1.0,"e":1e3,"E":-0.0E+2,"n":[1,1.00,-0,[[{}]]],"#,
    r#""s":"\u00e9\/\ud83d\ude00 😀 \u0000 é\b\u003c","":null,"id":7,"name":"x","jsonrpc":"1.0","#,
    r#""method":"m","isError":"no","progressToken":5,"Deep":{"zz":true,"aa":{"uri":"u","result":[]}}}"#,
);

/// Two tools, one that returns its arguments and one that sends a given text, with unusual definitions.
fn odd_tools() -> Vec<(String, String)> {
    let definition = |name: &str| {
        format!(
            concat!(
                r#"{{"x-first":{odd},"title":"T \u00e9","name":"{name}","inputSchema":{{"x-vendor":{odd},"#,
                r#""type":"object","properties":{{"zeta":{{"type":"integer","maximum":98765432109876543210}},"#,
                r#""name":{{"type":"string","default":"\ud83d\ude00"}}}}}},"annotations":{{"vendor":{odd}}},"#,
                r#""execution":{{"taskSupport":"forbidden","x":1.0}},"_meta":{{"example.com/odd":{odd}}},"x":{odd}}}"#
            ),
            odd = ODD,
            name = name
        )
    };
    ["message", "verbatim"].map(|name| (name.to_owned(), definition(name))).into()
}

/// A gateway with the same server over every transport, and a group with all of them.
struct Setup {
    app: TestApp,
    _fakes: Vec<Fake>,
}

const SERVERS: [&str; 4] = ["stdio", "http-json", "http-sse", "sse"];

impl Setup {
    async fn start() -> Self {
        let raw = |text: String| RawValue::from_string(text).unwrap();
        let app = TestApp::start().await;
        let mut fakes = Vec::new();
        for style in ["json", "sse"] {
            let mut behaviour = Behaviour::of(json!({"era": "legacy", "answer": style}));
            behaviour.tools = Some(odd_tools().into_iter().map(|(_, definition)| raw(definition)).collect());
            let prompt = format!(r#"{{"z":{ODD},"name":"odd","arguments":[{{"x":{ODD},"name":"n"}}]}}"#);
            behaviour.prompts = Some(vec![raw(prompt)]);
            let fake = Fake::start(behaviour.clone()).await;
            app.register_http(&format!("http-{style}"), &fake).await;
            if style == "json" {
                app.register_sse("sse", &fake).await;
                app.register_stdio("stdio", &behaviour).await;
            }
            fakes.push(fake);
        }
        app.post("/api/v0/tool-groups", json!({"name": "all", "included_servers": SERVERS}))
            .await
            .expect(201);
        Self { app, _fakes: fakes }
    }

    /// Every endpoint, with the name of `server`'s tool there.
    fn places(server: &str, item: &str) -> [(String, String); 3] {
        [
            ("/mcp".into(), format!("{server}__{item}")),
            ("/v0/groups/all/mcp".into(), format!("{server}__{item}")),
            (format!("/v0/servers/{server}/mcp"), item.into()),
        ]
    }
}

/// A call with an unusual key order and vendor keys at every level.
fn odd_call(id: &str, name: &str, token: &str) -> String {
    format!(
        concat!(
            r#"{{"x-envelope":{odd},"params":{{"zz":{odd},"arguments":{odd},"#,
            r#""_meta":{{"vendor":{odd},"progressToken":{token},"last":1.0}},"name":"{name}","aa":1e3}},"#,
            r#""method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#
        ),
        odd = ODD,
        id = id,
        name = name,
        token = token
    )
}

#[tokio::test]
async fn a_call_arrives_as_it_was_written_but_for_id_name_and_token() {
    let setup = Setup::start().await;
    for server in SERVERS {
        for (path, name) in Setup::places(server, "message") {
            let agent = Agent::open(&setup.app, &path, json!({})).await;
            let answers = agent.ask(&odd_call(r#""a\u00e9\"""#, &name, "1e3")).await;
            let arrived = text_of(answers.last().unwrap());
            let message: Value = serde_json::from_str(&arrived).unwrap();
            let number = message["id"].as_u64().expect("ids of a link are numbers").to_string();
            assert_eq!(arrived, odd_call(&number, "message", &number), "{server} on {path}");
            assert!(
                answers[0].contains(r#""id":"a\u00e9\"""#),
                "the id comes back as it was: {}",
                answers[0]
            );
        }
    }
}

/// A response as an upstream writes it; `$ID` stands for the id.
fn odd_answers() -> [String; 4] {
    let result = format!(
        concat!(
            r#"{{"zz":{odd},"isError":false,"content":[{{"x":{odd},"text":"\ud83d\ude00 😀 \/","type":"text","#,
            r#""annotations":{{"v":{odd}}},"_meta":{{"v":{odd}}}}},{{"type":"vendor/kind","b":1e3,"a":{odd}}}],"#,
            r#""structuredContent":{odd},"_meta":{{"example.com/k":{odd},"progressToken":1}}}}"#
        ),
        odd = ODD
    );
    [
        format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{result}}}"#),
        // Some SDKs write the id last.
        format!(r#"{{"result":{result},"jsonrpc":"2.0","id":$ID}}"#),
        format!(
            r#"{{ "x-before" : {ODD}, "result": {result} , "id": $ID,"jsonrpc":"2.0", "x-after":{ODD} }}"#
        ),
        format!(
            r#"{{"error":{{"z":{ODD},"data":{ODD},"message":"\ud83d\ude00","code":-32050}},"id":$ID,"jsonrpc":"2.0"}}"#
        ),
    ]
}

#[tokio::test]
async fn an_answer_comes_back_as_it_was_written_but_for_its_id() {
    let setup = Setup::start().await;
    for server in SERVERS {
        for (path, name) in Setup::places(server, "verbatim") {
            let agent = Agent::open(&setup.app, &path, json!({})).await;
            for answer in odd_answers() {
                let params = json!({"name": name, "arguments": {"answer": answer}});
                let call = json!({"jsonrpc": "2.0", "id": "my id", "method": "tools/call", "params": params});
                let answers = agent.ask(&call.to_string()).await;
                assert_eq!(answers, [answer.replace("$ID", r#""my id""#)], "{server} on {path}");
            }
        }
    }
}

#[tokio::test]
async fn notices_and_questions_during_a_call_arrive_as_they_were_written() {
    let setup = Setup::start().await;
    let progress = format!(
        r#"{{"x":{ODD},"params":{{"z":{ODD},"progressToken":$TOKEN,"progress":1.0,"message":"\ud83d\ude00","_meta":{{"v":{ODD}}}}},"method":"notifications/progress","jsonrpc":"2.0"}}"#
    );
    let log = format!(
        r#"{{"method":"notifications/message","params":{{"data":{ODD},"x":{ODD},"level":"error","progressToken":[]}},"jsonrpc":"2.0"}}"#
    );
    let question = format!(
        r#"{{"params":{{"requestedSchema":{{"x":{ODD},"type":"object","properties":{{}}}},"message":"m","z":{ODD}}},"id":"q-\u00e9","method":"elicitation/create","jsonrpc":"2.0"}}"#
    );
    let answer = r#"{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}"#;
    let arguments = json!({"before": [progress, log, question], "answer": answer});
    for server in SERVERS {
        for (path, name) in Setup::places(server, "verbatim") {
            let agent = Agent::open(&setup.app, &path, json!({"elicitation": {}})).await;
            let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "tök"}});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let said = agent.ask(&call.to_string()).await;
            assert_eq!(said.len(), 4, "{server} on {path}: {said:?}");
            assert_eq!(said[0], progress.replace("$TOKEN", r#""tök""#), "{server} on {path}");
            assert_eq!(said[1], log, "{server} on {path}");
            let asked: Value = serde_json::from_str(&said[2]).unwrap();
            assert_eq!(
                said[2],
                question.replace(r#""q-\u00e9""#, &asked["id"].to_string()),
                "{server} on {path}"
            );
            assert_eq!(said[3], answer.replace("$ID", "1"), "{server} on {path}");
        }
    }
}

#[tokio::test]
async fn definitions_in_lists_are_as_the_server_wrote_them_but_for_their_names() {
    let setup = Setup::start().await;
    for server in SERVERS {
        for (path, _) in Setup::places(server, "") {
            let agent = Agent::open(&setup.app, &path, json!({})).await;
            let listed = agent.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await.remove(0);
            for (name, definition) in odd_tools() {
                let shown =
                    if path.contains("/servers/") { name.clone() } else { format!("{server}__{name}") };
                let own = format!(r#""title":"T \u00e9","name":"{name}""#);
                let expected = definition.replace(&own, &own.replace(&name, &shown));
                assert!(listed.contains(&expected), "{server} on {path}: {listed}");
            }
            if !path.contains("/groups/") {
                let prompts =
                    agent.ask(r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#).await.remove(0);
                let shown = if path.contains("/servers/") { "odd".into() } else { format!("{server}__odd") };
                let expected =
                    format!(r#"{{"z":{ODD},"name":"{shown}","arguments":[{{"x":{ODD},"name":"n"}}]}}"#);
                assert!(prompts.contains(&expected), "{server} on {path}: {prompts}");
            }
        }
    }
}

#[tokio::test]
async fn clients_of_http_and_sse_get_the_same_bytes() {
    let setup = Setup::start().await;
    for server in SERVERS {
        for path in ["/sse", "/v0/groups/all/sse"] {
            let mut agent = SseAgent::open(&setup.app, path, json!({})).await;
            let answer = agent
                .ask(&odd_call("98765432109876543210", &format!("{server}__message"), r#""t""#))
                .await
                .remove(0);
            assert!(answer.contains(r#""id":98765432109876543210,"#), "{answer}");
            let arrived = text_of(&answer);
            let message: Value = serde_json::from_str(&arrived).unwrap();
            let number = message["id"].to_string();
            assert_eq!(arrived, odd_call(&number, "message", &number), "{server} on {path}");
            for answer in odd_answers() {
                let params = json!({"name": format!("{server}__verbatim"), "arguments": {"answer": answer}});
                let call = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params});
                assert_eq!(
                    agent.ask(&call.to_string()).await,
                    [answer.replace("$ID", "3")],
                    "{server} on {path}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_message_of_several_lines_keeps_its_meaning_on_stdio_and_its_bytes_elsewhere() {
    let setup = Setup::start().await;
    for server in SERVERS {
        let call = |id: &str, name: &str| {
            format!(
                "{{\n  \"jsonrpc\": \"2.0\",\r\n\t\"id\": {id},\n  \"method\": \"tools/call\",\n  \"params\": {{\n \"name\": \"{name}\",\n \"arguments\": {{ \"a\\nb\": 1.0 }}\n }}\n}}"
            )
        };
        let agent = Agent::open(&setup.app, "/mcp", json!({})).await;
        let arrived = text_of(&agent.ask(&call("1", &format!("{server}__message"))).await[0]);
        let message: Value = serde_json::from_str(&arrived).unwrap();
        let mut expected = call(&message["id"].to_string(), "message");
        if server == "stdio" {
            expected = expected.replace(['\n', '\r'], " ");
        }
        assert_eq!(arrived, expected, "{server}");
    }
}
