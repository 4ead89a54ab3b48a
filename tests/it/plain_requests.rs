//! Requests that the gateway reads itself instead of leaving them to hyper: however they arrive, and whatever comes before
//! and after them on the connection, each gets its own response.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Behaviour, Fake, TestApp, eventually};

const CHUNKED: &str = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";

fn message(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn request(body: &str, headers: &str) -> String {
    let length = body.len();
    format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

fn ping(id: u64) -> String {
    request(&message(id, "ping", json!({})), "")
}

/// A response: its status, and its body as JSON.
async fn response(stream: &mut TcpStream) -> (u16, Value) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a response"));
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_slice(&body).unwrap_or_default())
}

async fn answers(stream: &mut TcpStream, id: u64) {
    let (status, body) = response(stream).await;
    assert_eq!((status, &body["id"]), (200, &json!(id)), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_sent_at_once_are_answered_in_order() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    let all: String = (0..50).map(ping).collect();
    stream.write_all(all.as_bytes()).await.unwrap();
    for id in 0..50 {
        answers(&mut stream, id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_the_same_however_it_arrives() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let whole = ping(1);
    for cut in (1..whole.len()).step_by(7) {
        stream.write_all(&whole.as_bytes()[..cut]).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&whole.as_bytes()[cut..]).await.unwrap();
        answers(&mut stream, 1).await;
    }
    let large = message(2, "ping", json!({"padding": "x".repeat(30_000)}));
    stream.write_all(request(&large, "").as_bytes()).await.unwrap();
    answers(&mut stream, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_and_unusual_requests_share_a_connection() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    for id in 0..5 {
        let body = message(100 + id, "ping", json!({}));
        let unusual = format!("{CHUNKED}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        // One after the other, and the next one before the last is answered.
        stream.write_all(ping(id).as_bytes()).await.unwrap();
        answers(&mut stream, id).await;
        stream.write_all(format!("{unusual}{}{unusual}", ping(id)).as_bytes()).await.unwrap();
        for id in [100 + id, id, 100 + id] {
            answers(&mut stream, id).await;
        }
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert_eq!(response(&mut stream).await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_stream_the_connection_is_used_again() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    let params = json!({"name": "s__progress", "arguments": {}, "_meta": {"progressToken": "t"}});
    let call = request(&message(7, "tools/call", params), "Accept: application/json, text/event-stream\r\n");
    stream.write_all(format!("{call}{}", ping(8)).as_bytes()).await.unwrap();
    let mut streamed = Vec::new();
    while !streamed.ends_with(b"\r\n0\r\n\r\n") {
        streamed.push(stream.read_u8().await.unwrap());
    }
    let streamed = String::from_utf8(streamed).unwrap();
    assert!(
        streamed.contains("text/event-stream") && streamed.contains(r#""progressToken":"t""#),
        "{streamed}"
    );
    assert!(streamed.contains(r#""id":7"#), "{streamed}");
    answers(&mut stream, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_counts_for_its_own_request_only() {
    let app = TestApp::start_enterprise().await;
    let [first, second] = [app.create_client("first", &[]).await, app.create_client("second", &[]).await];
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    let mut status = async |token: &str| {
        let headers = format!("Authorization: Bearer {token}\r\n");
        stream.write_all(request(&message(1, "ping", json!({})), &headers).as_bytes()).await.unwrap();
        response(&mut stream).await.0
    };
    let wrong = format!("{}x", &first[..first.len() - 1]);
    for (token, expected) in
        [(&first, 200), (&first, 200), (&wrong, 401), (&second, 200), (&first, 200), (&wrong, 401)]
    {
        assert_eq!(status(token).await, expected);
    }
    assert_eq!(status(&first).await, 200);
    app.put("/api/v0/clients/first", json!({"allow_list": [], "access_token": "another-token-of-first"}))
        .await
        .expect(200);
    assert_eq!((status(&first).await, status("another-token-of-first").await), (401, 200));
    app.delete("/api/v0/clients/first").await.expect(204);
    assert_eq!((status("another-token-of-first").await, status(&second).await), (401, 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_does_not_end_its_legacy_call() {
    let app = TestApp::start_with(|config| config.telemetry = true).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    let params = json!({"name": "s__slow", "arguments": {"ms": 300}});
    stream.write_all(request(&message(1, "tools/call", params), "").as_bytes()).await.unwrap();
    eventually("the call runs", async || fake.calls_of("slow") == 1).await;
    drop(stream);
    let calls = async || app.get("/metrics").await.text().contains(r#"tool="slow",outcome="ok"} 1"#);
    eventually("the call has ended well", calls).await;
    assert!(fake.cancelled().is_empty());
}
