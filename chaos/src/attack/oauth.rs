//! Servers whose OAuth metadata leads to addresses that only the gateway can reach. The name of a server may point
//! elsewhere after the connection that asked for authorization, so only the address of that connection may count.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use toolgate_chaos::layer::{control, library};
use toolgate_chaos::server::next_request;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::verdict::{Attack, Verdict};

/// The name of the server.
const NAME: &str = "rebinding.example";
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let Some(outside) = other_address() else {
        println!("  skipped  this machine has no address besides loopback");
        return Ok(Vec::new());
    };
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let address_file = folder.path().join("address");
    let library = library()?;
    let arena = Arena::development(plan, 64, |settings| {
        settings
            .variable("LD_PRELOAD", library.to_string_lossy())
            .variable(control::NAME_VARIABLE, NAME)
            .variable(control::ADDRESS_VARIABLE, address_file.to_string_lossy())
    })
    .await?;
    arena
        .attack(
            "private addresses by OAuth",
            "the name of a server leads to loopback after it asked for authorization",
            async |attack| discovery(&arena, outside, address_file, attack).await,
        )
        .await?;
    arena.close().await
}

/// The address of this machine that others use. Nothing is sent to find it.
fn other_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// A server that asks for authorization, and what must not be reached by its metadata.
struct Trap {
    /// The port of the server, at the address outside; at loopback it belongs to the trap.
    port: u16,
    /// Requests for metadata that reached loopback.
    asked: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

async fn discovery(arena: &Arena, outside: IpAddr, file: PathBuf, attack: &mut Attack) -> Result<()> {
    let inside = TcpListener::bind((LOOPBACK, 0)).await?;
    let there = format!("http://{LOOPBACK}:{}", inside.local_addr()?.port());
    let by_name = there.replace(&LOOPBACK.to_string(), NAME);
    let trap = Trap::set(outside, inside, file.clone()).await?;
    let mut refused = 0;
    // At loopback from the beginning, loopback may be asked: the trap is reached.
    for (challenge, address, may_reach) in [
        (there.as_str(), LOOPBACK.into(), true),
        (&there, outside, false),
        (&by_name, outside, false),
        ("", outside, false),
        ("http://169.254.169.254/latest", outside, false),
    ] {
        std::fs::write(&file, address.to_string())?;
        let before = trap.asked.load(Ordering::SeqCst);
        let path = challenge.replace("http://", "");
        let url = format!("http://{NAME}:{}/{path}", trap.port);
        let input = json!({"name": "trap", "transport": "streamable_http", "url": url,
            "oauth_redirect_uri": "http://localhost:9/callback"});
        let answer = arena.rest("POST", "/api/v0/servers", &input).await?;
        let reached = trap.asked.load(Ordering::SeqCst) - before;
        attack.check(!answer.is_success(), || format!("{challenge:?}: {}", answer.text()));
        attack.check((reached > 0) == may_reach, || {
            format!("from {address}, {challenge:?} reached loopback {reached} times: {}", answer.text())
        });
        let is_told = may_reach || answer.text().contains("private address");
        attack.check(is_told, || format!("{challenge:?} failed otherwise: {}", answer.text()));
        refused += usize::from(!may_reach && reached == 0);
    }
    attack.came_back(format!("{refused} times nothing private was asked"));
    Ok(())
}

impl Trap {
    async fn set(outside: IpAddr, inside: TcpListener, file: PathBuf) -> Result<Self> {
        let server = TcpListener::bind((outside, 0)).await?;
        let port = server.local_addr()?.port();
        // The same port at loopback: where the name leads after it has changed, or from the beginning.
        let twin = TcpListener::bind((LOOPBACK, port)).await?;
        let asked = Arc::<AtomicUsize>::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(server, Arc::default(), file.clone()));
        tasks.spawn(accept(twin, asked.clone(), file.clone()));
        tasks.spawn(accept(inside, asked.clone(), file));
        Ok(Self { port, asked, _tasks: tasks })
    }
}

async fn accept(listener: TcpListener, asked: Arc<AtomicUsize>, file: PathBuf) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(demand(stream, asked.clone(), file.clone()));
    }
}

/// Refuses every message, and lets the name lead to loopback from then on. The path is the URL of the metadata, requests
/// for which are counted.
async fn demand(mut stream: TcpStream, asked: Arc<AtomicUsize>, file: PathBuf) {
    let mut read = Vec::new();
    while let Ok(Some((method, path, _))) = next_request(&mut stream, &mut read).await {
        let metadata = path.trim_start_matches('/');
        let response = match (method.as_str(), metadata) {
            ("POST", "") => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_owned(),
            ("POST", metadata) => format!(
                "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"http://{metadata}\"\r\n\
                 Content-Length: 0\r\n\r\n"
            ),
            _ => {
                asked.fetch_add(1, Ordering::SeqCst);
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
        };
        let _ = std::fs::write(&file, LOOPBACK.to_string());
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}
