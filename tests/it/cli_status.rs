//! Commands that say how the gateway and its servers are: `status`, `doctor`, `open`; aliases; and the
//! names that a shell completes.

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::terminal::Terminal;
use crate::support::{Behaviour, Fake, TestApp, eventually};

async fn ready() -> (TestApp, Fake, Cli) {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("web", &fake).await;
    let cli = Cli::new(&app.address);
    (app, fake, cli)
}

async fn add_broken(app: &TestApp) {
    let broken =
        json!({ "name": "broken", "transport": "stdio", "command": "/no/such/program", "keep_failed": true });
    app.register(broken).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_the_servers_and_names_what_is_wrong() {
    let (app, _fake, cli) = ready().await;
    let page = cli.ok(&["status"]).await;
    assert!(page.contains("Servers:      1: 1 connected\n") && page.contains("Database:     ok\n"), "{page}");
    assert!(page.contains(&format!("http://{} (v0.1.0)", app.address)), "{page}");
    assert!(!page.contains('✗'), "{page}");
    add_broken(&app).await;
    let page = cli.ok(&["status"]).await;
    assert!(page.contains("2: 1 connected, 1 failed") && page.contains("✗ broken failed: "), "{page}");
    assert!(
        page.contains("command not found") && page.contains("    toolgate get server broken\n"),
        "{page}"
    );
    let registry = cli.registry.clone();
    let page = cli.ok(&["status", "--registry", &registry]).await;
    assert!(page.contains(&format!("toolgate --registry {registry} get server broken")), "{page}");
    let record = cli.json(&["status"]).await;
    assert_eq!((&record["version"], &record["servers"][0]["name"]), (&json!("v0.1.0"), &json!("broken")));
    assert!(Cli::new("127.0.0.1:1").fails(&["status"]).await.contains("toolgate start"));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_checks_everything_and_says_what_to_do() {
    let (app, _fake, cli) = ready().await;
    let page = cli.ok(&["doctor"]).await;
    for check in
        ["✓ settings", "✓ gateway", "✓ database", "✓ token: none is needed", "✓ server web: connected"]
    {
        assert!(page.contains(check), "{check}: {page}");
    }
    add_broken(&app).await;
    cli.write(".toolgate.conf", "");
    let ended = cli.run(&["doctor"]).await;
    assert!(ended.code == Some(1) && ended.stderr.contains("2 checks failed"), "{ended:?}");
    assert!(ended.stdout.contains("chmod 600"), "others can read it: {ended:?}");
    assert!(ended.stdout.contains("✗ server broken: failed\n") && ended.stdout.contains("get server broken"));
    let ended = cli.run(&["doctor", "--output", "json"]).await;
    let checks: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(checks.as_array().unwrap().iter().any(|check| check["result"] == "failed"), "{checks}");
    let ended = Cli::new("127.0.0.1:1").run(&["doctor"]).await;
    assert!(ended.code == Some(1) && ended.stdout.contains("✗ gateway"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_knows_whose_token_it_has() {
    let app = TestApp::start_enterprise().await;
    let cli = Cli::new(&app.address);
    let ended = cli.run(&["doctor"]).await;
    assert!(ended.code == Some(1) && ended.stdout.contains("✗ token"), "{ended:?}");
    let token = app.authorization.as_deref().unwrap().trim_start_matches("Bearer ").to_owned();
    let ended = cli.run_with(&["doctor"], &[("TOOLGATE_TOKEN", &token)]).await;
    assert!(ended.stdout.contains("✓ token: admin with the role admin"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_the_dashboard_is_opened_or_printed() {
    let (app, _fake, cli) = ready().await;
    assert_eq!(cli.ok(&["open", "--no-browser"]).await, format!("http://{}/\n", app.address));
    let enterprise = TestApp::start_enterprise().await;
    let refused = Cli::new(&enterprise.address).fails(&["open", "--no-browser"]).await;
    assert!(refused.contains("enterprise mode"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn usual_short_names_work() {
    let (_app, fake, cli) = ready().await;
    let ended = cli.run(&["add", "--name", "two", "--url", &fake.url()]).await;
    assert!(ended.stderr.contains("toolgate list tools --server two"), "the next step: {ended:?}");
    assert_eq!(cli.ok(&["ls"]).await, cli.ok(&["list", "servers"]).await);
    assert_eq!(cli.ok(&["ls", "tools"]).await, cli.ok(&["list", "tools"]).await);
    cli.ok(&["rm", "two"]).await;
    assert_eq!(cli.json(&["ls"]).await.as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_complete_names_of_the_gateway() {
    let (_app, _fake, cli) = ready().await;
    let complete = async |words: &[&str]| cli.ok(&[&["__complete", "--"], words].concat()).await;
    assert_eq!(complete(&["invoke", "web__echo_a"]).await, "web__echo_args\n");
    assert_eq!(complete(&["get", "server", ""]).await, "web\n");
    assert_eq!(complete(&["list", "tools", "--server", "w"]).await, "web\n");
    assert_eq!(complete(&["list", ""]).await, "");
    assert_eq!(complete(&["invoke", "--"]).await, "");
    assert_eq!(Cli::new("127.0.0.1:1").ok(&["__complete", "--", "rm", ""]).await, "", "no gateway, no names");
    let script = cli.ok(&["completions", "bash"]).await;
    cli.write("completions.bash", &script);
    let program = env!("CARGO_BIN_EXE_toolgate");
    let type_tab = format!(
        "source completions.bash; COMP_WORDS=({program} usage web__echo_a); COMP_CWORD=2; \
         _toolgate_names toolgate web__echo_a usage; echo \"${{COMPREPLY[*]}}\""
    );
    let mut bash = tokio::process::Command::new("bash");
    bash.args(["-c", &type_tab]).current_dir(cli.home.path()).env("TOOLGATE_REGISTRY", &cli.registry);
    let typed = bash.output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&typed.stdout), "web__echo_args\n", "{typed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_says_that_the_call_was_cancelled() {
    let (_app, fake, cli) = ready().await;
    let mut calling = Terminal::start(&cli, &["invoke", "web__slow", "ms=60000"]);
    eventually("it runs", async || fake.running_calls() == 1).await;
    calling.types("\u{3}");
    let ended = calling.end().await;
    assert!(ended.code == Some(130) && ended.stderr.contains("The call was cancelled."), "{ended:?}");
    eventually("it is cancelled", async || fake.running_calls() == 0).await;
}
