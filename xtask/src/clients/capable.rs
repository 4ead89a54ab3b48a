//! The servers of the capable clients: those that declare all capabilities. Each server has an address of its own, and four
//! at the gateway: for each transport, and stateless and stateful.

use std::path::Path;
use std::thread;

use anyhow::Result;
use serde_json::{Map, Value};

use crate::conformance::Transport;
use crate::conformance::gateway::{self, Gateway};
use crate::conformance::process::Process;

/// A server that runs over HTTP, and the command that starts it on stdio.
pub struct Capable<'a> {
    pub name: &'static str,
    pub url: &'a str,
    pub line: [&'a str; 3],
}

/// Starts `workshop.py`, which runs until the value is dropped.
pub fn start_workshop(results: &Path, python: &str, script: &str) -> Result<Process> {
    Process::start(results, "workshop", &[python, script, "http"])
}

/// Registers the servers, and returns all their addresses by name, as JSON.
pub fn register(gateway: &Gateway, servers: &[Capable<'_>]) -> Result<String> {
    let (mut addresses, mut registrations) = (Map::new(), Vec::new());
    for &Capable { name, url, line: [program, ref arguments @ ..] } in servers {
        addresses.insert(format!("{name}-direct"), url.into());
        for mode in ["stateless", "stateful"] {
            let names = ["http", "stdio"].map(|transport| format!("{name}-{transport}-{mode}"));
            let both = [
                gateway::remote(&names[0], Transport::StreamableHttp, url),
                gateway::stdio(&names[1], program, arguments),
            ];
            for (name, mut registration) in names.into_iter().zip(both) {
                registration["session_mode"] = mode.into();
                registrations.push(registration);
                let address = format!("{}/v0/servers/{name}/mcp", gateway.url());
                addresses.insert(name, address.into());
            }
        }
    }
    register_all(gateway, &registrations)?;
    Ok(Value::Object(addresses).to_string())
}

/// Registers servers at once, since each registration waits for its server to start.
pub fn register_all(gateway: &Gateway, registrations: &[Value]) -> Result<()> {
    thread::scope(|scope| {
        let started: Vec<_> =
            registrations.iter().map(|registration| scope.spawn(|| gateway.register(registration))).collect();
        started.into_iter().try_for_each(|one| one.join().expect("a registration does not panic"))
    })
}
