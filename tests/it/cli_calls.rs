//! What `toolgate start` shows of calls on a terminal.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::cli::Cli;
use crate::support::terminal::Terminal;
use crate::support::{Behaviour, Fake, client};

#[tokio::test(flavor = "multi_thread")]
async fn start_shows_calls_on_a_terminal_unless_it_is_quiet() {
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    for (flags, is_shown) in
        [(&["start", "--port", "0"][..], true), (&["start", "--port", "0", "--quiet"], false)]
    {
        let cli = Cli::new("127.0.0.1:1");
        let mut gateway = Terminal::start(&cli, flags);
        let mut lines = BufReader::new(gateway.stdout()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let address = first.rsplit("http://").next().unwrap().to_owned();
        let post = async |path: &str, body: Value| {
            client::request(&address, "POST", path, &[], body.to_string().into_bytes()).await
        };
        let server = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
        post("/api/v0/servers", server).await.expect(201);
        post("/api/v0/tools/invoke", json!({ "name": "web__echo", "text": "hi" })).await.expect(200);
        if is_shown {
            gateway.sees("ok ").await;
            gateway.sees("  web__echo").await;
        }
        gateway.types("\u{3}");
        assert_eq!(gateway.end().await.stderr.contains("web__echo"), is_shown);
    }
}
