//! The servers that ask their clients, for clients of the same and of the other era: each server over each of its
//! transports, at its own endpoint and at `/mcp`.

use std::path::Path;
use std::thread;

use anyhow::Result;
use serde_json::{Value, json};

use super::capable;
use crate::conformance::Transport;
use crate::conformance::gateway::{self, Gateway};
use crate::conformance::process::Process;
use crate::packages::Packages;

const HTTP: Way = (Transport::StreamableHttp, "http", BOTH);
const SSE: Way = (Transport::Sse, "sse", STATELESS);
const STDIO: Way = (Transport::Stdio, "stdio", STATELESS);
const STATELESS: &[&str] = &["stateless"];
const BOTH: &[&str] = &["stateless", "stateful"];

/// A transport, the script's word for it, and the modes in which the server is registered: a stateful server on stdio gets
/// a process for each session, which takes a second to start.
type Way = (Transport, &'static str, &'static [&'static str]);

/// What the clients do there, the era, the transports and the script of each server.
#[rustfmt::skip]
const SERVERS: &[(&str, &str, &[Way], &[&str])] = &[
    ("asker", "legacy", &[HTTP, SSE, (Transport::Stdio, "stdio", BOTH)], &["asker_1.py"]),
    ("asker", "modern", &[HTTP, STDIO], &["asker.py", "modern"]),
    ("asker", "both", &[HTTP, STDIO], &["asker.py", "both"]),
    ("everything", "legacy", &[(Transport::StreamableHttp, "streamableHttp", STATELESS), SSE, STDIO], &["everything.mjs"]),
];

/// A server over one transport.
struct Asking {
    kind: &'static str,
    era: &'static str,
    transport: Transport,
    modes: &'static [&'static str],
    line: Vec<String>,
}

impl Asking {
    /// All servers. The Pythons are those of the SDKs 1 and 2.
    fn all(installed: &Packages, [one, two]: &[String; 2]) -> Result<Vec<Asking>> {
        let mut servers = Vec::new();
        for &(kind, era, transports, words) in SERVERS {
            let program = match words[0] {
                "asker_1.py" => one,
                "asker.py" => two,
                _ => installed.node()?,
            };
            for &(transport, word, modes) in transports {
                let mut line = vec![program.to_owned(), installed.path(words[0])?];
                line.extend(words[1..].iter().chain([&word]).map(|&word| word.to_owned()));
                servers.push(Asking { kind, era, transport, modes, line });
            }
        }
        Ok(servers)
    }

    fn name(&self) -> String {
        let transport = match self.transport {
            Transport::StreamableHttp => "http",
            Transport::Sse => "sse",
            Transport::Stdio => "stdio",
        };
        format!("{}-{}-{transport}", self.kind, self.era)
    }

    /// The server for the scripts. The prefix is that of its tools.
    fn describe(&self, name: &str, prefix: &str) -> Value {
        json!({ "name": name, "kind": self.kind, "era": self.era, "prefix": prefix })
    }

    fn line(&self) -> Vec<&str> {
        self.line.iter().map(String::as_str).collect()
    }
}

/// The servers, and the processes of those that do not run on stdio. These run until the value is dropped.
pub struct Pairs(Vec<(Asking, Option<Process>)>);

impl Pairs {
    /// Starts all servers at once.
    pub fn start(results: &Path, installed: &Packages, pythons: &[String; 2]) -> Result<Pairs> {
        let servers = Asking::all(installed, pythons)?;
        let start = |server: &Asking| match server.transport {
            Transport::Stdio => Ok(None),
            Transport::StreamableHttp | Transport::Sse => {
                Process::start(results, &server.name(), &server.line()).map(Some)
            }
        };
        let started = thread::scope(|scope| {
            let starting: Vec<_> = servers.iter().map(|server| scope.spawn(move || start(server))).collect();
            let started = starting.into_iter().map(|one| one.join().expect("a start does not panic"));
            started.collect::<Result<Vec<_>>>()
        })?;
        Ok(Pairs(servers.into_iter().zip(started).collect()))
    }

    /// Registers the servers, and returns all addresses, each with its servers, as JSON.
    pub fn register(&self, gateway: &Gateway) -> Result<String> {
        let (mut places, mut all, mut registrations) = (Vec::new(), Vec::new(), Vec::new());
        for (server, process) in &self.0 {
            for &mode in server.modes {
                let name = format!("{}-{mode}", server.name());
                let mut registration = match process {
                    Some(process) => gateway::remote(&name, server.transport, &process.url),
                    None => gateway::stdio(&name, server.line()[0], &server.line()[1..]),
                };
                registration["session_mode"] = mode.into();
                registrations.push(registration);
                let native = format!("{}/v0/servers/{name}/mcp", gateway.url());
                places
                    .push(json!({ "url": native, "direct": false, "servers": [server.describe(&name, "")] }));
                all.push(server.describe(&name, &format!("{name}__")));
            }
            // Clients have no SSE of their own.
            if let (Some(process), Transport::StreamableHttp) = (process, server.transport) {
                let servers = [server.describe(&server.name(), "")];
                places.push(json!({ "url": process.url, "direct": true, "servers": servers }));
            }
        }
        capable::register_all(gateway, &registrations)?;
        places.push(json!({ "url": format!("{}/mcp", gateway.url()), "direct": false, "servers": all }));
        Ok(Value::Array(places).to_string())
    }
}
