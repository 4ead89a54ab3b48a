//! A client of the gateway's HTTP+SSE transport: an open stream, and the responses on it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::event::parse_event;

/// How long opening a stream may take.
const OPENING: Duration = Duration::from_secs(10);

pub struct SseClient {
    reader: BufReader<TcpStream>,
    /// Received bytes that are not yet a complete event.
    pending: String,
    /// The path to which messages are posted.
    pub endpoint: String,
    answered: BTreeSet<u64>,
}

impl SseClient {
    pub async fn open(address: &str) -> Result<Self> {
        tokio::time::timeout(OPENING, Self::begin(address)).await.context("the event stream does not open")?
    }

    async fn begin(address: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /sse HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).await? == 0 {
                bail!("no event stream: {head}");
            }
        }
        if !head.starts_with("HTTP/1.1 200") {
            bail!("no event stream: {head}");
        }
        let mut client =
            Self { reader, pending: String::new(), endpoint: String::new(), answered: BTreeSet::new() };
        let first = client.next_block().await?;
        let data = first.lines().find_map(|line| line.strip_prefix("data:")).context("no endpoint")?;
        client.endpoint = data.trim().to_owned();
        Ok(client)
    }

    /// Reads all messages up to the response with this id.
    pub async fn until_answer(&mut self, id: u64, limit: Duration) -> Result<Vec<Value>> {
        let messages = async {
            let mut messages = Vec::new();
            loop {
                let block = self.next_block().await?;
                let Some((_, message)) = parse_event(&block)? else { continue };
                let answers = message["id"].as_u64().filter(|_| message.get("method").is_none());
                match answers {
                    Some(answered) if self.answered.contains(&answered) => {
                        bail!("a second answer to {answered}")
                    }
                    Some(answered) if answered != id => {
                        bail!("an answer to {answered}, which was never asked")
                    }
                    Some(_) => {
                        self.answered.insert(id);
                        messages.push(message);
                        return Ok(messages);
                    }
                    None => messages.push(message),
                }
            }
        };
        tokio::time::timeout(limit, messages).await.context("no answer on the stream")?
    }

    /// The text of the next event.
    async fn next_block(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.pending.find("\n\n") {
                let rest = self.pending.split_off(end + 2);
                return Ok(std::mem::replace(&mut self.pending, rest));
            }
            let mut size = String::new();
            if self.reader.read_line(&mut size).await? == 0 {
                bail!("the event stream ended");
            }
            let size = usize::from_str_radix(size.trim(), 16).context("malformed chunk size")?;
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).await?;
            if size == 0 {
                bail!("the event stream ended");
            }
            self.pending.push_str(std::str::from_utf8(&chunk[..size]).context("a stream that is not UTF-8")?);
        }
    }
}
