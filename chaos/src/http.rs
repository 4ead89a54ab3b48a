//! A small HTTP/1.1 client: one connection per request, one timeout for all of it, bodies in every framing.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::tls;

/// What the address of a program that serves TLS begins with.
pub const HTTPS: &str = "https://";

/// Maximum size of a response.
const MAX_RESPONSE: u64 = 64 << 20;

/// A request that is sent at once.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Name and value; `Host`, `Connection` and `Content-Length` are added.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub limit: Duration,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// The head as it was sent, from the status line on.
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            limit: Duration::from_secs(60),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into_bytes();
        self.header("Content-Type", "application/json")
    }

    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The bytes that go over the connection.
    pub fn to_bytes(&self, host: &str) -> Vec<u8> {
        let mut head =
            format!("{} {} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", self.body.len()));
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends the request to an address, with TLS if it begins with [`HTTPS`]. The error names the step that failed.
    pub async fn send(&self, address: &str) -> Result<Response> {
        let until = Instant::now() + self.limit;
        let steps = async {
            let plain = address.strip_prefix(HTTPS).unwrap_or(address);
            let stream = self.within(until, "cannot connect", TcpStream::connect(plain)).await?;
            stream.set_nodelay(true)?;
            if plain == address {
                return self.exchange(until, stream, plain).await;
            }
            let session = self.within(until, "cannot connect", tls::connect(stream)).await?;
            self.exchange(until, session, plain).await
        };
        steps.await.with_context(|| format!("{} {}", self.method, self.path))
    }

    async fn exchange(
        &self,
        until: Instant,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        host: &str,
    ) -> Result<Response> {
        let bytes = self.to_bytes(host);
        self.within(until, "cannot send", stream.write_all(&bytes)).await?;
        let mut raw = Vec::new();
        let mut stream = stream.take(MAX_RESPONSE);
        self.within(until, "cannot read the response", stream.read_to_end(&mut raw)).await?;
        Response::parse(&raw)
    }

    async fn within<T, E>(
        &self,
        until: Instant,
        failure: &'static str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T>
    where
        Result<T, E>: Context<T, E>,
    {
        match tokio::time::timeout_at(until, step).await {
            Ok(done) => done.context(failure),
            Err(_) => bail!("{failure} within {:?}", self.limit),
        }
    }
}

impl Response {
    /// Reads a response that ends with its connection. It is an error if the body does not have the announced length.
    pub fn parse(raw: &[u8]) -> Result<Self> {
        let end = raw.windows(4).position(|window| window == b"\r\n\r\n").context("no response head")?;
        let head = String::from_utf8_lossy(&raw[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
        let rest = &raw[end + 4..];
        let is_chunked = header(&head, "transfer-encoding").is_some_and(|coding| coding.contains("chunked"));
        let body = match header(&head, "content-length") {
            Some(length) => {
                let length: usize = length.parse().context("malformed Content-Length")?;
                if rest.len() > length {
                    bail!("{} bytes follow the body", rest.len() - length);
                }
                rest.get(..length).context("the body ended early")?.to_vec()
            }
            None if is_chunked => unchunk(rest)?,
            None => rest.to_vec(),
        };
        Ok(Self { status, head, body })
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The value of a header, by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }
}

/// The value of a header in a head, by its name.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn unchunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").context("a chunk ended early")?;
        let size = std::str::from_utf8(&rest[..end])?.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).context("malformed chunk size")?;
        if size == 0 {
            return Ok(body);
        }
        let chunk = rest.get(end + 2..end + 2 + size).context("a chunk ended early")?;
        body.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..).context("a chunk ended early")?;
    }
}
