//! `toolgate stdio` and its gateway: one that restarts, one that needs a token, one inside the process.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::bridge::{Bridge, modern, text};
use crate::support::cli::{Cli, finish};
use crate::support::process::{Process, is_alive};
use crate::support::{Behaviour, Fake, TestApp, eventually, stdio_command};

/// An address on which nothing listens.
const NOWHERE: &str = "http://127.0.0.1:1";

async fn with_server(fake: &Fake) -> Process {
    let gateway = Process::start().await;
    let input = json!({"name": "s", "transport": "streamable_http", "url": fake.url()});
    gateway.post("/api/v0/servers", &input).await.expect(201);
    gateway
}

/// Starts the gateway of this folder again, on the same address.
async fn again(address: &str, folder: TempDir) -> Process {
    let (_, port) = address.rsplit_once(':').unwrap();
    Process::start_in(folder, &[("PORT", port)]).await
}

/// `toolgate stdio` in a folder where no gateway runs.
fn embedded(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(["stdio", "--registry", NOWHERE]).args(arguments).current_dir(folder).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_its_gateway_with_what_it_subscribed_to() {
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let gateway = with_server(&fake).await;
    let mut bridge = Bridge::start(Cli::new(&gateway.address).command(&["stdio"]));
    bridge.shake_hands(json!({})).await;
    let uri = json!({"uri": "fake://text"});
    assert_eq!(bridge.request(json!(1), "resources/subscribe", uri).await["result"], json!({}));
    let address = gateway.address.clone();
    gateway.signal(libc::SIGKILL);
    let (_, folder) = gateway.end().await;
    // Waits until the gateway is back.
    bridge.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})).await;
    let gateway = again(&address, folder).await;
    assert!(bridge.answer(json!(2)).await["result"]["tools"].is_array());
    bridge.expect("notifications/tools/list_changed").await;
    eventually("the subscription is back", async || {
        fake.notify_resource_updated("fake://text");
        !fake.seen_of("resources/subscribe").is_empty()
    })
    .await;
    bridge.expect("notifications/resources/updated").await;
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_is_opened_again_without_a_word() {
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let gateway = with_server(&fake).await;
    let mut bridge = Bridge::start(Cli::new(&gateway.address).command(&["stdio"]));
    bridge.shake_hands(json!({"elicitation": {}})).await;
    let (address, other) = (gateway.address.clone(), with_server(&fake).await);
    gateway.signal(libc::SIGTERM);
    gateway.end().await;
    other.signal(libc::SIGTERM);
    // A gateway with another key, which cannot read the session.
    let (_, folder) = other.end().await;
    let _gateway = again(&address, folder).await;
    let sum = bridge.call(json!(1), "s__add", json!({"a": 1, "b": 1})).await;
    assert_eq!(text(&sum), "2");
    let params = json!({"name": "s__ask", "arguments": {}});
    bridge.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})).await;
    let question = loop {
        let message = bridge.next().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    bridge.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"still": "declared"}})).await;
    assert_eq!(text(&bridge.answer(json!(2)).await), r#"{"still":"declared"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listening_client_hears_of_changes_after_a_restart() {
    let fake = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    let mut gateway = with_server(&fake).await;
    let mut bridge = Bridge::start(Cli::new(&gateway.address).command(&["stdio"]));
    let wishes = json!({"notifications": {"toolsListChanged": true}});
    bridge.send(&modern(json!(7), "subscriptions/listen", wishes)).await;
    bridge.expect("notifications/subscriptions/acknowledged").await;
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let address = gateway.address.clone();
        gateway.signal(signal);
        let (_, folder) = gateway.end().await;
        gateway = again(&address, folder).await;
        bridge.expect("notifications/subscriptions/acknowledged").await;
        let changed = bridge.expect("notifications/tools/list_changed").await;
        assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7, "{changed}");
    }
    assert_eq!(bridge.finish().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_its_gateway_took_along_is_answered_with_an_error() {
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    let gateway = with_server(&fake).await;
    let mut bridge = Bridge::start(Cli::new(&gateway.address).command(&["stdio"]));
    bridge.shake_hands(json!({})).await;
    let params = json!({"name": "s__slow", "arguments": {"ms": 600_000}});
    bridge.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
    eventually("the call runs", async || fake.calls_of("slow") == 1).await;
    gateway.signal(libc::SIGKILL);
    gateway.end().await;
    let answer = bridge.answer(json!(1)).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("was lost"), "{answer}");
    assert_eq!(fake.calls_of("slow"), 1, "it is not repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_the_settings_is_used_and_a_wrong_one_is_said() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let token = app.create_client("agent", &["s"]).await;
    let cli = Cli::new(&app.address);
    let mut command = cli.command(&["stdio"]);
    command.env("TOOLGATE_TOKEN", &token);
    let mut bridge = Bridge::start(command);
    bridge.shake_hands(json!({})).await;
    assert_eq!(text(&bridge.call(json!(1), "s__add", json!({"a": 1, "b": 2})).await), "3");
    let mut nobody = Bridge::start(cli.command(&["stdio"]));
    let refused = nobody.request(json!(1), "initialize", json!({"protocolVersion": "2025-11-25"})).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("TOOLGATE_TOKEN"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_gateway_runs_the_command_is_one() {
    let gateway = Process::start().await;
    let (program, arguments) = stdio_command(&Behaviour::default());
    let input = json!({"name": "s", "transport": "stdio", "command": program, "args": arguments});
    gateway.post("/api/v0/servers", &input).await.expect(201);
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let mut bridge = Bridge::start(embedded(folder.path(), &[]));
    bridge.shake_hands(json!({})).await;
    let pid = text(&bridge.call(json!(1), "s__pid", json!({})).await).to_owned();
    bridge
        .send(&modern(json!(2), "tools/call", json!({"name": "s__add", "arguments": {"a": 1, "b": 2}})))
        .await;
    assert_eq!(text(&bridge.answer(json!(2)).await), "3");
    // A second one cannot use the same database, and says what to do.
    let second = finish(
        embedded(folder.path(), &[])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    )
    .await;
    assert_eq!((second.code, second.stdout.as_str()), (Some(1), ""), "{second:?}");
    let complaint = second.complaint();
    assert!(complaint.contains("in use by another toolgate process"), "{complaint}");
    assert!(complaint.contains("--registry") && complaint.contains(NOWHERE), "{complaint}");
    let log = bridge.log.clone();
    assert_eq!(bridge.finish().await.0, Some(0));
    assert!(log.lock().unwrap().contains("running one here with the database ./toolgate.db"));
    assert!(!is_alive(&pid), "its servers end with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_in_good_order() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("own.db");
    let mut bridge = Bridge::start(embedded(folder.path(), &["--sqlite-db-path", path.to_str().unwrap()]));
    bridge.shake_hands(json!({})).await;
    assert!(path.exists());
    bridge.signal(libc::SIGTERM);
    assert_eq!(bridge.finish().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_elsewhere_that_does_not_answer_is_not_replaced() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.args(["stdio", "--registry", "http://toolgate.invalid"]).current_dir(folder.path()).env_clear();
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let ended = finish(command.spawn().unwrap()).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.complaint().contains("cannot reach a gateway at http://toolgate.invalid"), "{ended:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no database was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_input_ends_calls_and_the_session() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let mut bridge = Bridge::start(Cli::new(&app.address).command(&["stdio"]));
    bridge.shake_hands(json!({})).await;
    let params = json!({"name": "s__slow", "arguments": {"ms": 600_000}});
    bridge.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).await;
    eventually("the call runs", async || fake.calls_of("slow") == 1).await;
    let (code, rest) = bridge.finish().await;
    assert_eq!((code, rest.as_slice()), (Some(0), &[][..]));
    eventually("the call ended", async || fake.cancelled().len() == 1).await;
    // What was sent before the end of the input is still answered.
    let mut bridge = Bridge::start(Cli::new(&app.address).command(&["stdio"]));
    bridge.send(&modern(json!(1), "tools/list", json!({}))).await;
    let (code, rest) = bridge.finish().await;
    assert_eq!(code, Some(0));
    let answer: Value = serde_json::from_str(&rest[0]).unwrap();
    assert!(answer["result"]["tools"].is_array(), "{answer}");
}
