//! Servers that run as child processes: where they run, and that no process outlives the gateway.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::app::stdio_input;
use crate::support::process::is_alive;
use crate::support::{Behaviour, Process, eventually};

/// Whether a `sleep` of this many seconds runs; each test uses its own number.
fn sleeps(seconds: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_ours = |line: Vec<u8>| String::from_utf8_lossy(&line) == format!("sleep\0{seconds}\0");
    processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok()).any(is_ours)
}

/// Registers a server with child processes of every kind; returns their ids.
async fn family(gateway: &Process, name: &str, behaviour: Value) -> Vec<String> {
    gateway.post("/api/v0/servers", &stdio_input(name, &Behaviour::of(behaviour))).await.expect(201);
    let spawn = format!("{name}__spawn_grandchild");
    let mut pids = vec![gateway.call(&format!("{name}__pid"), json!({})).await];
    for arguments in [
        json!({}),
        json!({ "setsid": true }),
        json!({ "inherit": true }),
        json!({ "setsid": true, "inherit": true }),
    ] {
        pids.push(gateway.call(&spawn, arguments).await);
    }
    assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    pids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_children_and_grandchildren() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let gateway = Process::start().await;
        let mut pids = family(&gateway, "willing", json!({})).await;
        if signal == libc::SIGTERM {
            pids.extend(family(&gateway, "stubborn", json!({ "stubborn": true })).await);
        }
        let begun = Instant::now();
        gateway.signal(signal);
        assert_eq!(gateway.end().await.0, Some(0));
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
        let left: Vec<_> = pids.iter().filter(|pid| is_alive(pid)).collect();
        assert!(left.is_empty(), "{signal} left {left:?} of {pids:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_leaves_no_process_behind_and_loses_nothing() {
    let gateway = Process::start().await;
    let mut pids = family(&gateway, "willing", json!({})).await;
    pids.extend(family(&gateway, "stubborn", json!({ "stubborn": true })).await);
    gateway.post("/api/v0/tools/disable", &json!({ "name": "willing__echo" })).await.expect(200);
    let before = gateway.get("/api/v0/tools").await.expect(200).text();
    gateway.signal(libc::SIGKILL);
    let (code, folder) = gateway.end().await;
    assert_eq!(code, None);
    eventually("all are gone", async || !pids.iter().any(|pid| is_alive(pid))).await;
    let gateway = Process::start_in(folder, &[]).await;
    assert_eq!(gateway.get("/api/v0/tools").await.expect(200).text(), before);
    assert_eq!(gateway.call("willing__echo", json!({ "text": "back" })).await, "back");
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_or_disabling_a_server_ends_its_processes() {
    let gateway = Process::start().await;
    let mut pids = family(&gateway, "removed", json!({})).await;
    pids.extend(family(&gateway, "disabled", json!({})).await);
    let kept = family(&gateway, "kept", json!({})).await;
    crate::support::request(&gateway.address, "DELETE", "/api/v0/servers/removed", &[], Vec::new())
        .await
        .expect(204);
    gateway.post("/api/v0/servers/disabled/disable", &json!({})).await.expect(200);
    eventually("theirs are gone", async || !pids.iter().any(|pid| is_alive(pid))).await;
    assert!(kept.iter().all(|pid| is_alive(pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_answers_leaves_nothing_behind() {
    let gateway =
        Process::start_in(TempDir::new().unwrap(), &[("MCP_SERVER_INIT_REQ_TIMEOUT_SEC", "1")]).await;
    let marker = (std::process::id() + 500_000).to_string();
    let input = json!({ "name": "mute", "transport": "stdio", "command": "sh", "args": ["-c", format!("sleep {marker} & sleep {marker}")] });
    gateway.post("/api/v0/servers", &input).await.expect(500);
    eventually("nothing sleeps any more", async || !sleeps(&marker)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn children_run_in_the_directory_of_the_gateway_or_in_their_own() {
    let gateway = Process::start().await;
    let mut input = stdio_input("plain", &Behaviour::default());
    gateway.post("/api/v0/servers", &input).await.expect(201);
    let elsewhere = TempDir::new().unwrap();
    let place = elsewhere.path().canonicalize().unwrap().display().to_string();
    (input["name"], input["cwd"]) = (json!("given"), json!(place));
    gateway.post("/api/v0/servers", &input).await.expect(201);
    let ours = gateway.folder.path().canonicalize().unwrap().display().to_string();
    assert_eq!(gateway.call("plain__cwd", json!({})).await, ours);
    assert_eq!(gateway.call("given__cwd", json!({})).await, place);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_to_a_child_under_way_is_finished_before_the_child_is_ended() {
    let gateway = Process::start().await;
    gateway.post("/api/v0/servers", &stdio_input("s", &Behaviour::default())).await.expect(201);
    let address = gateway.address.clone();
    let call = tokio::spawn(async move {
        let body = json!({ "name": "s__slow", "ms": 800 }).to_string();
        crate::support::request(&address, "POST", "/api/v0/tools/invoke", &[], body.into()).await
    });
    let begun = async || gateway.call("s__seen", json!({})).await.matches("tools/call").count() > 1;
    eventually("the call runs", begun).await;
    gateway.signal(libc::SIGTERM);
    assert!(call.await.unwrap().expect(200).text().contains("done"));
    assert_eq!(gateway.end().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_hid_from_its_parents_is_found() {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let gateway = Process::start().await;
        let marker = (std::process::id() + 700_000).to_string();
        let mut input = stdio_input("s", &Behaviour::default());
        let script = format!(r#"(setsid sleep {marker} >/dev/null 2>&1 &); exec "$0" "$@""#);
        let args: Vec<_> = input["args"].as_array().unwrap().clone();
        input["args"] = json!([vec![json!("-c"), json!(script), input["command"].clone()], args].concat());
        input["command"] = json!("sh");
        gateway.post("/api/v0/servers", &input).await.expect(201);
        eventually("the daemon runs", async || sleeps(&marker)).await;
        gateway.signal(signal);
        gateway.end().await;
        eventually("it is ended", async || !sleeps(&marker)).await;
    }
}
