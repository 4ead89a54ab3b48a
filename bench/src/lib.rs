//! What the benchmarks share. This file is minimal HTTP: complete messages with a length, over keep-alive connections. It
//! does no more than that, so that the gateway is measured and not this code.

pub mod client;
pub mod gateway;
pub mod grant;
pub mod load;
pub mod server;
pub mod system;
pub mod target;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const MODERN: &str = "2026-07-28";
pub const LEGACY: &str = "2025-11-25";

/// A connection, and the bytes that were read after the last message.
pub struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

/// One message: its head as text, and its body.
pub struct Message {
    pub head: String,
    pub body: Vec<u8>,
}

impl Wire {
    pub async fn connect(address: &str) -> Result<Self> {
        Self::new(TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?)
    }

    pub fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }

    /// Reads the next message; `None` when the other side has closed the connection.
    pub async fn receive(&mut self) -> Result<Option<Message>> {
        let Some(head) = self.receive_head().await? else { return Ok(None) };
        let length: usize = match header(&head, "content-length") {
            Some(length) => length.parse()?,
            None if head.starts_with("HTTP/1.1 20") && header(&head, "transfer-encoding").is_some() => {
                bail!("the answer is a stream: {head}")
            }
            None => 0,
        };
        while self.read.len() < length {
            if self.fill().await? == 0 {
                bail!("the connection ended within a message");
            }
        }
        Ok(Some(Message { head, body: self.read.drain(..length).collect() }))
    }

    /// Reads the head of the next message, whose body the caller reads; `None` when the other side has closed the
    /// connection.
    pub async fn receive_head(&mut self) -> Result<Option<String>> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).context("a head is text")?;
        Ok(Some(head))
    }

    /// Returns the connection and the bytes that were read after the last message or head.
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.read)
    }

    async fn fill(&mut self) -> Result<usize> {
        self.read.reserve(64 * 1024);
        Ok(self.stream.read_buf(&mut self.read).await?)
    }
}

/// The value of a header, by its lower-case name.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
