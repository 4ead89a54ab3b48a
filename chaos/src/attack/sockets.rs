//! Attacks on connections, buffers and event streams, under few descriptors.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use toolgate_chaos::gateway::eventually;
use toolgate_chaos::http::Request;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

const DESCRIPTORS: u64 = 128;
const LIMIT: Duration = Duration::from_secs(10);

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::development(plan, 96, |settings| {
        settings.variable("MAX_BUFFERED_MB", "8").variable("MAX_STREAMS", "10").descriptors(DESCRIPTORS)
    })
    .await?;
    let address = arena.gateway.address.as_str();
    arena
        .attack("resting connections", "300 connections that rest, with 128 descriptors", async |attack| {
            resting(&arena, attack).await
        })
        .await?;
    arena
        .attack(
            "busy connections",
            "300 connections with half a head, with 128 descriptors",
            async |attack| busy(address, attack).await,
        )
        .await?;
    arena
        .attack("buffered bytes", "20 bodies of 3 MiB less a byte, with MAX_BUFFERED_MB=8", async |attack| {
            buffered(&arena, attack).await
        })
        .await?;
    arena
        .attack("event streams", "15 streams of each kind, with MAX_STREAMS=10", async |attack| {
            streams(&arena, attack).await
        })
        .await?;
    arena.close().await
}

async fn resting(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = arena.gateway.address.as_str();
    let (mut held, mut served) = (Vec::new(), 0);
    for _ in 0..300 {
        let mut stream = raw::begin(address, &raw::kept("GET", "/health", &[], b"")).await?;
        let answer = raw::response(&mut stream, LIMIT).await;
        match answer.map(|answer| answer.status) {
            Some(200) => served += 1,
            other => attack.fail(format!("a new connection got {other:?}")),
        }
        held.push(stream);
    }
    // It needs a descriptor for the connection to the server, too.
    let call = arena.gateway.send(arena.call()).await?;
    attack.check(call.status == 200, || format!("a call got {} {}", call.status, call.text()));
    attack.came_back(format!("{served} served"));
    Ok(())
}

async fn busy(address: &str, attack: &mut Attack) -> Result<()> {
    let (mut held, mut refused, mut open) = (Vec::new(), 0, 0);
    for _ in 0..300 {
        held.push(raw::begin(address, b"GET /health HTTP/1.1\r\nHost: loc").await?);
    }
    for stream in &mut held {
        match raw::response(stream, Duration::from_millis(20)).await {
            Some(answer) if answer.status == 503 && answer.header("retry-after").is_some() => refused += 1,
            Some(answer) => {
                attack.fail(format!("a busy gateway answered {} {}", answer.status, answer.text()))
            }
            None => open += 1,
        }
    }
    attack.came_back(format!("{refused} times 503, {open} held or closed"));
    attack.check(refused > 0, || "none was refused".to_owned());
    let answer = Request::new("GET", "/health").send(address).await;
    let is_refused = answer.as_ref().is_ok_and(|answer| matches!(answer.status, 503 | 200));
    attack.check(is_refused, || format!("a further one got {answer:?}"));
    Ok(())
}

async fn buffered(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = arena.gateway.address.as_str();
    let length = 3 << 20;
    let mut held = Vec::new();
    for _ in 0..20 {
        let head = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        let bytes = [head.into_bytes(), vec![b' '; length - 1]].concat();
        held.push(tokio::time::timeout(LIMIT, raw::begin(address, &bytes)).await.context("not taken")??);
    }
    let mut refused = 0;
    for stream in &mut held {
        // The rest of a refused body is awaited for a while before the response.
        match raw::response(stream, Duration::from_millis(400)).await {
            Some(answer) if answer.status == 503 && answer.header("retry-after").is_some() => refused += 1,
            Some(answer) => attack.fail(format!("it answered {} {}", answer.status, answer.text())),
            None => {}
        }
    }
    attack.came_back(format!("{refused} times 503"));
    attack.check(refused > 0, || "none was refused".to_owned());
    drop(held);
    let body = json!({"mode": " ".repeat(length - 100)});
    let again = eventually(LIMIT, async || {
        arena.gateway.post("/init", &body).await.is_ok_and(|answer| answer.status != 503)
    });
    attack.check(again.await, || "a large body is still refused afterwards".to_owned());
    Ok(())
}

async fn streams(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = arena.gateway.address.as_str();
    let accept = ("Accept", "text/event-stream");
    let listen = raw::modern("/mcp", "subscriptions/listen", json!({"notifications": {}}));
    for (kind, bytes) in [
        ("sse", raw::kept("GET", "/sse", &[accept], b"")),
        ("session", Vec::new()),
        ("dashboard", raw::kept("GET", "/api/dashboard/events", &[accept], b"")),
        ("listen", listen.to_bytes("localhost")),
    ] {
        let (mut held, mut opened, mut refused) = (Vec::new(), 0, 0);
        for _ in 0..15 {
            let mut stream = if kind == "session" {
                let session = raw::session(address).await?;
                let bytes = raw::kept("GET", "/mcp", &[accept, ("Mcp-Session-Id", &session)], b"");
                raw::begin(address, &bytes).await?
            } else {
                raw::begin(address, &bytes).await?
            };
            match raw::status(&mut stream, LIMIT).await {
                Some(200) => opened += 1,
                Some(429) => refused += 1,
                other => attack.fail(format!("a stream ({kind}) got {other:?}")),
            }
            held.push(stream);
        }
        attack.check(opened <= 10 && refused > 0, || format!("{kind}: {opened} opened, {refused} refused"));
        attack.came_back(format!("{kind}: {opened} opened, {refused} times 429"));
        drop(held);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}
