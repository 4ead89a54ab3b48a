//! Attacks on a gateway that serves TLS: handshakes that stall or never begin, plain HTTP on its port, large hellos.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use toolgate_chaos::gateway::{Settings, eventually};
use toolgate_chaos::http::{HTTPS, Request};
use toolgate_chaos::tls;

use crate::arena::Arena;
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

/// Time for a handshake and the first head together.
const HEAD: Duration = Duration::from_secs(15);
/// What may be added on a busy machine.
const SLACK: Duration = Duration::from_secs(12);
/// Time until plain HTTP is refused.
const LIMIT: Duration = Duration::from_secs(10);
/// The largest content of a TLS record, and about that of a handshake message that is accepted.
const RECORD: usize = 16 * 1024;
const LARGEST: usize = 60_000;

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::development(plan, 64, |settings| {
        encrypted(settings.variable("MAX_BUFFERED_MB", "8").descriptors(1024))
    })
    .await?;
    arena
        .attack("stalled handshakes", "200 handshakes or first heads that stop or trickle", async |attack| {
            stalled(&arena, attack).await
        })
        .await?;
    arena
        .attack("large hellos", "600 hellos of 60 kB less a byte, with MAX_BUFFERED_MB=8", async |attack| {
            large_hellos(&arena, attack).await
        })
        .await?;
    let mut verdicts = arena.close().await?;
    let arena = Arena::development(plan, 64, |settings| encrypted(settings.descriptors(128))).await?;
    arena
        .attack(
            "silence and plain HTTP",
            "300 silent connections and 100 of plain HTTP, with 128 descriptors",
            async |attack| silent_or_plain(&arena, attack).await,
        )
        .await?;
    verdicts.extend(arena.close().await?);
    Ok(verdicts)
}

/// Lets a gateway serve TLS. A file that cannot be written stops its start.
fn encrypted(settings: Settings) -> Settings {
    [("TLS_CERT_FILE", tls::CERTIFICATE), ("TLS_KEY_FILE", tls::KEY)].into_iter().fold(
        settings,
        |settings, (variable, content)| {
            let path = settings.folder.join(variable);
            let _ = std::fs::write(&path, content);
            settings.variable(variable, path.to_string_lossy())
        },
    )
}

/// The address for connections without TLS.
fn socket_of(arena: &Arena) -> Result<&str> {
    arena.gateway.address.strip_prefix(HTTPS).context("the gateway does not serve TLS")
}

/// A hello of a client with this many bytes of content, which begins like a real one, in as many records as it needs.
fn hello(length: usize) -> Vec<u8> {
    let [_, _, high, low] = u32::try_from(length).unwrap_or_default().to_be_bytes();
    let mut message = vec![1, 0, high, low, 3, 3];
    message.resize(length + 4, 0);
    let record = |content: &[u8]| {
        let [high, low] = u16::try_from(content.len()).unwrap_or_default().to_be_bytes();
        [&[22, 3, 1, high, low][..], content].concat()
    };
    message.chunks(RECORD).flat_map(record).collect()
}

async fn stalled(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = socket_of(arena)?;
    let before = arena.refusals("head_time").await?;
    let mut clients = JoinSet::new();
    for number in 0..200 {
        let address = address.to_owned();
        clients.spawn(async move {
            let mut stream = raw::open(&address).await?;
            let begun = Instant::now();
            let hello = hello(500);
            match number % 4 {
                // Half of a hello.
                0 => stream.write_all(&hello[..250]).await?,
                // A hello byte by byte.
                1 => {
                    for byte in hello {
                        let said = raw::until_closed(&mut stream, Duration::from_secs(1)).await;
                        if said.is_some() || stream.write_all(&[byte]).await.is_err() {
                            return Ok(begun.elapsed());
                        }
                    }
                }
                // A session without a request, and one with half of a record.
                kind => {
                    let session = tokio::time::timeout(HEAD, tls::connect(stream)).await;
                    stream = session.context("no session in time")??.into_inner().0;
                    if kind == 3 {
                        stream.write_all(&[23, 3, 3, 2, 0, 0]).await?;
                    }
                }
            }
            raw::until_closed(&mut stream, HEAD + SLACK).await.context("still open")?;
            Ok::<_, anyhow::Error>(begun.elapsed())
        });
    }
    let mut slowest = Duration::ZERO;
    for outcome in clients.join_all().await {
        match outcome {
            Ok(took) if took > HEAD / 2 && took < HEAD + SLACK => slowest = slowest.max(took),
            Ok(took) => attack.fail(format!("one was open for {took:?}")),
            Err(error) => attack.fail(format!("{error:#}")),
        }
    }
    let counted = arena.refusals("head_time").await? - before;
    attack.check(counted == 200, || format!("{counted} were counted as heads"));
    attack.came_back(format!("all closed within {:.1} s, {counted} counted", slowest.as_secs_f64()));
    Ok(())
}

async fn large_hellos(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = socket_of(arena)?;
    let before = arena.refusals("buffered_bytes").await?;
    let hello = hello(LARGEST);
    let (mut held, mut closed) = (Vec::new(), 0);
    for _ in 0..600 {
        held.push(raw::begin(address, &hello[..hello.len() - 1]).await?);
    }
    for stream in &mut held {
        closed += usize::from(raw::until_closed(stream, Duration::from_millis(2)).await.is_some());
    }
    drop(held);
    let health = Request::new("GET", "/health").limit(LIMIT);
    let served = eventually(LIMIT, async || health.send(&arena.gateway.address).await.is_ok());
    attack.check(served.await, || "there is still no room".to_owned());
    let refused = arena.refusals("buffered_bytes").await? - before;
    attack.check(refused > 0, || "none was refused".to_owned());
    attack.came_back(format!("{refused} refused, {closed} closed at once"));
    Ok(())
}

async fn silent_or_plain(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let address = socket_of(arena)?;
    let (mut silent, mut served) = (Vec::new(), 0);
    for number in 0..300 {
        silent.push(raw::open(address).await?);
        if number % 20 == 19 {
            let answer = arena.gateway.send(arena.call()).await?;
            ensure!(answer.status == 200, "a call got {} {}", answer.status, answer.text());
            served += 1;
        }
    }
    let mut plain = JoinSet::new();
    for _ in 0..100 {
        let address = address.to_owned();
        plain.spawn(async move {
            let mut stream = raw::begin(&address, &raw::kept("GET", "/health", &[], b"")).await?;
            let mut said = Vec::new();
            let read = tokio::time::timeout(LIMIT, stream.read_to_end(&mut said)).await;
            let _ = read.context("plain HTTP is not refused")?;
            ensure!(!said.starts_with(b"HTTP/"), "plain HTTP was served");
            Ok(())
        });
    }
    for outcome in plain.join_all().await {
        outcome.unwrap_or_else(|error: anyhow::Error| attack.fail(format!("{error:#}")));
    }
    attack.came_back(format!("{served} calls served meanwhile, plain HTTP refused"));
    Ok(())
}
