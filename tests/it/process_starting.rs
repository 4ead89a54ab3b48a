//! What a gateway answers while it starts: here its database is a server that accepts connections and says nothing.

use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::support::client;
use crate::support::process::{Unready, command, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_waits_for_its_database_is_alive_and_not_ready() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://anna@{}/tools", silent.local_addr().unwrap());
    let key = "ab".repeat(32);
    for mode in ["development", "enterprise"] {
        let folder = TempDir::new().unwrap();
        let variables =
            [("DATABASE_URL", url.as_str()), ("TOOLGATE_SECRET_KEY", &key), ("SERVER_MODE", mode)];
        let gateway = Unready::start(command(folder.path(), &variables)).await;
        for (path, status, body) in
            [("/ready", 503, json!({ "status": "starting" })), ("/health", 200, json!({ "status": "ok" }))]
        {
            let answer = gateway.send("GET", path).await.expect(status);
            assert_eq!(answer.json(), body, "{path}");
            assert_eq!(answer.headers["connection"], "close");
            assert_eq!(answer.headers["cache-control"], "no-store");
            assert_eq!(gateway.send("HEAD", path).await.expect(status).text(), "");
        }
        for (method, path) in [
            ("GET", "/api/v0/servers"),
            ("POST", "/mcp"),
            ("GET", "/sse"),
            ("POST", "/init"),
            ("POST", "/ready"),
            ("GET", "/"),
        ] {
            let answer = gateway.send(method, path).await.expect(503);
            assert!(answer.error().contains("is starting"), "{method} {path}: {}", answer.text());
            assert_eq!(answer.headers["retry-after"], "1");
        }
        // The whole body of a refused request is read, so that its client sees the response.
        let long = vec![b'x'; 1024 * 1024];
        client::request(&gateway.address, "POST", "/mcp", &[], long).await.expect(503);

        let port = gateway.address.rsplit(':').next().unwrap();
        let mut second = command(folder.path(), &variables);
        second.env("PORT", port);
        let sentence = run(second).await.sentence().to_owned();
        assert!(sentence.contains(&format!("port {port} is already in use")), "{sentence}");
        assert_eq!(gateway.stop().await, Some(0));
    }
}
