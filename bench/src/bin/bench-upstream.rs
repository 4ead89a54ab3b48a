//! An MCP server with minimal cost, as a program.
//!
//! bench-upstream [--listen 127.0.0.1:9100] [--tools 50] [--era legacy|modern] [--count 1]
//! bench-upstream --stdio 1 [--tools 50]
//!
//! Prints its URL; with a count, a line for each of so many servers.

use std::sync::Arc;

use anyhow::{Result, bail};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use toolgate_bench::server::Server;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (mut listen, mut tools, mut is_modern, mut is_stdio) = ("127.0.0.1:0".to_owned(), 50, false, false);
    let mut count = 1;
    let mut words = std::env::args().skip(1);
    while let (Some(flag), Some(value)) = (words.next(), words.next()) {
        match flag.as_str() {
            "--listen" => listen = value,
            "--tools" => tools = value.parse()?,
            "--era" => is_modern = value == "modern",
            "--count" => count = value.parse()?,
            "--stdio" => is_stdio = value == "1",
            _ => bail!("unknown flag {flag}"),
        }
    }
    let server = Arc::new(Server::new(tools, is_modern));
    if is_stdio {
        return server.serve_lines(std::io::stdin().lock(), std::io::stdout().lock());
    }
    let mut serving = JoinSet::new();
    for _ in 0..count {
        let listener = TcpListener::bind(&listen).await?;
        println!("http://{}/mcp", listener.local_addr()?);
        serving.spawn(server.clone().serve_all(listener));
    }
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    Ok(())
}
