//! Starts a separate gateway for one case and registers the fixture in it, with a minimal HTTP client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Transport;
use super::process::Process;

pub struct Gateway(Process);

impl Gateway {
    /// Starts a gateway with an empty database in `folder`.
    pub fn start(folder: &Path, program: &str) -> Result<Gateway> {
        let line =
            [program, "start", "--host", "127.0.0.1", "--port", "0", "--sqlite-db-path", "toolgate.db"];
        Ok(Gateway(Process::start(folder, "gateway", &line)?))
    }

    pub fn url(&self) -> String {
        self.0.url.trim_end_matches('/').to_owned()
    }

    pub fn into_process(self) -> Process {
        self.0
    }

    /// Registers a server. When this returns, the server is connected and its lists were read.
    pub fn register(&self, registration: &Value) -> Result<()> {
        let answer = self.ask("POST", "/api/v0/servers", &registration.to_string())?;
        if answer.split(' ').nth(1) != Some("201") {
            bail!("the server could not be registered: {answer}");
        }
        Ok(())
    }

    /// Sends a GET request and returns the body of the response.
    pub fn get(&self, path: &str) -> Result<String> {
        let answer = self.ask("GET", path, "")?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
            _ => bail!("GET {path} failed: {answer}"),
        }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let url = self.url();
        let authority = url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(authority).context("the gateway does not listen")?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len(),
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
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
