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
async fn off_loopback_addresses_and_allowed_names_are_hosts() {
    let app = TestApp::start_with(|config| {
        config.bind = Bind::Address([0, 0, 0, 0].into());
        config.allowed_hosts = vec!["gate.example".into()];
    })
    .await;
    for host in
        ["gate.example", "Gate.example:1", "localhost", "192.168.0.1:8080", "[2001:db8::1]", "10.0.0.1"]
    {
        app.send("GET", "/health", &[("host", host)], "").await.expect(200);
    }
    for host in ["evil.example", "gate.example.evil.example", "10.0.0.1.evil.example", "[::1", ""] {
        let error = app.send("POST", "/mcp", &[("host", host)], "{}").await.expect(403).error();
        assert!(error.contains("ALLOWED_HOSTS"), "{host:?}: {error}");
    }
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
    let own = format!("http://{}", app.address);
    for origin in [
        own.as_str(),
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
async fn other_pages_of_this_machine_may_use_mcp_and_read_the_rest() {
    let app = TestApp::start().await;
    let own = format!("http://{}", app.address);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (origin, status) in [(own.as_str(), 404), ("http://localhost:3000", 403), ("http://127.0.0.1:1", 403)]
    {
        let origin = [("origin", origin)];
        app.send("POST", "/mcp", &origin, ping).await.expect(200);
        app.send("GET", "/api/v0/tools", &origin, "").await.expect(200);
        app.send("HEAD", "/health", &origin, "").await.expect(200);
        for (method, path) in [
            ("DELETE", "/api/v0/servers/none"),
            ("POST", "/api/v0/servers/none/enable"),
            ("DELETE", "/api/dashboard/servers/none"),
            ("POST", "/nothing"),
        ] {
            app.send(method, path, &origin, "").await.expect(status).error();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_pages_that_send_no_origin_are_judged_by_the_fetch_site() {
    for app in [TestApp::start().await, TestApp::start_enterprise().await] {
        for (site, status) in [("same-origin", 404), ("none", 404), ("cross-site", 403), ("same-site", 403)] {
            let site = [("sec-fetch-site", site)];
            app.send("DELETE", "/api/v0/servers/none", &site, "").await.expect(status).error();
            app.send("POST", "/nothing", &site, "").await.expect(status).error();
            app.send("GET", "/api/v0/tools", &site, "").await.expect(200);
        }
        let site = [("sec-fetch-site", "cross-site")];
        app.send("POST", "/mcp", &site, "{}").await.expect(403).error();
        app.send("POST", "/init", &site, "").await.expect(403).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_host_is_400() {
    for app in [TestApp::start().await, TestApp::start_enterprise().await] {
        for (head, status) in [
            ("GET /health HTTP/1.1\r\n", "400"),
            ("GET http://localhost/health HTTP/1.1\r\n", "400"),
            ("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", "400"),
            ("GET /health HTTP/1.0\r\n", "200"),
        ] {
            let request = format!("{head}Connection: close\r\n\r\n");
            let said = client::rest(client::raw(&app.address, request.as_bytes()).await).await;
            assert_eq!(said.split(' ').nth(1), Some(status), "{head:?}: {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_forbids_sniffing_and_storing() {
    for app in [TestApp::start().await, TestApp::start_enterprise().await] {
        for (method, path, headers) in [
            ("GET", "/health", &[][..]),
            ("GET", "/nothing", &[]),
            ("PUT", "/health", &[]),
            ("GET", "/api/v0/tools", &[]),
            ("GET", "/api/v0/openapi.json", &[]),
            ("GET", "/api/v0/tools", &[("origin", "null")]),
            ("POST", "/api/v0/tools/invoke", &[]),
            ("GET", "/api/dashboard/overview", &[]),
            ("GET", "/api/dashboard/oauth/callback", &[]),
            ("POST", "/mcp", &[]),
            ("PUT", "/mcp", &[]),
            ("GET", "/metrics", &[]),
            ("GET", "/client-metadata.json", &[]),
        ] {
            let answer = app.send(method, path, headers, "").await;
            assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{method} {path}");
            assert_eq!(answer.headers["cache-control"], "no-store", "{method} {path}");
        }
    }
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
