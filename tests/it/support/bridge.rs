//! `toolgate stdio` as a client runs it: lines in, lines out.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::modern::{CAPABILITIES_KEY, CLIENT_KEY, VERSION, VERSION_KEY};
use super::process::send_signal;

const LIMIT: Duration = Duration::from_secs(60);

pub struct Bridge {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    /// Its standard error so far.
    pub log: Arc<Mutex<String>>,
}

impl Bridge {
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the program was built");
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let kept = log.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = errors.next_line().await {
                kept.lock().unwrap().extend([&line, "\n"]);
            }
        });
        Self { stdin: child.stdin.take(), child, stdout, log }
    }

    pub async fn send_text(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_text(&format!("{message}\n")).await;
    }

    /// The next line, unchanged; `None` at the end.
    pub async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(LIMIT, self.stdout.next_line()).await;
        line.unwrap_or_else(|_| panic!("nothing comes; log: {}", self.log.lock().unwrap())).unwrap()
    }

    pub async fn next(&mut self) -> Value {
        let line = self.line().await.expect("the output goes on");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The next message with this method; others before it are skipped.
    pub async fn expect(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            assert!(message.get("method").is_some(), "an answer instead of {method}: {message}");
            if message["method"] == method {
                return message;
            }
        }
    }

    /// The answer to the request with this id; messages before it are skipped.
    pub async fn answer(&mut self, id: Value) -> Value {
        loop {
            let message = self.next().await;
            if message.get("method").is_none() && message["id"] == id {
                return message;
            }
        }
    }

    pub async fn request(&mut self, id: Value, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        self.answer(id).await
    }

    pub async fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Does the handshake in revision 2025-11-25; returns the result.
    pub async fn shake_hands(&mut self, capabilities: Value) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "agent", "version": "1"},
        });
        let answer = self.request(json!("hello"), "initialize", params).await;
        assert!(answer.get("result").is_some(), "{answer}");
        self.tell("notifications/initialized", json!({})).await;
        answer["result"].clone()
    }

    pub async fn call(&mut self, id: Value, tool: &str, arguments: Value) -> Value {
        self.request(id, "tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    pub fn signal(&self, signal: libc::c_int) {
        send_signal(&self.child, signal);
    }

    /// Closes standard input, reads the rest of the output, and returns it with the exit code.
    pub async fn finish(mut self) -> (Option<i32>, Vec<String>) {
        drop(self.stdin.take());
        let mut rest = Vec::new();
        while let Some(line) = self.line().await {
            rest.push(line);
        }
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await.expect("it ends").unwrap();
        (status.code(), rest)
    }
}

/// A request of revision 2026-07-28.
pub fn modern(id: Value, method: &str, mut params: Value) -> Value {
    let meta = &mut params["_meta"];
    meta[VERSION_KEY] = json!(VERSION);
    meta[CAPABILITIES_KEY] = json!({});
    meta[CLIENT_KEY] = json!({"name": "modern agent", "version": "9"});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The text of the first content block of an answer.
pub fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}
