//! The stdio transport: one message per line in both directions, as a child process of the client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::core::{self, Incoming, Transport};
use super::state::{Out, Receiver, State, bytes_of};

/// Serves until standard input ends.
pub async fn serve(state: Arc<State>) -> anyhow::Result<()> {
    // Listening for the signal disables its default action.
    let _term = state.behaviour().stubborn.then(|| signal(SignalKind::terminate())).transpose()?;
    let (out, frames) = mpsc::unbounded_channel();
    let writer = tokio::spawn(write(frames));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(text) = lines.next_line().await? {
        let Ok(message) = model::deep_json::parse(&text) else {
            eprintln!("not JSON: {text}");
            continue;
        };
        state.see(&message, &BTreeMap::new());
        let session = String::new();
        let incoming =
            Incoming { transport: Transport::Stdio, text, message, headers: BTreeMap::new(), session };
        if incoming.is_request() {
            tokio::spawn(core::answer(state.clone(), incoming, out.clone()));
        } else {
            core::accept(&state, &incoming);
        }
    }
    if state.behaviour().stubborn {
        std::future::pending::<()>().await;
    }
    // Pending output is still written; running calls must not keep the process alive.
    let _ = tokio::time::timeout(Duration::from_millis(50), writer).await;
    std::process::exit(0)
}

async fn write(mut frames: Receiver) -> std::io::Result<()> {
    let mut stdout = tokio::io::stdout();
    while let Some(frame) = frames.recv().await {
        let mut line = match frame {
            Out::Note(message) => message.to_string(),
            Out::Verbatim(text) | Out::Answer { text, .. } => text,
            Out::Cut | Out::Status(_) => continue,
            Out::HangUp => std::process::exit(1),
        };
        line.push('\n');
        stdout.write_all(&bytes_of(line)).await?;
        stdout.flush().await?;
    }
    Ok(())
}
