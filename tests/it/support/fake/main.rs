//! The fake upstream as a program: `--stdio` uses standard input and output, `--http [port]` listens on loopback and
//! prints its address on the first line. `--config <json>` sets its behaviour.

// Two programs are built from these files, and each uses only a part of them.
#![allow(dead_code, clippy::disallowed_methods, clippy::disallowed_types)]

mod behaviour;
mod catalog;
mod control;
mod core;
mod http;
mod interview;
mod modern;
mod net;
mod sse;
mod state;
mod stdio;
mod tasks;
mod tools;

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, bail};
use behaviour::Behaviour;
use state::{Home, State};
use tokio::net::TcpListener;

enum Face {
    Stdio,
    Http(u16),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let (face, behaviour) = arguments(std::env::args().skip(1))?;
    for line in &behaviour.stderr {
        eprintln!("{line}");
    }
    if let Some(code) = behaviour.exit_on_start {
        std::process::exit(code);
    }
    let state = Arc::new(State::new(behaviour, Home::Process));
    match face {
        Face::Stdio => stdio::serve(state).await,
        Face::Http(port) => {
            let listener = TcpListener::bind(("127.0.0.1", port)).await.context("the port is not free")?;
            writeln!(std::io::stdout(), "http://{}/mcp", listener.local_addr()?)?;
            net::serve(listener, state).await
        }
    }
}

fn arguments(mut given: impl Iterator<Item = String>) -> anyhow::Result<(Face, Behaviour)> {
    let (mut face, mut behaviour) = (Face::Stdio, Behaviour::default());
    while let Some(flag) = given.next() {
        match flag.as_str() {
            "--stdio" => face = Face::Stdio,
            "--http" => face = Face::Http(given.next().context("--http needs a port")?.parse()?),
            "--config" => {
                let json = given.next().context("--config needs JSON")?;
                behaviour = serde_json::from_str(&json).context("--config is not a behaviour")?;
            }
            other => bail!("unknown argument {other}"),
        }
    }
    Ok((face, behaviour))
}
