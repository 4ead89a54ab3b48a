//! Files: servers and groups from JSON and YAML, import from other programs, and import of exports.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::app::stdio_input;
use crate::support::cli::Cli;
use crate::support::{Behaviour, Fake, TestApp};

async fn ready() -> (TestApp, Fake, Cli) {
    let (app, fake) = (TestApp::start().await, Fake::start(Behaviour::default()).await);
    let cli = Cli::new(&app.address);
    (app, fake, cli)
}

/// Every file in a folder, recursively, with its content.
fn contents(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for part in ["servers", "groups"] {
        for entry in std::fs::read_dir(folder.join(part)).unwrap().flatten() {
            let name = format!("{part}/{}", entry.file_name().to_string_lossy());
            found.insert(name, std::fs::read_to_string(entry.path()).unwrap());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_may_be_json_or_yaml_and_use_variables() {
    let (_app, fake, cli) = ready().await;
    let url = fake.url();
    cli.write("a.json", &format!("{{\n  // ours\n  \"name\": \"a\", \"transport\": \"${{KIND}}\", \"url\": \"{url}\",\n  \"description\": \"$${{literal}} and $KIND\",\n}}"));
    cli.write(
        "b.yaml",
        &format!("name: b\ntransport: streamable_http\nurl: {url}\nheaders:\n  X-Key: pre-${{KEY}}-post\n"),
    );
    let variables = [("KIND", "streamable_http"), ("KEY", "k")];
    for file in ["a.json", "b.yaml"] {
        let ended = cli.run_with(&["register", "--conf", file], &variables).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let piped = cli
        .run_fed(&["register", "-c", "-"], &format!("name: c\ntransport: sse\nurl: {}\n", fake.sse_url()))
        .await;
    assert_eq!(piped.code, Some(0), "{piped:?}");
    assert_eq!(cli.json(&["get", "server", "a"]).await["description"], "${literal} and $KIND");
    let headers = cli.ok(&["invoke", "b__headers"]).await;
    assert!(headers.contains("pre-k-post"), "{headers}");
    let sentence = cli.fails(&["register", "--conf", "b.yaml"]).await;
    assert!(sentence.contains("KEY is not set") && sentence.contains("b.yaml"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_file_is_named_and_changes_nothing() {
    let (_app, _fake, cli) = ready().await;
    cli.write("list.json", "[1]");
    cli.write("broken.json", "{\"name\": ");
    cli.write("broken.yaml", "name: [a\n");
    cli.write("unknown.json", r#"{"name": "a", "transport": "sse", "url": "http://h/", "colour": "red"}"#);
    cli.write("client.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    for (file, word) in [
        ("list.json", "list.json"),
        ("broken.json", "broken.json"),
        ("broken.yaml", "broken.yaml"),
        ("missing.json", "missing.json"),
        ("unknown.json", "colour"),
        ("client.json", "toolgate import"),
    ] {
        let sentence = cli.fails(&["register", "--conf", file]).await;
        assert!(sentence.contains(word), "{file}: {sentence}");
    }
    assert_eq!(cli.json(&["list", "servers"]).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_file_other_flags_are_ignored_with_a_warning() {
    let (_app, fake, cli) = ready().await;
    cli.write("a.json", &json!({"name": "a", "transport": "streamable_http", "url": fake.url()}).to_string());
    let ended = cli.run(&["register", "--conf", "a.json", "--name", "b", "--force"]).await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("ignored"), "{ended:?}");
    assert_eq!(cli.json(&["list", "servers"]).await[0]["name"], "a");
    cli.ok(&["register", "--conf", "a.json", "--force"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_come_from_files_too() {
    let (app, fake, cli) = ready().await;
    app.register_http("docs", &fake).await;
    cli.write("g.json", r#"{"name": "g", "included_servers": ["docs"], "excluded_tools": ["docs__echo"]}"#);
    cli.ok(&["create", "group", "-c", "g.json"]).await;
    cli.write("g.yaml", "name: g\ndescription: smaller\nincluded_tools:\n  - docs__add\n");
    let changed = cli.json(&["update", "group", "--conf", "g.yaml"]).await;
    assert_eq!(changed["old"]["included_servers"], json!(["docs"]));
    assert_eq!(
        changed["new"],
        json!({"name": "g", "description": "smaller", "included_tools": ["docs__add"],
        "included_servers": [], "excluded_tools": []}),
        "a file replaces everything"
    );
    cli.ok(&["update", "group", "g", "--excluded-tools", "docs__image"]).await;
    let group = cli.json(&["get", "group", "g"]).await;
    assert_eq!(
        (&group["included_tools"], &group["excluded_tools"]),
        (&json!(["docs__add"]), &json!(["docs__image"]))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_taken_over_from_another_program() {
    let (_app, fake, cli) = ready().await;
    let process = stdio_input("x", &Behaviour::default());
    let file = json!({"mcpServers": {
        "My Files": {"command": process["command"], "args": process["args"], "env": {"KEY": "secret-value"}},
        "web": {"url": fake.url(), "headers": {"X-Key": "secret-value"}, "autoApprove": []},
        "gone": {"command": "${NOT_SET}"},
    }});
    cli.write("mcp.json", &file.to_string());
    let planned = cli.run(&["import", "mcp.json", "--dry-run"]).await;
    assert_eq!(planned.code, Some(1), "one cannot be used: {planned:?}");
    assert!(!planned.stdout.contains("secret-value"), "{planned:?}");
    for words in [["My-Files", "add"], ["web", "add"], ["gone", "skip"]] {
        let row = planned.stdout.lines().find(|line| line.starts_with(words[0])).unwrap();
        assert!(row.contains(words[1]), "{row}");
    }
    assert_eq!(cli.json(&["list", "servers"]).await, json!([]), "nothing was done");
    let asked = cli.fails(&["import", "mcp.json"]).await;
    assert!(asked.contains("--yes"), "{asked}");
    assert_eq!(cli.json(&["list", "servers"]).await, json!([]), "nobody said yes");
    let done = cli.run(&["import", "mcp.json", "--yes"]).await;
    assert!(done.stdout.contains("added") && done.stderr.contains("1 of 3"), "{done:?}");
    assert_eq!(cli.ok(&["invoke", "My-Files__env", "name=KEY"]).await, "secret-value\n");
    let again = cli.run(&["import", "mcp.json", "--dry-run", "--output", "json"]).await;
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    let actions: Vec<&str> =
        again.as_array().unwrap().iter().map(|item| item["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["skip", "skip", "skip"], "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_changes_what_differs_and_keeps_the_flags() {
    let (app, fake, cli) = ready().await;
    app.register_http("web", &fake).await;
    cli.ok(&["disable", "tool", "web__echo"]).await;
    let text =
        json!({"servers": {"web": {"type": "http", "url": fake.url(), "description": "now described"}}});
    let done = cli.run_fed(&["import", "-", "--yes"], &text.to_string()).await;
    assert!(done.code == Some(0) && done.stdout.contains("changed"), "{done:?}");
    assert_eq!(cli.json(&["get", "server", "web"]).await["description"], "now described");
    assert_eq!(cli.json(&["usage", "web__echo"]).await["enabled"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_does_not_stop_the_others() {
    let (_app, fake, cli) = ready().await;
    let file = json!({"mcpServers": {"bad": {"url": "http://127.0.0.1:1/mcp"}, "good": {"url": fake.url()}}});
    cli.write("mcp.json", &file.to_string());
    let done = cli.run(&["import", "mcp.json", "--yes", "--output", "json"]).await;
    assert_eq!(done.code, Some(1));
    let items: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&items[0]["done"], &items[1]["done"]), (&json!(false), &json!(true)), "{items}");
    assert!(items[0]["error"].as_str().unwrap().contains("127.0.0.1:1"), "{items}");
    cli.write("other.json", "{\"nothing\": 1}");
    let sentence = cli.fails(&["import", "mcp.json", "other.json", "--yes"]).await;
    assert!(sentence.contains("other.json"), "an unreadable file stops before anything is done: {sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_imported_elsewhere_exports_the_same() {
    let (app, fake, cli) = ready().await;
    let mut process = stdio_input("files", &Behaviour::default());
    process["env"] = json!({"API_KEY": "secret-env ${x}", "EMPTY": ""});
    process["description"] = json!("costs ${5} $${6}");
    process["disabled_prompts"] = json!(["greet"]);
    process["placement"] = json!("one");
    app.register(process).await;
    let web = json!({"name": "web", "transport": "streamable_http", "url": format!("{}?key=secret-query", fake.url()),
        "bearer_token": "secret-bearer", "headers": {"X-Key": "secret-header"}, "timeout_ms": 5000, "max_concurrency": 3,
        "session_mode": "stateful", "rate_limit": {"calls_per_minute": 600, "burst": 60},
        "tool_limits": {"e*": {"calls_per_minute": 500}}});
    app.register(web).await;
    cli.ok(&["disable", "tool", "web__echo"]).await;
    cli.ok(&[
        "create",
        "group",
        "g",
        "--included-servers",
        "web",
        "--included-tools",
        "files__add",
        "--description",
        "a ${group}",
        "--included-prompts",
        "*",
    ])
    .await;
    cli.ok(&["disable", "server", "files"]).await;

    let exported = cli.run(&["export", "--dir", "out"]).await;
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let files = contents(&cli.home.path().join("out"));
    assert_eq!(files.keys().collect::<Vec<_>>(), ["groups/g.json", "servers/files.json", "servers/web.json"]);
    assert!(!format!("{files:?}{exported:?}").contains("secret-"), "{files:?}");
    for name in ["FILES_API_KEY", "WEB_URL", "WEB_BEARER_TOKEN", "WEB_X_KEY"] {
        assert!(exported.stderr.contains(name), "{name}: {exported:?}");
    }
    cli.ok(&["export", "-d", "full", "--with-secrets"]).await;
    let full = contents(&cli.home.path().join("full"));
    assert!(full["servers/web.json"].contains("secret-bearer"));

    let elsewhere = TestApp::start().await;
    let there = Cli::new(&elsewhere.address);
    let out = cli.home.path().join("out").display().to_string();
    let url = format!("{}?key=secret-query", fake.url());
    let variables = [
        ("FILES_API_KEY", "secret-env ${x}"),
        ("WEB_URL", url.as_str()),
        ("WEB_BEARER_TOKEN", "secret-bearer"),
        ("WEB_X_KEY", "secret-header"),
    ];
    let missing = there.run(&["import", &out, "--yes"]).await;
    assert!(missing.code == Some(1) && missing.stdout.contains("is not set"), "{missing:?}");
    let imported = there.run_with(&["import", &out, "--yes"], &variables).await;
    assert_eq!(imported.code, Some(0), "{imported:?}");
    there.ok(&["export", "--dir", "out"]).await;
    assert_eq!(contents(&there.home.path().join("out")), files);
    there.ok(&["export", "--dir", "full", "--with-secrets"]).await;
    assert_eq!(contents(&there.home.path().join("full")), full);

    let third = TestApp::start().await;
    let last = Cli::new(&third.address);
    last.ok(&["import", &cli.home.path().join("full").display().to_string(), "--yes"]).await;
    last.ok(&["export", "-d", "full", "--with-secrets"]).await;
    assert_eq!(contents(&last.home.path().join("full")), full, "with secrets no variable is needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_never_overwrites_anything() {
    let (app, fake, cli) = ready().await;
    app.register_http("web", &fake).await;
    cli.ok(&["export"]).await;
    assert!(cli.read(".toolgate/servers/web.json").contains("\"web\""));
    assert!(cli.fails(&["export"]).await.contains("not empty"));
    assert!(cli.fails(&["export", "--dir", ".toolgate/servers/web.json"]).await.contains("web.json"));
}
