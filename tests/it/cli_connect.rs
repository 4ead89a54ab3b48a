//! `toolgate connect` and `toolgate disconnect`, with files as the clients write them.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::{Behaviour, Fake, TestApp};

/// Client, path below the home directory, and a file as the client and its users write it.
const CLIENTS: [(&str, &str, &str); 7] = [
    (
        "claude-code",
        ".claude.json",
        "{\n  \"numStartups\": 34,\n  \"theme\": \"dark\",\n  \"projects\": {\n    \"/home/me/x\": {\n      \"allowedTools\": [],\n      \
         \"mcpServers\": {\n        \"toolgate\": { \"type\": \"stdio\", \"command\": \"other\" }\n      }\n    }\n  },\n  \
         \"mcpServers\": {\n    \"memory\": {\n      \"type\": \"stdio\",\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"m\"],\n      \
         \"env\": {}\n    }\n  },\n  \"cost\": 1.50\n}",
    ),
    (
        "claude-desktop",
        ".config/Claude/claude_desktop_config.json",
        "{\n    \"globalShortcut\": \"Ctrl+Space\",\n    \"mcpServers\": {\n        \"files\": {\n            \"command\": \"npx\",\n            \
         \"args\": [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/tmp\"]\n        }\n    }\n}\n",
    ),
    (
        "cursor",
        ".cursor/mcp.json",
        "{\n  // servers of all projects\n  \"mcpServers\": {\n    \"linear\": { \"url\": \"https://mcp.linear.app/mcp\", \"x\": 1e2 }, // work\n  },\n}\n",
    ),
    (
        "vscode",
        ".config/Code/User/mcp.json",
        "{\r\n\t\"inputs\": [{ \"id\": \"k\", \"type\": \"promptString\", \"password\": true }],\r\n\t\"servers\": {\r\n\t\t/* mine */\r\n\t\t\
         \"github\": {\r\n\t\t\t\"type\": \"http\",\r\n\t\t\t\"url\": \"https://api.githubcopilot.com/mcp/\"\r\n\t\t}\r\n\t}\r\n}\r\n",
    ),
    (
        "windsurf",
        ".codeium/windsurf/mcp_config.json",
        "{\n  \"mcpServers\": {\n    \"zapier\": {\n      \"serverUrl\": \"https://actions.zapier.com/mcp/sse\"\n    }\n  }\n}",
    ),
    (
        "codex",
        ".codex/config.toml",
        "# Codex\nmodel = \"gpt-5\" # fast\n\n[mcp_servers.docs]\ncommand = \"npx\"\nargs = [\"-y\", \"docs\"]\n\n[projects.\"/home/me/x\"]\ntrust_level = \"trusted\"\n",
    ),
    (
        "gemini",
        ".gemini/settings.json",
        "{\n  \"selectedAuthType\": \"gemini-api-key\", // key\n  \"theme\": \"Dracula\",\n  \"mcpServers\": {\n    \"git\": { \"command\": \"uvx\", \
         \"args\": [\"mcp-server-git\"] }\n  }\n}\n",
    ),
];

fn put(cli: &Cli, path: &str, text: &str) {
    let path = cli.home.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The files beside a file, without that file.
fn beside(cli: &Cli, path: &str) -> Vec<String> {
    let path = cli.home.path().join(path);
    let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().path()).filter(|other| *other != path && other.is_file());
    names.map(|other| other.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The value of the entry in the text of a JSON file.
fn entry(text: &str, section: &str) -> Value {
    model::import::read(text).unwrap()[section]["toolgate"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_gets_its_own_form_and_keeps_everything_else() {
    let app = TestApp::start().await;
    let url = format!("http://{}/mcp", app.address);
    for (client, path, original) in CLIENTS {
        let cli = Cli::new(&app.address);
        put(&cli, path, original);
        let ended = cli.run(&["connect", client, "--yes"]).await;
        assert_eq!(ended.code, Some(0), "{client}: {ended:?}");
        assert!(ended.stderr.contains(path) && ended.stderr.contains(" + "), "{client}: {ended:?}");
        let changed = cli.read(path);
        match client {
            "codex" => {
                let table = format!("\n[mcp_servers.toolgate]\nurl = \"{url}\"\n");
                assert_eq!(changed.replace(&table, ""), original, "{changed}");
            }
            "claude-desktop" => {
                let entry = entry(&changed, "mcpServers");
                assert_eq!(entry["command"], env!("CARGO_BIN_EXE_toolgate"));
                assert_eq!(entry["args"], json!(["stdio", "--registry", format!("http://{}", app.address)]));
            }
            "vscode" => assert_eq!(entry(&changed, "servers"), json!({"type": "http", "url": url})),
            "claude-code" => assert_eq!(entry(&changed, "mcpServers"), json!({"type": "http", "url": url})),
            "windsurf" => assert_eq!(entry(&changed, "mcpServers"), json!({"serverUrl": url})),
            "gemini" => assert_eq!(entry(&changed, "mcpServers"), json!({"httpUrl": url})),
            _ => assert_eq!(entry(&changed, "mcpServers"), json!({"url": url})),
        }
        let file = path.rsplit('/').next().unwrap();
        assert_eq!(beside(&cli, path), [format!("{file}.before-toolgate")], "{client}");
        let backup = format!("{path}.before-toolgate");
        assert_eq!(cli.read(&backup), original, "{client}");
        let again = cli.ok(&["connect", client, "--yes"]).await;
        assert!(again.contains("already"), "{client}: {again}");
        assert_eq!(cli.read(path), changed);
        cli.ok(&["disconnect", client, "--yes"]).await;
        assert_eq!(cli.read(path), original, "{client} is as before");
        assert!(cli.ok(&["disconnect", client]).await.contains("not connected"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_file_is_created_for_its_owner_only() {
    let app = TestApp::start().await;
    for (client, path, _) in CLIENTS {
        let cli = Cli::new(&app.address);
        cli.ok(&["connect", client, "--yes"]).await;
        let made = cli.home.path().join(path);
        assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{client}");
        assert_eq!(beside(&cli, path), Vec::<String>::new(), "there was nothing to keep");
        put(&cli, path, "");
        cli.ok(&["connect", client, "--yes"]).await;
        assert!(cli.read(path).contains("toolgate"), "an empty file of {client}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_nobody_changed_is_as_before_after_disconnecting() {
    let app = TestApp::start().await;
    for (client, path, _) in CLIENTS {
        let cli = Cli::new(&app.address);
        let file = cli.home.path().join(path);
        // Twice: the second time there is another entry to remove.
        for url in [&cli.registry, "http://localhost:1"] {
            cli.ok(&["connect", client, "--yes", "--registry", url]).await;
        }
        cli.ok(&["disconnect", client, "--yes"]).await;
        assert!(!file.exists(), "{client}: there was no file before");
        let texts: &[&str] = match client {
            "codex" => {
                &["", "# mine\n", "model = \"gpt\"\n", "[mcp_servers]\n", "[mcp_servers]\n\n[other]\na = 1\n"]
            }
            "vscode" => &["", "{}", "{\n  // mine\n}\n", "{\"inputs\": []}", "{\n\t\"servers\": {}\n}\n"],
            _ => &[
                "",
                "{}\n",
                "{\n  \"theme\": \"dark\" // or light\n}\n",
                "{\"a\": 1}",
                "{\n  \"mcpServers\": { }\n}\n",
            ],
        };
        for text in texts {
            put(&cli, path, text);
            cli.ok(&["connect", client, "--yes"]).await;
            assert_ne!(cli.read(path), *text);
            let copies = beside(&cli, path).len();
            cli.ok(&["disconnect", client, "--yes"]).await;
            assert_eq!((cli.read(path).as_str(), beside(&cli, path).len()), (*text, copies), "{client}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_after_connecting_is_kept_when_disconnecting() {
    let app = TestApp::start().await;
    let cli = Cli::new(&app.address);
    put(&cli, ".cursor/mcp.json", "{}\n");
    cli.ok(&["connect", "cursor", "--yes"]).await;
    let connected = cli.read(".cursor/mcp.json");
    put(&cli, ".cursor/mcp.json", &connected.replacen('{', "{\n  \"theme\": \"dark\",", 1));
    cli.ok(&["disconnect", "cursor", "--yes"]).await;
    let left = model::import::read(&cli.read(".cursor/mcp.json")).unwrap();
    assert_eq!(left, json!({"theme": "dark", "mcpServers": {}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_without_consent() {
    let app = TestApp::start().await;
    let cli = Cli::new(&app.address);
    let (client, path, original) = CLIENTS[2];
    put(&cli, path, original);
    let shown = cli.run(&["connect", client, "--dry-run"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stderr.contains("+     \"toolgate\": {"), "{shown:?}");
    assert!(!shown.stderr.contains("linear"), "only what changes is shown: {shown:?}");
    let refused = cli.run(&["connect", client]).await;
    assert_eq!(refused.code, Some(1), "there is no terminal to ask on");
    assert!(refused.complaint().contains("--yes"), "{refused:?}");
    assert_eq!((cli.read(path).as_str(), beside(&cli, path)), (original, vec![]));
    let done = cli.json(&["connect", client, "--yes"]).await;
    assert_eq!((&done["change"], &done["dry_run"]), (&json!("added"), &json!(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_file_is_refused_and_untouched() {
    let app = TestApp::start().await;
    for (client, path, _) in CLIENTS {
        for text in ["{ \"mcpServers\": { ", "[mcp_servers\n", "\"text\"", "= 1\n"] {
            let cli = Cli::new(&app.address);
            put(&cli, path, text);
            let complaint = cli.run(&["connect", client, "--yes"]).await;
            assert_eq!(complaint.code, Some(1), "{client}: {text}");
            assert!(complaint.complaint().contains("was not changed"), "{client}: {complaint:?}");
            assert_eq!((cli.read(path).as_str(), beside(&cli, path)), (text, vec![]));
            assert_eq!(cli.run(&["disconnect", client, "--yes"]).await.code, Some(1));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_that_name_is_shown_and_replaced_where_it_is() {
    let app = TestApp::start().await;
    let cli = Cli::new(&app.address);
    let old = "{\n  \"mcpServers\": {\n    \"toolgate\": { \"url\": \"http://old/mcp\", \"headers\": { \"Authorization\": \"Bearer planted\" } },\n    \"b\": {}\n  }\n}\n";
    put(&cli, ".cursor/mcp.json", old);
    let done = cli.run(&["connect", "cursor", "--yes"]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stderr.contains("-     \"toolgate\": { \"url\": \"http://old/mcp\""), "{done:?}");
    assert!(!done.stderr.contains("planted"), "{done:?}");
    let url = format!("http://{}/mcp", app.address);
    assert_eq!(entry(&cli.read(".cursor/mcp.json"), "mcpServers"), json!({"url": url}));
    // A second copy does not overwrite the first.
    cli.ok(&["disconnect", "cursor", "--yes"]).await;
    assert_eq!(cli.read(".cursor/mcp.json.before-toolgate"), old);
    assert_eq!(beside(&cli, ".cursor/mcp.json").len(), 2);
    cli.ok(&["connect", "cursor", "--yes", "--name", "mine"]).await;
    assert!(cli.read(".cursor/mcp.json").contains("\"mine\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_must_exist_and_a_project_file_can_be_named() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "dev", "included_servers": ["s"]})).await.expect(201);
    let cli = Cli::new(&app.address);
    let complaint = cli.fails(&["connect", "cursor", "--yes", "--group", "nothing"]).await;
    assert!(complaint.contains("nothing"), "{complaint}");
    cli.ok(&["connect", "cursor", "--yes", "--group", "dev", "--file", "project/.cursor/mcp.json"]).await;
    let url = format!("http://{}/v0/groups/dev/mcp", app.address);
    assert_eq!(entry(&cli.read("project/.cursor/mcp.json"), "mcpServers"), json!({"url": url}));
    cli.ok(&["connect", "claude-desktop", "--yes", "--group", "dev"]).await;
    let text = cli.read(".config/Claude/claude_desktop_config.json");
    let arguments = entry(&text, "mcpServers")["args"].clone();
    assert_eq!((&arguments[3], &arguments[4]), (&json!("--group"), &json!("dev")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_needs_a_token_gets_one_into_the_file_but_not_onto_the_screen() {
    let app = TestApp::start_enterprise().await;
    let token = app.create_client("agent", &["*"]).await;
    for (client, path, _) in CLIENTS {
        let cli = Cli::new(&app.address);
        let complaint = cli.fails(&["connect", client, "--yes"]).await;
        assert!(complaint.contains("create mcp-client"), "{complaint}");
        assert!(cli.fails(&["connect", client, "--yes", "--token", "wrong"]).await.contains("refuses"));
        let ended = cli.run_fed(&["connect", client, "--yes", "--token", "-"], &format!("{token}\n")).await;
        assert_eq!(ended.code, Some(0), "{client}: {ended:?}");
        assert!(!ended.stderr.contains(&token) && !ended.stdout.contains(&token), "{client}: {ended:?}");
        let text = cli.read(path);
        match client {
            "claude-desktop" => {
                assert_eq!(entry(&text, "mcpServers")["env"]["TOOLGATE_TOKEN"], token.as_str())
            }
            "codex" => {
                let headers = format!("http_headers = {{ Authorization = \"Bearer {token}\" }}");
                assert!(text.contains(&headers), "{text}");
            }
            _ => {
                let section = if client == "vscode" { "servers" } else { "mcpServers" };
                let headers = json!({"Authorization": format!("Bearer {token}")});
                assert_eq!(entry(&text, section)["headers"], headers, "{client}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_does_not_run_is_only_worth_a_warning() {
    let cli = Cli::new("127.0.0.1:1");
    let ended = cli.run(&["connect", "cursor", "--yes"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("Warning: cannot reach a gateway"), "{ended:?}");
    assert!(cli.read(".cursor/mcp.json").contains("http://127.0.0.1:1/mcp"));
}
