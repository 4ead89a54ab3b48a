//! Text of servers cannot steer the terminal of the person who lists, reads or calls something.

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::process::Ended;
use crate::support::{Behaviour, Fake, TestApp};

/// An escape sequence, a bell, a carriage return, the C1 form of an escape sequence, DEL, and marks of direction.
const EVIL: &str = "x\u{1b}[31m\u{7}\r\u{9b}2J\u{7f}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}y";

fn steers(next: char) -> bool {
    let is_mark = matches!(
        next,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_mark || next.is_control() && !matches!(next, '\n' | '\t')
}

#[track_caller]
fn check(arguments: &[&str], ended: &Ended) {
    for said in [&ended.stdout, &ended.stderr] {
        assert!(!said.contains(steers), "{arguments:?}: {said:?}");
    }
    let all = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        all.contains("\\u{202e}") || all.contains("\\u202e"),
        "{arguments:?} shows nothing of it: {all:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_servers_say_is_escaped_wherever_it_is_printed() {
    let name = format!("n{EVIL}");
    let schema = json!({
        "type": "object",
        "properties": {EVIL: {"type": "string", "description": EVIL, "default": EVIL, "enum": [EVIL]}},
        "required": [EVIL]
    });
    let text = json!({"contents": [{"uri": "mem://evil", "text": EVIL}]});
    let message = json!({"role": "user", "content": {"type": "text", "text": EVIL}});
    let prompt = json!({"description": EVIL, "messages": [message]});
    let behaviour = Behaviour::of(json!({
        "era": "legacy",
        "tools": [
            {"name": name, "title": EVIL, "description": EVIL, "inputSchema": schema},
            {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
        ],
        "prompts": [{"name": "evil", "description": EVIL, "arguments": [{"name": EVIL, "description": EVIL}]}],
        "resources": [{"uri": "mem://evil", "name": EVIL, "description": EVIL, "mimeType": EVIL}],
        "results": {"evil": prompt, "mem://evil": text},
        "instructions": EVIL,
        "server_info": {"name": EVIL, "version": EVIL}
    }));
    let app = TestApp::start().await;
    let fake = Fake::start(behaviour).await;
    app.register_http("s", &fake).await;
    let cli = Cli::new(&app.address);
    let (tool, said) = (format!("s__{name}"), format!("text={EVIL}"));
    let group = ["create", "group", "g", "--included-tools", &tool];
    cli.ok(&group).await;
    for arguments in [
        &["list", "tools"][..],
        &["usage", &tool],
        &["invoke", "s__echo", &said],
        &["list", "prompts"],
        &["get", "prompt", "s__evil"],
        &["list", "resources"],
        &["get", "resource", "mem://evil"],
        &["get", "resource", "--read", "mem://evil"],
        &["get", "server", "s"],
        &["get", "group", "g"],
        &["disable", "tool", &tool],
        &["enable", "tool", &tool],
    ] {
        check(arguments, &cli.run(arguments).await);
        let arguments = [arguments, &["--output", "json"]].concat();
        let ended = cli.run(&arguments).await;
        check(&arguments, &ended);
        serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    }
    let echoed = cli.json(&["invoke", "s__echo", &said]).await;
    assert_eq!(echoed["content"][0]["text"], EVIL, "the JSON still means the same");
    let error = json!({"code": -32000, "message": EVIL});
    fake.update(|behaviour| drop(behaviour.fail.insert("tools/call".into(), error)));
    for format in ["table", "json"] {
        let arguments = ["invoke", "s__echo", "text=x", "--output", format];
        let ended = cli.run(&arguments).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        check(&arguments, &ended);
    }
}
