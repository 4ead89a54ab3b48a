//! Clients in a closed loop: each sends its next request after the response to the last one, and checks every response.
//! Prints one line of JSON with the latencies and the CPU time of the watched process.
//!
//! bench-load --address 127.0.0.1:8080 --pid 1234 --era legacy|modern --work call|list [--tool up__echo] [--clients 32] [--seconds 4] [--token T]

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use toolgate_bench::{LEGACY, MODERN, Wire, header};

#[derive(Clone)]
struct Plan {
    address: String,
    pid: u32,
    is_modern: bool,
    method: &'static str,
    tool: String,
    /// A header line, or empty.
    authorization: String,
    clients: usize,
    time: Duration,
}

fn plan() -> Result<Plan> {
    let mut plan = Plan {
        address: String::new(),
        pid: 0,
        is_modern: false,
        method: "tools/call",
        tool: "up0__echo".into(),
        authorization: String::new(),
        clients: 32,
        time: Duration::from_secs(4),
    };
    let mut words = std::env::args().skip(1);
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        match flag.as_str() {
            "--address" => plan.address = value,
            "--pid" => plan.pid = value.parse()?,
            "--era" => plan.is_modern = value == "modern",
            "--work" => plan.method = if value == "list" { "tools/list" } else { "tools/call" },
            "--tool" => plan.tool = value,
            "--token" => plan.authorization = format!("Authorization: Bearer {value}\r\n"),
            "--clients" => plan.clients = value.parse()?,
            "--seconds" => plan.time = Duration::from_secs_f64(value.parse()?),
            _ => bail!("unknown flag {flag}"),
        }
    }
    Ok(plan)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let plan = plan()?;
    let (mut times, cpu) = LocalSet::new().run_until(run(plan)).await?;
    times.sort_unstable();
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)].as_nanos() as f64;
    println!(
        "{}",
        json!({
            "operations": times.len(),
            "p50_us": at(0.5) / 1000.0,
            "p99_us": at(0.99) / 1000.0,
            "cpu_us": cpu.as_secs_f64() * 1e6 / times.len() as f64,
        })
    );
    Ok(())
}

/// All latencies, and the CPU time of the watched process during the run.
async fn run(plan: Plan) -> Result<(Vec<Duration>, Duration)> {
    let mut ready = Vec::new();
    for _ in 0..plan.clients {
        ready.push(Client::connect(&plan).await?);
    }
    let before = cpu_time(plan.pid)?;
    let end = Instant::now() + plan.time;
    let mut running = JoinSet::new();
    for client in ready {
        running.spawn_local(client.work(end));
    }
    let mut latencies = Vec::new();
    while let Some(client) = running.join_next().await {
        latencies.extend(client??);
    }
    ensure!(!latencies.is_empty(), "nothing was answered");
    Ok((latencies, cpu_time(plan.pid)?.saturating_sub(before)))
}

struct Client {
    wire: Wire,
    request: Vec<u8>,
    expected: &'static str,
}

impl Client {
    async fn connect(plan: &Plan) -> Result<Self> {
        let mut wire = Wire::new(TcpStream::connect(&plan.address).await?)?;
        let mut params = match plan.method {
            "tools/call" => json!({"name": plan.tool, "arguments": {"text": "hello there"}}),
            _ => json!({}),
        };
        let headers = match plan.is_modern {
            true => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": MODERN,
                    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n"));
                let name = name.unwrap_or_default();
                format!("MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {}\r\n{name}", plan.method)
            }
            false => {
                let session = open_session(&mut wire, plan).await?;
                format!("MCP-Protocol-Version: {LEGACY}\r\nMcp-Session-Id: {session}\r\n")
            }
        };
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": plan.method, "params": params});
        let expected = if plan.method == "tools/call" { "hello there" } else { r#""tools":["# };
        Ok(Self { wire, request: request(plan, &headers, &body), expected })
    }

    async fn work(mut self, end: Instant) -> Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let begun = Instant::now();
            self.wire.send(&self.request).await?;
            let answer = self.wire.receive().await?.context("the connection was closed")?;
            latencies.push(begun.elapsed());
            let is_right = answer.head.starts_with("HTTP/1.1 200")
                && answer.body.windows(self.expected.len()).any(|part| part == self.expected.as_bytes());
            ensure!(is_right, "unexpected: {} {}", answer.head, String::from_utf8_lossy(&answer.body));
        }
        Ok(latencies)
    }
}

async fn open_session(wire: &mut Wire, plan: &Plan) -> Result<String> {
    let params = json!({
        "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
    });
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    wire.send(&request(plan, "", &hello)).await?;
    let answer = wire.receive().await?.context("the connection was closed")?;
    Ok(header(&answer.head, "mcp-session-id").context("no session was opened")?.to_owned())
}

fn request(plan: &Plan, headers: &str, body: &Value) -> Vec<u8> {
    let (address, authorization, body) = (&plan.address, &plan.authorization, body.to_string());
    format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{authorization}{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// User and system time of a process so far.
fn cpu_time(pid: u32) -> Result<Duration> {
    let schedule = fs::read_dir(format!("/proc/{pid}/task"))?;
    let mut nanoseconds = 0;
    for task in schedule {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds += text.split_whitespace().next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}
