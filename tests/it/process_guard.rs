//! Guards that are killed or stopped, or whose processes fork, hide or stop. No process may be left.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::support::app::stdio_input;
use crate::support::process::{is_alive, send_signal_to};
use crate::support::{Behaviour, Process, eventually};

/// A registration of the fake server, started by a shell that runs `script` first.
fn input(name: &str, script: &str) -> Value {
    let mut input = stdio_input(name, &Behaviour::default());
    let args = input["args"].as_array().unwrap().clone();
    let script = format!(r#"{script}exec "$0" "$@""#);
    input["args"] = json!([vec![json!("-c"), json!(script), input["command"].clone()], args].concat());
    input["command"] = json!("sh");
    input
}

/// A small number of seconds that no other test of this run uses, to find processes by their command line.
fn marker(test: u32) -> String {
    format!("0.{test}{:07}", std::process::id())
}

/// The living processes that have `word` as one of their arguments.
fn running(word: &str) -> Vec<String> {
    let has_word = |line: Vec<u8>| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let is_marked =
        |pid: &String| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(has_word) && is_alive(pid);
    pids.filter(is_marked).collect()
}

/// The state and the parent of a process.
fn status(pid: &str) -> Option<(String, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// The children of a process that have ended and were not waited for.
fn zombies_of(parent: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let states = pids.filter_map(|pid| status(&pid));
    states.filter(|(state, of)| state == "Z" && of == parent).count()
}

fn send(signal: libc::c_int, pid: &str) {
    send_signal_to(pid.parse().unwrap(), signal);
}

/// Three hidden processes of the server: in its group, in their own session, and without environment.
fn hiders(marker: &str) -> String {
    let sleep = format!("sleep 300 {marker} </dev/null >/dev/null 2>&1 &");
    format!("{sleep} (setsid {sleep}) ; (env -i setsid {sleep}) ; ")
}

/// Registers a server with hidden processes; returns its guard, the gateway, and all processes of the server.
async fn server_with_hiders(gateway: &Process, name: &str, marker: &str) -> (String, String, Vec<String>) {
    gateway.post("/api/v0/servers", &input(name, &hiders(marker))).await.expect(201);
    eventually("its offspring runs", async || running(marker).len() == 3).await;
    let server = gateway.call(&format!("{name}__pid"), json!({})).await;
    let (_, guard) = status(&server).unwrap();
    let (_, gateway) = status(&guard).unwrap();
    let mut all = running(marker);
    all.push(server);
    (guard, gateway, all)
}

async fn all_end(pids: &[String]) {
    eventually("all of them are gone", async || !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_guard_leaves_nothing_behind_and_its_server_comes_back() {
    let gateway = Process::start().await;
    let marker = marker(1);
    let (guard, parent, all) = server_with_hiders(&gateway, "s", &marker).await;
    send(libc::SIGKILL, &guard);
    all_end(&all).await;
    eventually("no zombie is left", async || zombies_of(&parent) == 0).await;
    let echo = json!({ "name": "s__echo", "text": "back" });
    eventually("it serves again", async || {
        let answer = gateway.post("/api/v0/tools/invoke", &echo).await;
        answer.text().contains("back")
    })
    .await;
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.end().await.0, Some(0));
    assert_eq!(running(&marker), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_guard_does_not_save_its_offspring() {
    for (number, end) in [(2, None), (3, Some(libc::SIGTERM)), (4, Some(libc::SIGKILL))] {
        let gateway = Process::start().await;
        let (guard, _, mut all) = server_with_hiders(&gateway, "s", &marker(number)).await;
        send(libc::SIGSTOP, &guard);
        all.push(guard);
        match end {
            None => {
                gateway.post("/api/v0/servers/s/disable", &json!({})).await.expect(200);
                all_end(&all).await;
            }
            Some(signal) => {
                gateway.signal(signal);
                gateway.end().await;
                all_end(&all).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_is_asked_to_end_like_any_other() {
    let gateway = Process::start().await;
    let folder = TempDir::new().unwrap();
    let (marker, said) = (marker(5), folder.path().join("said"));
    let careful =
        format!(r#"trap "echo ended > {}; exit" TERM; while :; do sleep 0.02; done"#, said.display());
    let script = format!("(setsid sh -c '{careful}' {marker} </dev/null >/dev/null 2>&1 &) ; ");
    gateway.post("/api/v0/servers", &input("s", &script)).await.expect(201);
    eventually("it runs", async || running(&marker).len() == 1).await;
    let careful = running(&marker).remove(0);
    // It reacts only after it has installed the handler.
    let catches_term = async || catches(&careful, 15);
    eventually("the trap is set", catches_term).await;
    send(libc::SIGSTOP, &careful);
    gateway.post("/api/v0/servers/s/disable", &json!({})).await.expect(200);
    all_end(&[careful]).await;
    assert_eq!(std::fs::read_to_string(said).unwrap().trim(), "ended");
}

/// Whether a process has a handler for a signal.
fn catches(pid: &str, signal: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// A shell script that starts itself in a new process and ends, at most `$1` times.
fn write_chain(folder: &Path, leaves_session: bool) -> String {
    let path = folder.join("chain.sh").display().to_string();
    let text = match leaves_session {
        true => "trap '' TERM\n[ $1 -gt 0 ] || exit\nsetsid sh $0 $(($1 - 1)) &\n",
        // Each process is a call deeper than the one before, so now and then a new shell goes on with an empty stack.
        false => {
            "trap '' TERM\nleft=$1\nnext() {\n[ $left -gt 0 ] || exit\nleft=$(($left - 1))\n\
             [ $(($left % 500)) -gt 0 ] || exec sh $0 $left\nnext &\n}\nnext\n"
        }
    };
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn offspring_that_is_always_a_new_process_is_caught() {
    for leaves_session in [false, true] {
        let gateway = Process::start().await;
        let folder = TempDir::new().unwrap();
        let chain = write_chain(folder.path(), leaves_session);
        // A list of processes nearly always misses such a process. But it holds a pipe, which closes with its last
        // writer.
        let fifo = folder.path().join("alive");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut alive = pipe::OpenOptions::new().open_receiver(&fifo).unwrap();
        let one = format!("sh {chain} 1000000 </dev/null >/dev/null 2>&1 9>{} & ", fifo.display());
        gateway.post("/api/v0/servers", &input("s", &one.repeat(2))).await.expect(201);
        let is_held = |alive: &pipe::Receiver| {
            let read = alive.try_read(&mut [0]);
            read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        eventually("it runs", async || is_held(&alive)).await;
        gateway.post("/api/v0/servers?force=true", &input("s", "")).await.expect(201);
        let ended = tokio::time::timeout(Duration::from_secs(60), alive.read(&mut [0])).await;
        assert_eq!(ended.expect("it is caught in time").unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_started_before_the_gateway_are_spared() {
    let stranger = marker(9);
    let gateway = Process::start_beside(&format!("sleep 300 {stranger} </dev/null >/dev/null 2>&1")).await;
    eventually("it runs", async || running(&stranger).len() == 1).await;
    gateway.post("/api/v0/servers", &input("s", "")).await.expect(201);
    let server = gateway.call("s__pid", json!({})).await;
    let (_, guard) = status(&server).unwrap();
    send(libc::SIGKILL, &guard);
    all_end(&[server, guard]).await;
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.end().await.0, Some(0));
    let spared = running(&stranger);
    assert_eq!(spared.len(), 1);
    send(libc::SIGKILL, &spared[0]);
}
