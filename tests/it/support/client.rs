//! Raw HTTP requests, made with a real HTTP library.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::sse::{Event, Scanner};

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: hyper::HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The sentence of an error, after checking that the body is exactly `{"error": ...}`.
    pub fn error(&self) -> String {
        let body = self.json();
        let object = body.as_object().expect("an error is an object");
        assert_eq!(object.len(), 1, "an error has one field: {body}");
        object["error"].as_str().expect("an error is a sentence").to_owned()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
}

/// Reads the response to a request for `/health` on a connection that stays open.
pub async fn is_healthy(stream: &mut (impl AsyncRead + Unpin)) {
    let mut said = Vec::new();
    while !said.ends_with(br#"{"status":"ok"}"#) {
        let mut part = [0; 1024];
        let length = stream.read(&mut part).await.unwrap();
        assert!(length > 0, "the connection ended after {:?}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&part[..length]);
    }
    assert!(said.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&said));
}

/// Sends one request on a new connection and reads the whole response.
pub async fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Answer {
    attempt(address, method, path, headers, body).await.expect("the gateway answers")
}

/// The same for a gateway that may end meanwhile: fails if there is no complete response.
pub async fn attempt(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> std::io::Result<Answer> {
    let (response, _connection) = attempt_open(address, method, path, headers, body).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
}

/// Sends one request without reading the body of the response; dropping the second part closes the connection.
pub async fn open(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> (Response<Incoming>, Connection) {
    attempt_open(address, method, path, headers, body).await.expect("the gateway answers")
}

async fn attempt_open(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> std::io::Result<(Response<Incoming>, Connection)> {
    let stream = TcpStream::connect(address).await?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(std::io::Error::other)?;
    let driver = tokio::spawn(async move { drop(connection.await) });
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", address);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).expect("the test gives a valid request");
    let response = sender.send_request(request).await.map_err(std::io::Error::other)?;
    Ok((response, Connection { driver, _sender: Box::new(sender) }))
}

/// Sends raw bytes and keeps the connection open.
pub async fn raw(address: &str, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("the gateway listens");
    stream.write_all(bytes).await.expect("the gateway reads");
    stream
}

/// Everything that the gateway sends on a connection until it closes it.
pub async fn rest(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    // A reset after the response also counts as the end.
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

pub struct Connection {
    driver: tokio::task::JoinHandle<()>,
    _sender: Box<dyn std::any::Any + Send + Sync>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Reads an event stream one event at a time.
pub struct Events {
    body: Incoming,
    scanner: Scanner,
    _connection: Connection,
}

impl Events {
    pub fn new((response, connection): (Response<Incoming>, Connection)) -> Self {
        let media = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        assert_eq!(media, Some("text/event-stream"), "status {}", response.status());
        Self { body: response.into_body(), scanner: Scanner::new(1 << 26), _connection: connection }
    }

    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.scanner.next_event() {
                return Some(event.expect("no event is too long"));
            }
            match self.body.frame().await? {
                Ok(frame) => self.scanner.feed(&frame.into_data().unwrap_or_default()),
                Err(_) => return None,
            }
        }
    }
}
