//! Tests of reading files as the programs write them.

use serde_json::json;

use super::*;

fn variable(name: &str) -> Option<String> {
    (name == "TOKEN").then(|| "secret-token".to_owned())
}

fn servers(text: &str) -> Vec<ImportEntry> {
    parse(text, variable).unwrap().servers
}

fn input(entry: &ImportEntry) -> Value {
    match &entry.outcome {
        EntryOutcome::Ready(input) => Value::Object(input.clone().into_json()),
        EntryOutcome::Skip(reason) => panic!("{}: {reason}", entry.name),
    }
}

fn reason(entry: &ImportEntry) -> &str {
    match &entry.outcome {
        EntryOutcome::Ready(_) => panic!("{} is ready", entry.name),
        EntryOutcome::Skip(reason) => reason,
    }
}

#[test]
fn a_claude_desktop_file_is_read() {
    let text = r#"{"globalShortcut": "", "mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "server-filesystem", "/tmp"]},
        "GitHub (work)": {"command": "docker", "args": ["run"], "env": {"GITHUB_TOKEN": "${TOKEN}", "PORT": 1}}
    }}"#;
    let found = servers(text);
    assert_eq!(
        input(&found[1]),
        json!({"name": "filesystem", "transport": "stdio", "command": "npx",
            "args": ["-y", "server-filesystem", "/tmp"]})
    );
    let github = &found[0];
    assert_eq!(
        (github.name.as_str(), github.renamed_from.as_deref()),
        ("GitHub-work", Some("GitHub (work)"))
    );
    assert_eq!(github.env_keys, ["GITHUB_TOKEN", "PORT"]);
    assert_eq!(github.summary, "docker with 1 argument");
    assert_eq!(input(github)["env"], json!({"GITHUB_TOKEN": "secret-token", "PORT": "1"}));
}

#[test]
fn a_cursor_file_is_read() {
    let text = r#"{"mcpServers": {
        "linear": {"url": "https://user:pw@mcp.linear.app/sse?key=secret", "headers": {"X-Key": "a", "authorization": "b"}},
        "notion": {"url": "https://mcp.notion.com/mcp", "auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${env:TOKEN}", "scopes": ["r"]}},
        "off": {"type": "streamable-http", "url": "http://localhost:1/x", "disabled": true, "autoApprove": ["a"], "timeout": 60}
    }}"#;
    let found = servers(text);
    assert_eq!(
        (found[0].transport.as_str(), found[0].summary.as_str()),
        ("sse", "https://mcp.linear.app/sse")
    );
    assert_eq!(found[0].header_keys, ["X-Key"]);
    assert_eq!(input(&found[1])["oauth_client_secret"], "secret-token");
    assert_eq!(input(&found[1])["oauth_scopes"], json!(["r"]));
    assert_eq!(found[1].transport, "streamable_http");
    assert_eq!(
        (found[2].ignored.as_slice(), &input(&found[2])["enabled"]),
        (["autoApprove".to_owned(), "timeout".to_owned()].as_slice(), &json!(false))
    );
}

#[test]
fn a_vs_code_file_and_its_settings_are_read() {
    let file = "{\n  // of the workspace\n  \"inputs\": [{\"id\": \"key\", \"type\": \"promptString\"}],\n  \"servers\": {\n    \"a\": {\"type\": \"http\", \"url\": \"https://h/mcp\"},\n    \"b\": {\"type\": \"stdio\", \"command\": \"x\", \"env\": {\"K\": \"${input:key}\", \"GONE\": null}, \"envFile\": \".env\"},\n  },\n}";
    let found = servers(file);
    assert_eq!(
        input(&found[0]),
        json!({"name": "a", "transport": "streamable_http", "url": "https://h/mcp"})
    );
    assert!(reason(&found[1]).contains("\"key\""));
    assert_eq!(
        (found[1].env_keys.as_slice(), found[1].ignored.as_slice()),
        (["K".to_owned()].as_slice(), ["envFile".to_owned()].as_slice())
    );
    for settings in [
        r#"{"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "x"}}}}"#,
        r#"{"editor.fontSize": 12, "mcp.servers": {"a": {"command": "x"}}}"#,
        r#"{"a": {"command": "x"}}"#,
    ] {
        assert_eq!(input(&servers(settings)[0]), json!({"name": "a", "transport": "stdio", "command": "x"}));
    }
}

#[test]
fn our_own_files_and_those_of_mcpjungle_are_read_as_they_are() {
    let one = json!({"name": "a", "transport": "stdio", "command": "x", "disabled_tools": ["t"],
        "session_mode": "stateful", "env": {"A": "1"}});
    assert_eq!(input(&servers(&one.to_string())[0]), one);
    assert_eq!(input(&servers(&json!([one, one]).to_string())[0]), one);
    assert!(reason(&servers(&json!([one, one]).to_string())[1]).contains("another server"));
    let yaml = "name: a\ntransport: streamable_http\nurl: http://h/mcp\nbearer_token: ${TOKEN}\n";
    assert_eq!(input(&servers(yaml)[0])["bearer_token"], "secret-token");
    let group = r#"{"name": "g", "included_servers": ["a"], "description": "costs $${x}"}"#;
    let import = parse(group, variable).unwrap();
    let EntryOutcome::Ready(group) = &import.groups[0].outcome else { panic!("the group is ready") };
    assert_eq!((import.servers.len(), &group["description"]), (0, &json!("costs ${x}")));
    let both = json!({"servers": [one], "groups": [{"name": "g", "included_servers": []}]});
    let import = parse(&both.to_string(), variable).unwrap();
    assert!(
        matches!(&import.groups[0].outcome, EntryOutcome::Skip(reason) if reason.contains("included_tools"))
    );
}

#[test]
fn a_server_differs_only_in_what_is_said_about_it() {
    let current = json!({"name": "a", "transport": "stdio", "command": "x", "args": [], "env": {},
        "description": "", "session_mode": "stateless", "timeout_ms": 300_000, "max_concurrency": 0,
        "enabled": false, "disabled_tools": ["t"], "disabled_prompts": []});
    let differs = |text: &str| {
        let found = servers(text);
        let EntryOutcome::Ready(input) = &found[0].outcome else { panic!("{:?}", found[0]) };
        input.differs_from(current.as_object().unwrap())
    };
    assert!(!differs(r#"{"mcpServers": {"a": {"command": "x"}}}"#));
    assert!(!differs(&current.to_string()));
    assert!(differs(r#"{"mcpServers": {"a": {"command": "x", "args": ["-v"]}}}"#));
    assert!(differs(r#"{"mcpServers": {"a": {"command": "x", "disabled": false}}}"#));
}

#[test]
fn what_cannot_be_used_says_why() {
    let text = r#"{"mcpServers": {
        "???": {"command": "x"}, "a b": {"command": "x"}, "a-b": {"command": "x"}, "empty": {}, "list": [],
        "socket": {"type": "ws", "url": "wss://h"}, "typed": {"command": 1}, "unset": {"command": "${NOPE}"},
        "wrong": {"url": "h/mcp"}
    }}"#;
    let found = servers(text);
    let reasons: Vec<(&str, &str)> = found
        .iter()
        .filter(|entry| matches!(entry.outcome, EntryOutcome::Skip(_)))
        .map(|entry| (entry.name.as_str(), reason(entry)))
        .collect();
    let expected = [
        ("???", "name"),
        ("a-b", "another server"),
        ("empty", "neither"),
        ("list", "not an object"),
        ("socket", "ws"),
        ("typed", "command"),
        ("unset", "NOPE is not set"),
        ("wrong", "url"),
    ];
    assert_eq!(reasons.len(), expected.len(), "{reasons:?}");
    for ((name, reason), (expected_name, word)) in reasons.iter().zip(expected) {
        assert!(*name == expected_name && reason.contains(word), "{name}: {reason}");
    }
}

#[test]
fn a_text_without_servers_is_refused() {
    for text in ["", "42", "hello", "{}", "{\"a\": 1}", "{\"mcpServers\": 3}", "{\"mcpServers\"", "a: [1"] {
        assert!(parse(text, variable).is_err(), "{text}");
    }
    assert!(servers("{\"mcpServers\": {}}").is_empty());
}

#[test]
fn what_an_entry_says_about_itself_holds_no_value() {
    let text = r#"{"mcpServers": {
        "a": {"command": "x", "args": ["--key=SECRET"], "env": {"K": "SECRET"}},
        "b": {"url": "https://SECRET:SECRET@h/p?k=SECRET#SECRET", "headers": {"K": "SECRET", "bad name": "SECRET"}},
        "c": {"url": "${SECRET", "headers": {"K": "SECRET"}}
    }}"#;
    assert!(!format!("{:?}", parse(text, |_| Some("SECRET".into())).unwrap()).contains("SECRET"));
}
