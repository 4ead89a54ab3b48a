//! Messages between modern clients and servers of both eras arrive byte for byte. The gateway changes only ids, progress
//! tokens, names and the fields that only one era has.

use serde_json::{Value, json, value::RawValue};

use crate::support::modern::{CAPABILITIES_KEY, CLIENT_KEY, LEVEL_KEY, Post, VERSION, VERSION_KEY};
use crate::support::{Behaviour, Fake, ModernAgent, TestApp};

/// What typed models drop or change: vendor keys, order, integers beyond 64 bits, `1.0`, `1e3`, escapes, text outside
/// the basic plane written in both ways, and the names of protocol keys where they mean nothing.
const ODD: &str = concat!(
    r#"{"z-last":98765432109876543210,"a":1.0,"e":1e3,"E":-0.0E+2,"n":[1,1.00,-0,[[{}]]],"#,
    r#""s":"\u00e9\/\ud83d\ude00 😀 \u0000 é\b\u003c","":null,"id":7,"name":"x","resultType":"inner","#,
    r#""method":"m","ttlMs":"no","progressToken":5,"Deep":{"zz":true,"aa":{"requestState":"u","result":[]}}}"#,
);

const SERVERS: [&str; 7] = [
    "http-modern-json",
    "http-modern-sse",
    "stdio-modern",
    "http-legacy-json",
    "http-legacy-sse",
    "stdio-legacy",
    "sse-legacy",
];

/// A gateway with the same server over every transport, and a group with all of them.
struct Setup {
    app: TestApp,
    _fakes: Vec<Fake>,
}

impl Setup {
    async fn start() -> Self {
        let app = TestApp::start().await;
        let mut fakes = Vec::new();
        for era in ["modern", "legacy"] {
            for style in ["json", "sse"] {
                let mut behaviour = Behaviour::of(json!({"era": era, "answer": style}));
                behaviour.show_tools(&["message".into(), "verbatim".into()]);
                let raw = |text: String| RawValue::from_string(text).unwrap();
                let read =
                    format!(r#"{{"zz":{ODD},"contents":[{{"x":{ODD},"uri":"fake://odd","text":"\/"}}]}}"#);
                behaviour.results.insert("fake://item/odd".into(), raw(read));
                let rendered = format!(r#"{{"a":{ODD},"messages":[],"z":1e3}}"#);
                behaviour.results.insert("plain".into(), raw(rendered));
                let fake = Fake::start(behaviour.clone()).await;
                app.register_http(&format!("http-{era}-{style}"), &fake).await;
                if style == "json" {
                    app.register_stdio(&format!("stdio-{era}"), &behaviour).await;
                }
                if style == "json" && era == "legacy" {
                    app.register_sse("sse-legacy", &fake).await;
                }
                fakes.push(fake);
            }
        }
        let group = json!({"name": "all", "included_servers": SERVERS, "included_prompts": ["*"]});
        app.post("/api/v0/tool-groups", group).await.expect(201);
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

/// All messages that come back for a POST, unchanged; the response is the last.
async fn ask(agent: &ModernAgent, post: &Post) -> Vec<String> {
    let answer = agent.send(post).await;
    if answer.headers["content-type"] == "application/json" {
        return vec![answer.text()];
    }
    let mut scanner = wire::sse::Scanner::new(1 << 26);
    scanner.feed(&answer.body);
    let mut messages = Vec::new();
    while let Some(event) = scanner.next_event() {
        messages.push(String::from_utf8(event.unwrap().data.to_vec()).unwrap());
    }
    messages
}

/// A call with an unusual key order and vendor keys at every level; `marks` are the members of `_meta` that only modern
/// servers know.
fn odd_call(id: &str, name: &str, token: &str, marks: &[String; 4]) -> String {
    let [first, second, third, fourth] = marks;
    format!(
        concat!(
            r#"{{"x-envelope":{odd},"params":{{"zz":{odd},"arguments":{odd},"#,
            r#""_meta":{{{first}"vendor":{odd},{second}"progressToken":{token},"traceparent":"00-\u0061b-01",{third}"#,
            r#""example.com/k":98765432109876543210,"last":1.0{fourth}}},"name":"{name}","aa":1e3}},"#,
            r#""method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#
        ),
        odd = ODD,
        id = id,
        name = name,
        token = token,
        first = first,
        second = second,
        third = third,
        fourth = fourth,
    )
}

fn marks() -> [String; 4] {
    [
        format!(r#""{VERSION_KEY}":"{VERSION}","#),
        format!(r#""{CAPABILITIES_KEY}":{{"elicitation":{{"x":1.0}}}},"#),
        format!(r#""{CLIENT_KEY}":{{"name":"\u00e9","version":"1","x":{ODD}}},"#),
        format!(r#","{LEVEL_KEY}":"error""#),
    ]
}

#[tokio::test]
async fn a_call_arrives_as_it_was_written_with_what_its_server_knows() {
    let setup = Setup::start().await;
    for server in SERVERS {
        for (path, name) in Setup::places(server, "message") {
            let agent = ModernAgent::at(&setup.app, &path);
            let post = Post::of(odd_call(r#""a\u00e9\"""#, &name, "1e3", &marks()));
            let answers = ask(&agent, &post).await;
            let answer: Value = serde_json::from_str(answers.last().unwrap()).unwrap();
            let arrived =
                answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
            let message: Value = serde_json::from_str(arrived).unwrap();
            let number = message["id"].as_u64().expect("ids of a link are numbers").to_string();
            let known = if server.contains("modern") { marks() } else { Default::default() };
            assert_eq!(arrived, odd_call(&number, "message", &number, &known), "{server} on {path}");
            assert!(
                answers[0].contains(r#""id":"a\u00e9\"""#),
                "the id comes back as it was: {}",
                answers[0]
            );
        }
    }
}

#[tokio::test]
async fn marks_alone_leave_nothing_behind_at_a_legacy_server() {
    let setup = Setup::start().await;
    let agent = ModernAgent::at(&setup.app, "/v0/servers/http-legacy-json/mcp");
    let params = json!({"name": "message", "arguments": {}});
    let answer = agent.result("tools/call", params).await;
    let arrived: Value = serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(arrived["params"]["_meta"], json!({}));
}

/// Possible responses of a server; `$ID` stands for the id, `$TYPE` for the member that only modern clients expect.
fn odd_answers() -> [String; 4] {
    let result = format!(
        concat!(
            r#"{{$TYPE"zz":{odd},"isError":false,"content":[{{"x":{odd},"text":"\ud83d\ude00 😀 \/","type":"text","#,
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
async fn an_answer_comes_back_as_it_was_written_and_says_what_it_is() {
    let setup = Setup::start().await;
    let complete = r#""resultType":"complete","#;
    for server in SERVERS {
        for (path, name) in Setup::places(server, "verbatim") {
            let agent = ModernAgent::at(&setup.app, &path);
            for answer in odd_answers() {
                // As a legacy server sends it, as a modern one does, and as a future one might.
                for said in ["", complete, r#""resultType":"vendor/kind","#] {
                    let expected = match said {
                        "" => answer.replace("$TYPE", complete),
                        said => answer.replace("$TYPE", said),
                    };
                    let answer = answer.replace("$TYPE", said);
                    let params = json!({"name": name, "arguments": {"answer": answer}});
                    let call = agent.message(json!("my id"), "tools/call", params);
                    let expected = expected.replace("$ID", r#""my id""#);
                    let said = ask(&agent, &Post::of(call.to_string())).await;
                    assert_eq!(said, [expected], "{server} on {path}");
                }
            }
        }
    }
}

#[tokio::test]
async fn notices_during_a_call_arrive_as_they_were_written() {
    let setup = Setup::start().await;
    let progress = format!(
        r#"{{"x":{ODD},"params":{{"z":{ODD},"progressToken":$TOKEN,"progress":1.0,"message":"\ud83d\ude00","_meta":{{"v":{ODD}}}}},"method":"notifications/progress","jsonrpc":"2.0"}}"#
    );
    let log = format!(
        r#"{{"method":"notifications/message","params":{{"data":{ODD},"x":{ODD},"level":"error","progressToken":[]}},"jsonrpc":"2.0"}}"#
    );
    let answer = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[]}}"#;
    let arguments = json!({"before": [progress, log], "answer": answer});
    for server in SERVERS {
        for (path, name) in Setup::places(server, "verbatim") {
            let agent = ModernAgent::at(&setup.app, &path);
            let meta = json!({"progressToken": "tök", LEVEL_KEY: "debug"});
            let params = json!({"name": name, "arguments": arguments, "_meta": meta});
            let call = agent.message(json!(1), "tools/call", params).to_string();
            let said = ask(&agent, &Post::of(call)).await;
            let expected = [progress.replace("$TOKEN", r#""tök""#), log.clone(), answer.replace("$ID", "1")];
            assert_eq!(said, expected, "{server} on {path}");
        }
    }
}

#[tokio::test]
async fn readings_and_renders_keep_every_byte_of_what_they_bring() {
    let setup = Setup::start().await;
    for server in SERVERS {
        let agent = ModernAgent::at(&setup.app, &format!("/v0/servers/{server}/mcp"));
        for (method, params, parts) in [
            (
                "resources/read",
                json!({"uri": "fake://item/odd"}),
                [
                    format!(r#""contents":[{{"x":{ODD},"uri":"fake://odd","text":"\/"}}]"#),
                    format!(r#""zz":{ODD}"#),
                ],
            ),
            ("prompts/get", json!({"name": "plain"}), [format!(r#""a":{ODD}"#), r#""z":1e3"#.into()]),
        ] {
            let post = Post::of(agent.message(json!(1), method, params).to_string());
            let answer = ask(&agent, &post).await.remove(0);
            for part in parts {
                assert!(answer.contains(&part), "{server} {method}: {answer}");
            }
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["result"]["resultType"], "complete", "{server} {method}");
            assert_eq!(answer["result"].get("ttlMs").is_some(), method == "resources/read", "{server}");
        }
    }
}

#[tokio::test]
async fn a_message_of_several_lines_keeps_its_meaning_on_stdio_and_its_bytes_elsewhere() {
    let setup = Setup::start().await;
    for server in SERVERS {
        let call = |id: &str, name: &str, meta: &str| {
            format!(
                "{{\n  \"jsonrpc\": \"2.0\",\r\n\t\"id\": {id},\n  \"method\": \"tools/call\",\n  \"params\": {{\n \"name\": \"{name}\",\n \"_meta\" : {{{meta}}},\n \"arguments\": {{ \"a\\nb\": 1.0 }}\n }}\n}}"
            )
        };
        let marks = format!("\n \"{VERSION_KEY}\" : \"{VERSION}\" ,\n \"{CAPABILITIES_KEY}\" : {{ }}\n ");
        let agent = ModernAgent::at(&setup.app, "/mcp");
        let post = Post::of(call("1", &format!("{server}__message"), &marks));
        let answer: Value = serde_json::from_str(&ask(&agent, &post).await[0]).unwrap();
        let arrived = answer["result"]["content"][0]["text"].as_str().unwrap();
        let message: Value = serde_json::from_str(arrived).unwrap();
        if server.contains("legacy") {
            assert_eq!(message["params"]["_meta"], json!({}), "{server}");
            continue;
        }
        let mut expected = call(&message["id"].to_string(), "message", &marks);
        if server.starts_with("stdio") {
            expected = expected.replace(['\n', '\r'], " ");
        }
        assert_eq!(arrived, expected, "{server}");
    }
}
