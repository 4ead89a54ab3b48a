//! Starts a separate gateway for one case, or several behind a balancer, and registers the fixture, with a minimal HTTP client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Transport;
use super::process::Process;
use crate::balancer;
use crate::postgres_server::PostgresServer;

/// How many gateways are behind a balancer.
const REPLICAS: usize = 3;
/// How often it is looked whether all of them know a server. A look waits for up to two seconds.
const LOOKS: usize = 15;

/// One gateway, or several of them behind a balancer. They end with the value.
pub struct Gateway {
    url: String,
    processes: Vec<Process>,
    _database: Option<PostgresServer>,
}

impl Gateway {
    /// Starts a gateway with an empty database in `folder`.
    pub fn start(folder: &Path, program: &str) -> Result<Gateway> {
        let line =
            [program, "start", "--host", "127.0.0.1", "--port", "0", "--sqlite-db-path", "toolgate.db"];
        let process = Process::start(folder, "gateway", &line)?;
        let url = process.url.trim_end_matches('/').to_owned();
        Ok(Gateway { url, processes: vec![process], _database: None })
    }

    /// Starts several gateways on an empty Postgres database, and a balancer in front of them.
    pub fn start_replicas(folder: &Path, program: &str) -> Result<Gateway> {
        let database = PostgresServer::start()?;
        let (url, key) = (format!("{}/postgres", database.url()), "5a".repeat(32));
        let variables = [("DATABASE_URL", url.as_str()), ("TOOLGATE_SECRET_KEY", &key)];
        let line = [program, "start", "--host", "127.0.0.1", "--port", "0"];
        let start = |number| Process::start_with(folder, &format!("gateway-{number}"), &line, &variables);
        let processes = (1..=REPLICAS).map(start).collect::<Result<Vec<_>>>()?;
        let address = balancer::start(processes.iter().map(|one| authority(&one.url)).collect())?;
        Ok(Gateway { url: format!("http://{address}"), processes, _database: Some(database) })
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Registers a server. When this returns, the server is connected, its lists were read, and all gateways know it.
    pub fn register(&self, registration: &Value) -> Result<()> {
        let answer = self.ask("POST", "/api/v0/servers", "", &registration.to_string())?;
        if status(&answer) != Some("201") {
            bail!("the server could not be registered: {answer}");
        }
        let epoch = answer.lines().find_map(|line| line.strip_prefix("x-toolgate-epoch: "));
        let epoch = epoch.context("the response to a registration names no epoch")?;
        let since = format!("X-Toolgate-Min-Epoch: {epoch}\r\n");
        for process in &self.processes {
            let is_known = |_| {
                ask(&process.url, "GET", "/api/v0/servers", &since, "")
                    .is_ok_and(|answer| status(&answer) == Some("200"))
            };
            if !(0..LOOKS).any(is_known) {
                bail!("{} does not learn of a server", process.url);
            }
        }
        Ok(())
    }

    /// Calls a tool at each gateway. A gateway that did not register the server connects to it now, and not while the suite waits
    /// for a response, for which it has only half a second.
    pub fn call_everywhere(&self, tool: &str) -> Result<()> {
        for process in &self.processes {
            let call = json!({ "name": tool }).to_string();
            let answer = ask(&process.url, "POST", "/api/v0/tools/invoke", "", &call)?;
            if status(&answer) != Some("200") {
                bail!("{tool} could not be called: {answer}");
            }
        }
        Ok(())
    }

    /// Sends a GET request and returns the body of the response.
    pub fn get(&self, path: &str) -> Result<String> {
        let answer = self.ask("GET", path, "", "")?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if status(head) == Some("200") => Ok(body.to_owned()),
            _ => bail!("GET {path} failed: {answer}"),
        }
    }

    fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Result<String> {
        ask(&self.url, method, path, headers, body)
    }
}

fn ask(url: &str, method: &str, path: &str, headers: &str, body: &str) -> Result<String> {
    let authority = authority(url);
    let mut stream = TcpStream::connect(&authority).context("the gateway does not listen")?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len(),
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn authority(url: &str) -> String {
    url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

fn status(answer: &str) -> Option<&str> {
    answer.split(' ').nth(1)
}

pub fn stdio(name: &str, program: &str, arguments: &[&str]) -> Value {
    json!({ "name": name, "transport": "stdio", "command": program, "args": arguments })
}

pub fn remote(name: &str, transport: Transport, url: &str) -> Value {
    let transport = match transport {
        Transport::StreamableHttp => "streamable_http",
        Transport::Sse => "sse",
        Transport::Stdio => "stdio",
    };
    json!({ "name": name, "transport": transport, "url": url })
}
