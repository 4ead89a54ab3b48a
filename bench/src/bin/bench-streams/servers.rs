//! The MCP servers behind the gateway: one listener in its own thread, with a path for each server. A server's list of
//! tools can be changed; the server announces the change.

use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use toolgate_bench::gateway::Gateway;
use toolgate_bench::system::step_forward;
use toolgate_bench::{LEGACY, Wire};

const CHANGED: &str = r#"data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

pub struct Servers {
    pub address: String,
    /// For each server, the number of changes of its list.
    editions: Arc<Vec<watch::Sender<u64>>>,
}

impl Servers {
    pub fn start(count: usize, tools: usize) -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let editions: Arc<Vec<_>> = Arc::new((0..count).map(|_| watch::Sender::new(0)).collect());
        let shared = editions.clone();
        std::thread::spawn(move || {
            step_forward();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(accept(listener, shared, tools))
        });
        Ok(Self { address, editions })
    }

    fn url(&self, server: usize) -> String {
        format!("http://{}/{server}", self.address)
    }

    /// Registers the servers at a gateway as `s0`, `s1` and so on.
    pub async fn register_at(&self, gateway: &Gateway) -> Result<()> {
        for number in 0..self.editions.len() {
            gateway.register(&server_name(number), &self.url(number)).await?;
        }
        Ok(())
    }

    /// Changes the description of the server's last tool and announces the change.
    pub fn change(&self, server: usize) {
        self.editions[server].send_modify(|edition| *edition += 1);
    }
}

pub fn server_name(number: usize) -> String {
    format!("s{number}")
}

async fn accept(
    listener: std::net::TcpListener,
    editions: Arc<Vec<watch::Sender<u64>>>,
    tools: usize,
) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let editions = editions.clone();
        tokio::spawn(async move {
            // The gateway closes its connections when it stops.
            let _ = serve(stream, &editions, tools).await;
        });
    }
}

async fn serve(stream: TcpStream, editions: &[watch::Sender<u64>], tools: usize) -> Result<()> {
    let mut wire = Wire::new(stream)?;
    while let Some(message) = wire.receive().await? {
        let mut words = message.head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let server: usize =
            path.trim_start_matches('/').parse().context("a path is the number of a server")?;
        let edition = editions.get(server).context("there is no such server")?;
        match method {
            "POST" => {
                let answer = answer(&message.body, *edition.borrow(), tools)?;
                wire.send(answer.as_bytes()).await?;
            }
            "GET" => return announce(wire.into_parts().0, edition.subscribe()).await,
            _ => wire.send(response("405 Method Not Allowed", "").as_bytes()).await?,
        }
    }
    Ok(())
}

async fn announce(mut stream: TcpStream, mut edition: watch::Receiver<u64>) -> Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").await?;
    while edition.changed().await.is_ok() {
        stream.write_all(format!("{CHANGED}\n\n").as_bytes()).await?;
    }
    Ok(())
}

fn answer(body: &[u8], edition: u64, tools: usize) -> Result<String> {
    let request: Value = serde_json::from_slice(body).context("a request is JSON")?;
    let Some(id) = request.get("id") else { return Ok(response("202 Accepted", "")) };
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": LEGACY,
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "bench", "version": "1"},
        }),
        "tools/list" => {
            let list: Vec<_> = (0..tools).map(|number| tool(number, number + 1 == tools, edition)).collect();
            json!({"tools": list})
        }
        "tools/call" => {
            json!({"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]})
        }
        _ => {
            let error = json!({"code": -32601, "message": "unknown method"});
            let answer = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
            return Ok(response("404 Not Found", &answer));
        }
    };
    Ok(response("200 OK", &json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()))
}

/// A definition of about 300 bytes.
fn tool(number: usize, is_last: bool, edition: u64) -> Value {
    let edition = if is_last { edition } else { 0 };
    let text = json!({"type": "string", "description": "The text that comes back, as long as you like."});
    json!({
        "name": format!("tool_{number}"),
        "description": format!("Says what it is told, as many tools do, in edition {edition} of its text."),
        "inputSchema": {"type": "object", "properties": {"text": text}, "required": ["text"]},
        "annotations": {"readOnlyHint": true},
    })
}

fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
}
