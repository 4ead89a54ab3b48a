//! Keep-alive connections: the next request is served, whatever happened on the connection before.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{TestApp, client};

/// Longer than it takes until a connection counts as idle.
const LONG: Duration = Duration::from_millis(150);
const REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
const LAST_REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Checks that for this time the other side neither sends anything nor closes the connection.
async fn stays_open_and_silent(stream: &mut TcpStream) {
    let read = tokio::time::timeout(LONG, stream.read(&mut [0; 1])).await;
    assert!(read.is_err(), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_serves_the_next_request() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    for _ in 0..3 {
        stream.write_all(REQUEST).await.unwrap();
        client::is_healthy(&mut stream).await;
        stays_open_and_silent(&mut stream).await;
    }
    stream.write_all(LAST_REQUEST).await.unwrap();
    let said = client::rest(stream).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_in_pieces_with_long_pauses_is_served_whole() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    stream.write_all(REQUEST).await.unwrap();
    client::is_healthy(&mut stream).await;
    // The first piece comes right after a response, so that the pauses fall in the middle of a head.
    let (last, pieces) = LAST_REQUEST.split_last().unwrap();
    for piece in pieces.chunks(17) {
        stream.write_all(piece).await.unwrap();
        stays_open_and_silent(&mut stream).await;
    }
    stream.write_all(&[*last]).await.unwrap();
    let said = client::rest(stream).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_all_answered_in_order() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    stream.write_all(&[REQUEST, REQUEST, LAST_REQUEST].concat()).await.unwrap();
    let said = client::rest(stream).await;
    assert_eq!(said.matches("HTTP/1.1 200").count(), 3, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_stays_open() {
    let app = TestApp::start().await;
    let head = "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    let mut stream = client::raw(&app.address, head.as_bytes()).await;
    let mut part = [0; 4096];
    assert!(stream.read(&mut part).await.unwrap() > 0);
    let more = async {
        // The head and the first event may come in two pieces; then nothing comes, and the stream stays open.
        loop {
            assert!(stream.read(&mut part).await.unwrap() > 0, "the stream ended");
        }
    };
    assert!(tokio::time::timeout(LONG * 3, more).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_arrives_byte_by_byte_is_given_up() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    let begun = Instant::now();
    let head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".iter().chain(std::iter::repeat(&b'x'));
    for byte in head {
        // The pause is longer than it takes until a connection counts as idle.
        let is_closed = stream.write_all(&[*byte]).await.is_err()
            || tokio::time::timeout(LONG * 2, stream.read(&mut [0; 1])).await.is_ok();
        if is_closed {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the connection is still open after a minute");
    }
    assert!(begun.elapsed() > Duration::from_secs(14), "closed after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_cannot_be_read_is_answered_like_any_other() {
    let app = TestApp::start().await;
    let many: String = (0..200).map(|number| format!("X{number}: y\r\n")).collect();
    for (request, status) in [
        ("GARBAGE\r\n\r\n".to_owned(), 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(), 400),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000)), 414),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), 431),
    ] {
        let said = client::rest(client::raw(&app.address, request.as_bytes()).await).await;
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
        assert!(head.contains("nosniff") && head.contains("no-store") && head.contains("json"), "{said}");
        assert!(
            body.starts_with(r#"{"error":""#) && head.contains(&format!("length: {}", body.len())),
            "{said}"
        );
    }
}
