//! Hostile requests: no body, path or query causes a 500, a panic or a dropped connection.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Behaviour, Fake, TestApp, client};

const LIMIT: usize = 4 * 1024 * 1024;

/// A call of `echo` with a body of exactly that many bytes.
fn call_of(size: usize) -> String {
    let frame = r#"{"name":"s__add","pad":""}"#.len();
    format!(r#"{{"name":"s__add","pad":"{}"}}"#, "x".repeat(size - frame))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_4_mib_passes_and_one_byte_more_is_413() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.invoke_raw(&call_of(LIMIT)).await.expect(200);
    let error = app.invoke_raw(&call_of(LIMIT + 1)).await.expect(413).error();
    assert!(error.contains("4194304"), "{error}");
    let big = "x".repeat(LIMIT + 1);
    for (method, path) in [("POST", "/init"), ("GET", "/health"), ("PUT", "/health"), ("POST", "/nothing")] {
        app.send(method, path, &[], big.clone()).await.expect(413).error();
    }
    assert_eq!(fake.calls_of("add"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_large_body_arrives_and_the_connection_goes_on() {
    let app = TestApp::start().await;
    let mut stream = TcpStream::connect(&app.address).await.unwrap();
    let size = 15 * 1024 * 1024;
    let head = format!("POST /init HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; size]).await.expect("the rest is taken and thrown away");
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let said = client::rest(stream).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    assert!(said.contains("HTTP/1.1 200"), "the next request on the connection is answered: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_body_over_the_limit_is_413_too() {
    let app = TestApp::start().await;
    let head =
        "POST /init HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let mut stream = client::raw(&app.address, head.as_bytes()).await;
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 0x10_0000], b"\r\n"].concat();
    for _ in 0..5 {
        stream.write_all(&chunk).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let said = client::rest(stream).await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_stalls_in_an_oversized_body_is_answered_after_five_seconds() {
    let app = TestApp::start().await;
    let head = format!("POST /init HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 3 * LIMIT);
    let mut stream = client::raw(&app.address, head.as_bytes()).await;
    let begun = Instant::now();
    stream.write_all(&vec![b'x'; LIMIT + 1]).await.unwrap();
    let mut said = [0; 12];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 413");
    assert!(begun.elapsed() < Duration::from_secs(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_the_sender_of_a_large_body() {
    let app = TestApp::start().await;
    let big = "x".repeat(LIMIT);
    for headers in [[("origin", "https://evil.example")], [("host", "evil.example")]] {
        app.send("POST", "/api/v0/tools/invoke", &headers, big.clone()).await.expect(403).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_json_whatever_their_content_type_says() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let body = r#"{"name":"s__echo","text":"hi"}"#;
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "image/png",
        "",
        "???",
    ] {
        app.send("POST", "/api/v0/tools/invoke", &[("content-type", content_type)], body).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_odd_body_is_answered() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    let deep = |open: &str, close: &str, depth| format!("{}{}", open.repeat(depth), close.repeat(depth));
    let mut bodies: Vec<Vec<u8>> = [
        "{",
        "}",
        "[",
        "nul",
        "\"",
        "\u{feff}{}",
        "{\"a\":1,}",
        "{'name':1}",
        "//x\n{}",
        "\0",
        "{\"name\":\"\0\"}",
        "1e999999",
        "-",
        "{}{}",
        "{\"name\":\"\\ud800\"}",
        "{\"\\ud800\":1}",
        "{\"name\":1e999}",
        "{\"url\":1e999}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    bodies.extend([
        b"\xff".to_vec(),
        b"{\"name\":\"\xff\"}".to_vec(),
        b"{\"\xc3\x28\":1}".to_vec(),
        b"{\"name\":\"s__echo\",\"x\":\"\xed\xa0\x80\"}".to_vec(),
    ]);
    for depth in [2_000, 100_000, 1_000_000] {
        bodies.push(deep("[", "]", depth).into());
        bodies.push(deep("{\"a\":", "}", depth / 2).into());
        bodies.push(format!("{{\"name\":\"s__echo\",\"x\":{}}}", deep("[", "]", depth)).into());
        bodies.push("[".repeat(depth).into());
    }
    bodies.push(format!("{{\"name\":{}}}", "9".repeat(1 << 20)).into());
    for path in
        ["/init", "/api/v0/servers", "/api/v0/tools/invoke", "/api/v0/tools/enable", "/api/v0/tools/disable"]
    {
        for body in &bodies {
            let shown: String = String::from_utf8_lossy(body).chars().take(40).collect();
            let answer = app.send("POST", path, &[], body.clone()).await;
            assert!(
                matches!(answer.status, 400 | 404),
                "{path} {shown}: {} {}",
                answer.status,
                answer.text()
            );
            answer.error();
        }
    }
    for body in &bodies {
        app.send("PATCH", "/api/v0/servers/s", &[], body.clone()).await.expect(400).error();
    }
    assert_eq!(fake.calls_of("echo"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_and_nesting_within_json_reach_the_tool() {
    let app = TestApp::start().await;
    for (server, era) in [("legacy", "legacy"), ("modern", "modern")] {
        let fake = Fake::start(Behaviour::of(json!({ "era": era }))).await;
        app.register_http(server, &fake).await;
        for value in [
            format!("1{}", "0".repeat(300)),
            "1e-999999".into(),
            format!("{}{}", "[".repeat(100), "]".repeat(100)),
        ] {
            let body = format!(r#"{{"name":"{server}__echo_args","x":{value}}}"#);
            let result = app.invoke_raw(&body).await.expect(200).json();
            assert_eq!(result["content"][0]["text"], format!(r#"{{"x":{value}}}"#));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_percent_encoding_is_answered() {
    let app = TestApp::start().await;
    for odd in [
        "%", "%f", "%zz", "%ff", "%00", "%2e%2e", "..", "%2F", "a%2fb", "%e2%82", "+", "%25", "a%0d%0ab",
        ";x",
    ] {
        for (method, path) in [
            ("GET", format!("/api/v0/servers/{odd}")),
            ("DELETE", format!("/api/v0/servers/{odd}")),
            ("PATCH", format!("/api/v0/servers/{odd}")),
            ("POST", format!("/api/v0/servers/{odd}/enable")),
            ("POST", format!("/api/v0/servers/{odd}/refresh")),
            ("GET", format!("/api/v0/tools?server={odd}")),
            ("GET", format!("/api/v0/tools?all={odd}")),
            ("GET", format!("/api/v0/tool?name={odd}")),
            ("GET", format!("/api/v0/tool?{odd}={odd}&&=&name")),
            ("POST", format!("/api/v0/tools/enable?entity={odd}")),
            ("POST", format!("/api/v0/servers?force={odd}")),
            ("GET", format!("/{odd}")),
        ] {
            let answer = app.send(method, &path, &[], "{}").await;
            assert!(
                matches!(answer.status, 400 | 404),
                "{method} {path}: {} {}",
                answer.status,
                answer.text()
            );
            answer.error();
        }
    }
    app.get("/health").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_http_is_refused_and_the_gateway_goes_on() {
    let app = TestApp::start().await;
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(70_000));
    let many: String = (0..300).map(|number| format!("x-{number}: 1\r\n")).collect();
    let many = format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    let both = "POST /init HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}";
    let chunk = "POST /init HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n";
    for bytes in ["\r\n\r\nnonsense\r\n\r\n", "GET\r\n\r\n", &long, &many, both, chunk] {
        let said = client::rest(client::raw(&app.address, bytes.as_bytes()).await).await;
        let shown: String = bytes.chars().take(30).collect();
        assert!(said.starts_with("HTTP/1.1 4"), "{shown:?}: {said}");
    }
    app.get("/health").await.expect(200);
}
