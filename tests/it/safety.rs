//! The rules for Host and Origin, and CORS for allowed origins.

use toolgate::config::Bind;
use url::Url;

use crate::support::{TestApp, client};

#[tokio::test(flavor = "multi_thread")]
async fn on_loopback_only_names_of_this_machine_are_hosts() {
    let app =
        TestApp::start_with(|config| config.public_url = Url::parse("https://gate.example:8443/x").ok())
            .await;
    let own =
        ["localhost", "localhost:1", "LocalHost:8080", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:8080"];
    for host in own.into_iter().chain(["gate.example", "gate.example:1", "GATE.example:8443"]) {
        app.send("GET", "/health", &[("host", host)], "").await.expect(200);
    }
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example#localhost",
        "localhost@evil.example",
        "127.0.0.2",
        "0.0.0.0",
        "[::]",
        "192.168.0.1:8080",
        "xgate.example",
        "localhost:evil",
        "",
    ] {
        for path in ["/health", "/api/v0/tools", "/nothing"] {
            let error = app.send("GET", path, &[("host", host)], "").await.expect(403).error();
            assert!(error.contains("host"), "{host:?} {path}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_no_text_or_given_twice_is_refused() {
    let app = TestApp::start().await;
    for head in [
        "Host: ev\u{ef}l.example",
        "Host: localhost\r\nHost: evil.example",
        "Host: evil.example\r\nHost: localhost",
    ] {
        let request = format!("GET /health HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n");
        let said = client::rest(client::raw(&app.address, request.as_bytes()).await).await;
        let status = said.split(' ').nth(1);
        assert!(matches!(status, Some("400" | "403")), "{head:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_in_an_absolute_target_counts_too() {
    let app = TestApp::start().await;
    let request = "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let said = client::rest(client::raw(&app.address, request.as_bytes()).await).await;
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn off_loopback_any_host_will_do_but_a_foreign_origin_will_not() {
    let app = TestApp::start_with(|config| config.bind = Bind::Address([0, 0, 0, 0].into())).await;
    app.send("GET", "/health", &[("host", "gate.example")], "").await.expect(200);
    for (host, origin, status) in [
        ("gate.example", "http://gate.example", 200),
        ("gate.example:80", "http://gate.example", 200),
        ("gate.example", "http://gate.example:80", 200),
        ("gate.example:8080", "http://gate.example:8080", 200),
        ("gate.example:8080", "http://gate.example:8081", 403),
        ("gate.example:8080", "http://gate.example", 403),
        ("gate.example", "http://localhost", 403),
        ("gate.example", "http://127.0.0.1:8080", 403),
        ("gate.example", "null", 403),
    ] {
        app.send("GET", "/health", &[("host", host), ("origin", origin)], "").await.expect(status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_origin_is_refused_on_every_route() {
    let app = TestApp::start_with(|config| config.public_url = Url::parse("https://gate.example").ok()).await;
    for origin in [
        "http://localhost",
        "http://localhost:3000",
        "https://localhost:3000",
        "http://127.0.0.1:9",
        "http://[::1]:9",
        "https://gate.example",
        "https://gate.example:443",
    ] {
        let answer = app.send("GET", "/health", &[("origin", origin)], "").await.expect(200);
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "own origins need no CORS");
    }
    for origin in [
        "null",
        "",
        "https://evil.example",
        "http://gate.example",
        "https://gate.example.evil.example",
        "http://localhost.evil.example",
        "http://evil.example:80@localhost.evil",
        "file://",
        "chrome-extension://abcdef",
        "localhost",
        "*",
    ] {
        for (method, path) in [
            ("GET", "/health"),
            ("GET", "/metadata"),
            ("GET", "/metrics"),
            ("POST", "/init"),
            ("GET", "/api/v0/tools"),
            ("POST", "/api/v0/tools/invoke"),
            ("POST", "/api/v0/servers"),
            ("DELETE", "/api/v0/servers/s"),
            ("GET", "/nothing"),
            ("PUT", "/health"),
            ("OPTIONS", "/api/v0/tools"),
        ] {
            let answer = app.send(method, path, &[("origin", origin)], "").await.expect(403);
            assert!(answer.error().contains("origin"), "{origin:?} {method} {path}");
            assert!(!answer.headers.contains_key("access-control-allow-origin"));
        }
    }
    let two = [("origin", "http://localhost"), ("origin", "https://evil.example")];
    app.send("GET", "/health", &two, "").await.expect(403);
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_origins_get_cors_on_every_answer() {
    let app = TestApp::start_with(|config| config.allowed_origins = vec!["https://app.example".into()]).await;
    let origin = ("origin", "https://app.example");
    for (method, path, status) in [
        ("GET", "/health", 200),
        ("GET", "/nothing", 404),
        ("PUT", "/health", 405),
        ("POST", "/api/v0/tools/invoke", 400),
    ] {
        let answer = app.send(method, path, &[origin], "").await.expect(status);
        assert_eq!(answer.headers["access-control-allow-origin"], "https://app.example", "{path}");
        let exposed = answer.headers["access-control-expose-headers"].to_str().unwrap();
        assert!(
            exposed.contains("Mcp-Session-Id") && exposed.contains("WWW-Authenticate"),
            "{path}: {exposed}"
        );
        let vary: Vec<_> =
            answer.headers.get_all("vary").iter().filter_map(|value| value.to_str().ok()).collect();
        assert!(vary.join(",").contains("Origin"), "{path}: {vary:?}");
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    }
    for path in ["/api/v0/tools/invoke", "/api/v0/servers/s", "/health"] {
        let asked = [
            origin,
            ("access-control-request-method", "DELETE"),
            ("access-control-request-headers", "content-type,x-mine"),
        ];
        let answer = app.send("OPTIONS", path, &asked, "").await.expect(204);
        assert!(answer.body.is_empty());
        assert_eq!(answer.headers["access-control-allow-origin"], "https://app.example");
        assert_eq!(answer.headers["access-control-allow-headers"], "content-type,x-mine");
        let methods = answer.headers["access-control-allow-methods"].to_str().unwrap();
        assert!(["GET", "POST", "PUT", "PATCH", "DELETE"].iter().all(|method| methods.contains(method)));
    }
    for foreign in ["https://app.example.evil", "http://app.example", "https://app.example:444"] {
        let asked = [("origin", foreign), ("access-control-request-method", "POST")];
        app.send("OPTIONS", "/api/v0/tools/invoke", &asked, "").await.expect(403);
    }
}
