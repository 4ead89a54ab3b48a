//! Slow clients: half-sent heads and bodies, responses that nobody reads, calls that wait. All of them take their time,
//! so they run at the same time, against three gateways.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::arena::{Arena, attempt};
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

/// Time for a head, and for a body or without progress of a response.
const HEAD: Duration = Duration::from_secs(15);
const BODY: Duration = Duration::from_secs(30);
/// Time for the response to a refused body: the rest of it is awaited for five seconds before.
const REFUSAL: Duration = Duration::from_secs(12);
/// What may be added on a busy machine.
const SLACK: Duration = Duration::from_secs(12);
const MIB: usize = 1 << 20;

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let limited = |settings: toolgate_chaos::gateway::Settings| {
        settings.variable("MAX_BUFFERED_MB", "64").descriptors(4096)
    };
    let senders = Arena::development(plan, 160, limited).await?;
    let readers = Arena::development(plan, 224, limited).await?;
    let callers =
        Arena::development(plan, 224, |settings| settings.variable("MAX_CALLS", "5000").descriptors(4096))
            .await?;
    let one = json!({"name": "one", "transport": "streamable_http", "url": callers.fake.url("plain"),
        "max_concurrency": 1});
    let made = callers.rest("POST", "/api/v0/servers", &one).await?;
    ensure!(made.status == 201, "{}", made.text());
    let mut heads =
        Attack::new("half-sent heads", "200 connections stop within a head or send a byte a second");
    let mut second =
        Attack::new("half a second head", "a request, and half of another one on the same connection");
    let mut bodies = Attack::new("half-sent bodies", "bodies that stop or trickle on four routes");
    let mut large = Attack::new("bodies less a byte", "60 bodies of 4 MiB less a byte on four routes");
    let mut unread = Attack::new("unread responses", "16 responses of 8 MiB over REST and MCP are not read");
    let mut streams = Attack::new("unread event streams", "8 event streams with 8 MiB each are not read");
    let mut waiting =
        Attack::new("calls that wait", "1,010 calls to a server with max_concurrency 1 that is busy");
    senders.begin();
    readers.begin();
    callers.begin();
    let (address, other) = (senders.gateway.address.as_str(), readers.gateway.address.as_str());
    let busy = callers.gateway.address.as_str();
    tokio::join!(
        attempt(&mut heads, async |attack| half_heads(address, attack).await),
        attempt(&mut second, async |attack| second_head(address, attack).await),
        attempt(&mut bodies, async |attack| half_bodies(address, attack).await),
        attempt(&mut large, async |attack| large_bodies(address, attack).await),
        attempt(&mut unread, async |attack| unread_responses(other, attack).await),
        attempt(&mut streams, async |attack| unread_streams(other, attack).await),
        attempt(&mut waiting, async |attack| waiting_calls(busy, attack).await),
    );
    senders.judge(vec![heads, second, bodies, large]).await?;
    readers.judge(vec![unread, streams]).await?;
    callers.judge(vec![waiting]).await?;
    let mut verdicts = senders.close().await?;
    verdicts.extend(readers.close().await?);
    verdicts.extend(callers.close().await?);
    Ok(verdicts)
}

async fn half_heads(address: &str, attack: &mut Attack) -> Result<()> {
    let mut clients = JoinSet::new();
    for number in 0..200 {
        let address = address.to_owned();
        clients.spawn(async move {
            let mut stream =
                raw::begin(&address, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await?;
            let begun = Instant::now();
            if number % 2 == 0 {
                raw::until_closed(&mut stream, HEAD + SLACK).await.context("still open")?;
            } else {
                while begun.elapsed() < HEAD + SLACK && stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            Ok::<_, anyhow::Error>(begun.elapsed())
        });
    }
    closed("heads", attack, clients, HEAD).await;
    Ok(())
}

async fn second_head(address: &str, attack: &mut Attack) -> Result<()> {
    let mut stream = raw::begin(address, &raw::kept("GET", "/health", &[], b"")).await?;
    let first = raw::response(&mut stream, SLACK).await.context("no response")?;
    attack.check(first.status == 200, || format!("the first request was answered with {}", first.status));
    let begun = Instant::now();
    stream.write_all(b"GET /hea").await?;
    let end = raw::until_closed(&mut stream, HEAD + SLACK).await;
    let took = begun.elapsed();
    attack.check(end.is_some() && took > HEAD / 2, || format!("open or closed early after {took:?}"));
    attack.came_back(format!("closed after {:.1} s", took.as_secs_f64()));
    Ok(())
}

async fn half_bodies(address: &str, attack: &mut Attack) -> Result<()> {
    let mut clients = JoinSet::new();
    for number in 0..40 {
        let address = address.to_owned();
        clients.spawn(async move {
            let path = ["/health", "/init", "/no/such/route", "/mcp"][number % 4];
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n {{");
            let mut stream = raw::begin(&address, head.as_bytes()).await?;
            let (mut reading, mut writing) = stream.split();
            let begun = Instant::now();
            let trickle = async {
                while number % 8 < 4 && writing.write_all(b" ").await.is_ok() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                std::future::pending::<()>().await;
            };
            let closed = async {
                let mut part = [0; 4096];
                while let Ok(1..) = reading.read(&mut part).await {}
            };
            tokio::select! {
                () = closed => {}
                () = trickle => {}
                () = tokio::time::sleep(BODY + SLACK) => anyhow::bail!("{path} is still open"),
            }
            Ok::<_, anyhow::Error>(begun.elapsed())
        });
    }
    closed("bodies", attack, clients, BODY).await;
    Ok(())
}

/// Checks when the connections were closed.
async fn closed(what: &str, attack: &mut Attack, clients: JoinSet<Result<Duration>>, limit: Duration) {
    let (mut slowest, mut count) = (Duration::ZERO, 0);
    for outcome in clients.join_all().await {
        match outcome {
            Ok(took) => (slowest, count) = (slowest.max(took), count + 1),
            Err(error) => attack.fail(format!("{error:#}")),
        }
    }
    attack.check(slowest < limit + SLACK, || format!("one was open for {slowest:?}"));
    attack.came_back(format!("{count} {what} closed within {:.1} s", slowest.as_secs_f64()));
}

/// They stay below the rate for bodies for minutes; what counts is that they hold no more than the budget.
async fn large_bodies(address: &str, attack: &mut Attack) -> Result<()> {
    let mut clients = JoinSet::new();
    for number in 0..60 {
        let address = address.to_owned();
        clients.spawn(async move {
            let path = ["/health", "/init", "/no/such/route", "/mcp"][number % 4];
            let head =
                format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 4 * MIB);
            let bytes = [head.into_bytes(), vec![b' '; 4 * MIB - 1]].concat();
            let sending = tokio::time::timeout(BODY, raw::begin(&address, &bytes)).await;
            let mut stream = sending.context("the body is not taken")??;
            Ok::<_, anyhow::Error>(raw::status(&mut stream, REFUSAL).await)
        });
    }
    let (mut held, mut refused) = (0, 0);
    for outcome in clients.join_all().await {
        match outcome {
            Ok(None) => held += 1,
            Ok(Some(503)) => refused += 1,
            Ok(Some(404 | 405 | 413 | 400 | 200)) => {}
            Ok(Some(status)) => attack.fail(format!("unexpected status {status}")),
            Err(error) => attack.fail(format!("{error:#}")),
        }
    }
    attack.came_back(format!("{held} held without a response, {refused} times 503"));
    attack.check(refused > 0, || "none was refused".to_owned());
    Ok(())
}

async fn unread_responses(address: &str, attack: &mut Attack) -> Result<()> {
    let mut clients = Vec::new();
    for number in 0..16 {
        let mut stream = raw::open_narrow(address).await?;
        let request = if number % 2 == 0 {
            let call = json!({"name": "s__echo", "bytes": 8 * MIB});
            let close = [("Connection", "close")];
            raw::kept("POST", "/api/v0/tools/invoke", &close, call.to_string().as_bytes())
        } else {
            let call = json!({"name": "s__echo", "arguments": {"bytes": 8 * MIB}});
            raw::post("/mcp", &raw::message("tools/call", &call)).to_bytes("localhost")
        };
        stream.write_all(&request).await?;
        clients.push(stream);
    }
    is_cut(clients, 8 * MIB, attack).await
}

async fn unread_streams(address: &str, attack: &mut Attack) -> Result<()> {
    let mut clients = Vec::new();
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let mut stream = raw::open_narrow(address).await?;
        stream.write_all(&raw::kept("GET", "/sse", &[("Accept", "text/event-stream")], b"")).await?;
        let mut said = Vec::new();
        while !said.windows(12).any(|window| window == b"\nevent: endp" || window == b"\ndata: /mess") {
            ensure!(stream.read_buf(&mut said).await? > 0, "no event stream");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let _ = stream.try_read_buf(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        let endpoint = said.lines().find_map(|line| line.strip_prefix("data: ")).context("no endpoint")?;
        for _ in 0..8 {
            let call = json!({"name": "s__echo", "arguments": {"bytes": MIB}});
            let request = raw::post(endpoint.trim(), &raw::message("tools/call", &call));
            let address = address.to_owned();
            calls.spawn(async move { request.send(&address).await });
        }
        clients.push(stream);
    }
    let accepted = calls.join_all().await.into_iter().flatten().filter(|response| response.status == 202);
    attack.came_back(format!("{} messages accepted", accepted.count()));
    is_cut(clients, 8 * MIB, attack).await
}

/// Reads nothing until no connection has unsent bytes, and then the rest, which must be incomplete. A stream of which all
/// bytes were sent stays open.
async fn is_cut(clients: Vec<TcpStream>, whole: usize, attack: &mut Attack) -> Result<()> {
    for stream in &clients {
        let _ = tokio::time::timeout(BODY, stream.peek(&mut [0])).await;
    }
    let begun = Instant::now();
    tokio::time::sleep(BODY - SLACK).await;
    // The gateway fills the buffers of the system first, and how fast depends on the machine.
    let mut unread = raw::count_unread(&clients);
    while unread > 0 && begun.elapsed() < BODY * 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        unread = raw::count_unread(&clients);
    }
    let took = begun.elapsed();
    attack.check(unread == 0, || format!("{unread} connections that read nothing are still open"));
    let (mut cut, mut small) = (0, 0);
    for mut stream in clients {
        match raw::until_closed(&mut stream, Duration::from_secs(1)).await {
            Some(count) if count > whole => attack.fail("a response that nobody read was kept"),
            Some(4096..) => cut += 1,
            _ => small += 1,
        }
    }
    attack.came_back(format!("{cut} cut within {:.0} s, {small} refused or small", took.as_secs_f64()));
    attack.check(cut > 0, || "none was cut".to_owned());
    Ok(())
}

async fn waiting_calls(address: &str, attack: &mut Attack) -> Result<()> {
    let call = |ms: u64| {
        let body = json!({"name": "one__echo", "ms": ms}).to_string();
        raw::kept("POST", "/api/v0/tools/invoke", &[], body.as_bytes())
    };
    let _busy = raw::begin(address, &call(120_000)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut clients = JoinSet::new();
    for _ in 0..1010 {
        let begun = Instant::now();
        let mut stream = raw::begin(address, &call(0)).await?;
        clients.spawn(async move {
            let answer = raw::response(&mut stream, BODY + SLACK).await;
            answer.map(|answer| (answer.status, answer.header("retry-after").is_some(), begun.elapsed()))
        });
    }
    let (mut at_once, mut late) = (0, 0);
    for outcome in clients.join_all().await {
        match outcome {
            Some((429, true, took)) if took < BODY / 2 => at_once += 1,
            Some((429, true, _)) => late += 1,
            Some((status, ..)) => attack.fail(format!("a waiting call got {status}")),
            None => attack.fail("a waiting call got no response"),
        }
    }
    attack.came_back(format!("{at_once} times 429 at once, {late} times after the wait"));
    attack.check(at_once >= 10 && late <= 1000, || "the bound did not hold".to_owned());
    Ok(())
}
