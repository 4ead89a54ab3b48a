//! Servers, groups, prompts and resources from a terminal, against a gateway in development mode.

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::{Behaviour, Fake, TestApp, snapshot, stdio_command};

/// A gateway without servers, a server, and a command line for the gateway.
async fn ready() -> (TestApp, Fake, Cli) {
    let app = TestApp::start().await;
    let behaviour = json!({"tools": [
        {"name": "search", "title": "Search", "description": "Finds things.\nSecond line.", "inputSchema": {
            "type": "object", "required": ["query"], "properties": {
                "query": {"type": "string", "description": "What to look for"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                "order": {"type": "string", "enum": ["new", "old"]},
                "where": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}}},
        {"name": "wipe", "description": "Removes everything that was ever stored, without asking again and without a way back",
            "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": true}}]});
    let fake = Fake::start(Behaviour::of(behaviour)).await;
    let cli = Cli::new(&app.address);
    (app, fake, cli)
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_cards_look_as_they_should() {
    let (app, fake, cli) = ready().await;
    let mut page = String::new();
    let (url, upstream) = (fake.url(), fake.url().replace("http://", "").replace("/mcp", ""));
    let input = json!({"name": "time", "transport": "stdio", "command": "toolgate-no-such-program"});
    app.post("/api/v0/servers", input).await.expect(500);
    for arguments in [
        &["list", "servers"][..],
        &["list", "tools"],
        &["list", "groups"],
        &["list", "prompts"],
        &["list", "resources"],
        &["register", "--name", "docs", "--url", &url, "--description", "Finds documents"],
        &["list", "servers"],
        &["list", "tools"],
        &["list", "prompts"],
        &["list", "resources"],
        &["list", "resources", "--templates"],
        &["usage", "docs__search"],
        &["usage", "docs__wipe"],
        &["get", "server", "docs"],
        &["create", "group", "dev", "--included-servers", "docs", "--excluded-tools", "docs__wipe"],
        &["update", "group", "dev", "--description", "For work", "--excluded-tools", ""],
        &["list", "groups"],
        &["get", "group", "dev"],
        &["get", "resource", "fake://text"],
        &["get", "prompt", "docs__greet", "--arg", "who=you"],
        &["disable", "tool", "docs__wipe"],
        &["disable", "prompt", "docs"],
        &["disable", "server", "docs"],
        &["list", "servers"],
        &["enable", "server", "docs"],
        &["refresh", "docs"],
        &["delete", "group", "dev"],
        &["deregister", "docs"],
    ] {
        let ended = cli.run(arguments).await;
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        let text = format!("$ toolgate {}\n{}{}\n", arguments.join(" "), ended.stderr, ended.stdout);
        page.push_str(&text.replace(&upstream, "UPSTREAM").replace(&app.address, "GATEWAY"));
    }
    snapshot::compare("pages.txt", &page);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_fits_the_width_of_the_terminal() {
    let (_app, fake, cli) = ready().await;
    cli.ok(&["register", "--name", "docs", "--url", &fake.url()]).await;
    for columns in [60, 80] {
        for arguments in [&["list", "tools"][..], &["list", "resources"], &["usage", "docs__search"]] {
            let ended = cli.run_with(arguments, &[("COLUMNS", &columns.to_string())]).await;
            // The example must work when copied.
            let lines = ended.stdout.lines().filter(|line| !line.contains("toolgate invoke"));
            let widest = lines.map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{arguments:?} in {columns} columns:\n{}", ended.stdout);
        }
    }
    let piped = cli.ok(&["list", "tools"]).await;
    assert_eq!(piped.lines().count(), 3, "a pipe gets one line for each row: {piped}");
    assert!(!piped.contains('\u{1b}'), "colours are for terminals");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_the_response_of_the_api() {
    let (app, fake, cli) = ready().await;
    let registered = cli.json(&["register", "--name", "docs", "--url", &fake.url()]).await;
    assert_eq!(registered["server"]["name"], "docs");
    cli.ok(&["create", "group", "dev", "--included-servers", "docs"]).await;
    for (arguments, path) in [
        (&["list", "servers"][..], "/api/v0/servers"),
        (&["get", "server", "docs"], "/api/v0/servers/docs"),
        (&["list", "tools", "--server", "docs"], "/api/v0/tools?server=docs"),
        (&["usage", "docs__search"], "/api/v0/tool?name=docs__search"),
        (&["list", "prompts"], "/api/v0/prompts"),
        (&["list", "resources"], "/api/v0/resources"),
        (&["list", "resources", "--templates"], "/api/v0/resource_templates"),
        (&["list", "groups"], "/api/v0/tool-groups"),
    ] {
        assert_eq!(cli.json(arguments).await, app.get(path).await.expect(200).json(), "{arguments:?}");
    }
    assert_eq!(cli.json(&["disable", "tool", "docs"]).await, json!(["docs__search", "docs__wipe"]));
    assert_eq!(cli.json(&["enable", "docs__wipe"]).await, json!(["docs__wipe"]));
    let rendered = cli.json(&["get", "prompt", "docs__greet", "--arg", "who=you"]).await;
    assert_eq!(rendered["messages"][0]["role"], "user");
    let read = cli.json(&["read", "resource", "fake://text"]).await;
    assert_eq!(read["contents"][0]["uri"], "fake://text");
    assert_eq!(cli.ok(&["deregister", "docs", "--output", "json"]).await, "", "204 has no body");
}

#[tokio::test(flavor = "multi_thread")]
async fn json_keeps_every_digit_and_the_order_of_keys() {
    let (app, _fake, cli) = ready().await;
    let vendor = Fake::start(Behaviour::default()).await;
    app.register_http("fake", &vendor).await;
    for arguments in [&["usage", "fake__vendor", "-o", "json"][..], &["list", "tools", "-o", "json"]] {
        let printed = cli.ok(arguments).await;
        assert!(printed.contains("12345678901234567890123") && printed.contains("2.50"), "{printed}");
        assert!(printed.find("\"zeta\"") < printed.find("\"alpha\""), "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transport_can_be_registered_with_flags() {
    let (_app, fake, cli) = ready().await;
    let (program, arguments) = stdio_command(&Behaviour::default());
    cli.ok(&["register", "--name", "http", "--url", &fake.url()]).await;
    cli.ok(&["register", "--name", "old", "--url", &fake.sse_url(), "--transport", "sse"]).await;
    let stdio = [
        "register",
        "--name",
        "process",
        "--env",
        "KEY=a=b",
        "--cwd",
        "/",
        "--session-mode",
        "stateful",
        "--placement",
        "one",
        "--timeout-ms",
        "7000",
        "--max-concurrency",
        "2",
        "--",
        &program,
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    cli.ok(&[&stdio[..], &arguments].concat()).await;
    assert_eq!(cli.ok(&["invoke", "process__env", "name=KEY"]).await, "a=b\n");
    assert_eq!(cli.ok(&["invoke", "process__cwd"]).await, "/\n");
    let transports: Vec<Value> = cli
        .json(&["list", "servers"])
        .await
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["transport"].clone())
        .collect();
    assert_eq!(transports, ["streamable_http", "sse", "stdio"]);
    let shown = cli.json(&["get", "server", "process"]).await;
    assert_eq!((&shown["session_mode"], &shown["placement"]), (&json!("stateful"), &json!("one")));
    assert!(cli.ok(&["get", "server", "process"]).await.contains("Placement"));
    cli.ok(&["update", "server", "process", "--placement", "each"]).await;
    assert_eq!(cli.json(&["get", "server", "process"]).await.get("placement"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_connect_gives_the_reason() {
    let (_app, _fake, cli) = ready().await;
    let behaviour = Behaviour::of(json!({"stderr": ["the licence has expired"], "exit_on_start": 3}));
    let (program, arguments) = stdio_command(&behaviour);
    let mut register = vec!["register", "--name", "broken", "--", &program];
    register.extend(arguments.iter().map(String::as_str));
    let sentence = cli.fails(&register).await;
    assert!(sentence.contains("licence has expired") && sentence.contains('3'), "{sentence}");
    let sentence = cli.fails(&["register", "--name", "none", "--url", "http://127.0.0.1:1/mcp"]).await;
    assert!(sentence.contains("http://127.0.0.1:1/mcp"), "{sentence}");
    assert_eq!(cli.json(&["list", "servers"]).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_said_is_shown_as_lines() {
    let (app, _fake, cli) = ready().await;
    let script = "echo first >&2; echo second >&2; exit 7";
    let sentence = cli.fails(&["register", "--name", "broken", "--", "/bin/sh", "-c", script]).await;
    assert!(sentence.ends_with("ended (exit status: 7); last lines of stderr:\nfirst\nsecond"), "{sentence}");
    let killed = cli.fails(&["register", "--name", "broken", "--", "/bin/sh", "-c", "kill -9 $$"]).await;
    assert!(killed.contains("signal: 9"), "{killed}");
    let input = json!({"name": "broken", "transport": "stdio", "command": "/bin/sh", "args": ["-c", script]});
    assert!(app.post("/api/v0/servers", input).await.expect(500).error().ends_with("first\nsecond"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_died_is_not_reported_as_one_that_closed_its_output_or_was_slow() {
    let app = TestApp::start_with(|config| config.init_timeout = std::time::Duration::from_secs(4)).await;
    let cli = Cli::new(&app.address);
    let slow_launcher = "exec >&-; sleep 1; echo gone >&2; exit 5";
    let sentence = cli.fails(&["register", "--name", "launcher", "--", "/bin/sh", "-c", slow_launcher]).await;
    assert!(sentence.contains("exit status: 5") && !sentence.contains("standard output"), "{sentence}");
    let mark = app.folder.path().join("mark");
    let dies_then_hangs = "if [ -e \"$0\" ]; then sleep 60; fi; touch \"$0\"; echo no licence >&2; exit 6";
    let mark = mark.to_str().unwrap();
    let sentence =
        cli.fails(&["register", "--name", "once", "--", "/bin/sh", "-c", dies_then_hangs, mark]).await;
    assert!(sentence.contains("exit status: 6") && sentence.contains("no licence"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_flags_and_commands() {
    let (_app, fake, cli) = ready().await;
    let register = ["register", "--name", "docs", "--url", &fake.url()];
    cli.ok(&register).await;
    assert!(cli.fails(&register).await.ends_with("use --force to replace it"));
    let said = cli.fails(&["create", "group", "dev"]).await;
    assert!(said.contains("--included-tools") && said.contains("--included-servers"), "{said}");
    assert!(!said.contains("included_tools"), "{said}");
    let said = cli.fails(&["create", "mcp-client", "a"]).await;
    assert!(said.contains("toolgate start --enterprise") && !said.contains("SERVER_MODE"), "{said}");
    cli.write("group.json", r#"{"name": "dev", "included_tools": "docs__search"}"#);
    let said = cli.fails(&["create", "group", "--conf", "group.json"]).await;
    assert!(said.contains("field \"included_tools\""), "a file has these keys: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_given_with_flags_reach_the_server() {
    let (_app, _fake, cli) = ready().await;
    let guarded = Fake::start(Behaviour::of(
        json!({"bearer": "-secret-token", "require_headers": {"x-team": "blue: 7"}}),
    ))
    .await;
    let register =
        ["register", "--name", "guarded", "--url", &guarded.url(), "--bearer-token", "-secret-token"];
    assert!(cli.run(&register).await.code == Some(1), "the header is missing");
    cli.ok(&[&register[..], &["--header", "X-Team: blue: 7"]].concat()).await;
    let taken = cli.fails(&[&register[..], &["--header", "X-Team: blue: 7"]].concat()).await;
    assert!(taken.contains("guarded"), "{taken}");
    cli.ok(&[&register[..], &["--header", "X-Team=blue: 7", "--force"]].concat()).await;
    let shown = cli.ok(&["get", "server", "guarded"]).await;
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_changed_by_flags_or_a_file() {
    let (_app, fake, cli) = ready().await;
    cli.ok(&["register", "--name", "docs", "--url", &fake.url(), "--description", "old"]).await;
    cli.ok(&["update", "server", "docs", "--description", "new", "--timeout-ms", "9"]).await;
    cli.write("docs.yaml", "name: docs\nsession_mode: stateful\n");
    cli.ok(&["update", "server", "--conf", "docs.yaml"]).await;
    let server = cli.json(&["get", "server", "docs"]).await;
    assert_eq!((&server["description"], &server["session_mode"]), (&json!("new"), &json!("stateful")));
    let sentence = cli.fails(&["update", "server", "dcos", "--description", "x"]).await;
    assert!(sentence.contains("did you mean \"docs\"?"), "{sentence}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_variable_or_header_is_changed_without_the_others() {
    let (app, fake, cli) = ready().await;
    let (program, arguments) = stdio_command(&Behaviour::default());
    let mut register =
        vec!["register", "--name", "a", "--env", "REGION=eu", "--env", "KEY=k", "--env", "OLD=o", "--"];
    register.push(&program);
    register.extend(arguments.iter().map(String::as_str));
    cli.ok(&register).await;
    cli.ok(&["update", "server", "a", "--env", "REGION=us", "--unset-env", "OLD"]).await;
    assert_eq!(cli.ok(&["invoke", "a__env", "name=REGION"]).await, "us\n");
    cli.write("a.yaml", "name: a\nenv:\n  KEY: null\n  NEW: n\n");
    cli.ok(&["update", "server", "--conf", "a.yaml"]).await;

    let headers = ["--header", "X-Key: k", "--header", "X-Team: blue"];
    cli.ok(&[&["register", "--name", "b", "--url", &fake.url()][..], &headers].concat()).await;
    cli.ok(&["update", "server", "b", "--header", "x-key: l", "--unset-header", "x-team"]).await;
    let configs = app.get("/api/v0/server_configs").await.expect(200).json();
    assert_eq!(configs[0]["env"], json!({"REGION": "us", "NEW": "n"}));
    assert_eq!(configs[1]["headers"], json!({"x-key": "l"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_is_found_by_uri_or_by_name() {
    let (app, fake, cli) = ready().await;
    app.register_http("docs", &fake).await;
    let by_name = cli.ok(&["get", "resource", "text", "--read"]).await;
    assert_eq!(by_name, cli.ok(&["read", "resource", "fake://text"]).await);
    app.register_http("copy", &fake).await;
    let sentence = cli.fails(&["get", "resource", "text"]).await;
    assert!(
        sentence.contains("toolgate://res/copy/") && sentence.contains("toolgate://res/docs/"),
        "{sentence}"
    );
    let chosen = cli.json(&["get", "resource", "text", "--server", "copy"]).await;
    assert_eq!(chosen["server"], "copy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_gets_the_right_one_suggested() {
    let (app, fake, cli) = ready().await;
    app.register_http("docs", &fake).await;
    cli.ok(&["create", "group", "dev", "--included-servers", "docs"]).await;
    for (arguments, suggestion) in [
        (&["get", "server", "dcos"][..], "docs"),
        (&["deregister", "Docs"], "docs"),
        (&["list", "tools", "--server", "doc"], "docs"),
        (&["usage", "docs__serch"], "docs__search"),
        (&["usage", "search"], "docs__search"),
        (&["invoke", "docs__serch"], "docs__search"),
        (&["invoke", "docs__serch", "query=x"], "docs__search"),
        (&["disable", "tool", "docs__wpie"], "docs__wipe"),
        (&["get", "prompt", "docs__gret"], "docs__greet"),
        (&["get", "group", "dve"], "dev"),
        (&["delete", "group", "deb"], "dev"),
    ] {
        let sentence = cli.fails(arguments).await;
        assert!(sentence.ends_with(&format!("did you mean {suggestion:?}?")), "{arguments:?}: {sentence}");
    }
    assert!(!cli.fails(&["get", "server", "weather"]).await.contains("did you mean"));
}
