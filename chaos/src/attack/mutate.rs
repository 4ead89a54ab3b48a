//! Random requests: valid ones, broken at random. Each must be answered or closed in time, without an error of the
//! gateway's own making. A request depends only on the seed and its number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use toolgate_chaos::http::header;
use toolgate_chaos::random::Random;

use crate::arena::Arena;
use crate::mutation::{TARGET, corpus, mutate};
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

const WORKERS: usize = 24;
/// How long a response is awaited before the client says that nothing more comes.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a connection may stay open after that.
const CLOSING: Duration = Duration::from_secs(15);
/// The first requests are left to the gateway's own deadlines if they get no response.
const SAMPLE: u64 = 50;
/// The longest deadline for heads and bodies, and what may be added on a busy machine.
const DEADLINE: Duration = Duration::from_secs(45);
/// How many findings are shown.
const SHOWN: usize = 5;

/// What became of a request.
enum Fate {
    Answered(u16),
    Closed,
    Bad(String),
}

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::development(plan, 160, |settings| settings.variable("MAX_BUFFERED_MB", "64")).await?;
    ensure!(arena.register(TARGET, "plain").await?.status == 201, "not registered");
    let name = "random requests";
    let tried = "requests with mutated bytes, JSON, headers and framing";
    arena.attack(name, tried, async |attack| flood(plan, &arena, attack).await).await?;
    arena.close().await
}

async fn flood(plan: &Plan, arena: &Arena, attack: &mut Attack) -> Result<()> {
    let session = raw::session(&arena.gateway.address).await?;
    let corpus = Arc::new(corpus(&session));
    let next = Arc::new(AtomicU64::default());
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (corpus, next) = (corpus.clone(), next.clone());
        let (address, seed, requests) = (arena.gateway.address.clone(), plan.seed, plan.requests);
        workers.spawn(async move {
            let (mut fates, mut late) = (Vec::new(), JoinSet::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= requests {
                    break;
                }
                let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let request = random.pick(&corpus).clone();
                let bytes = mutate(&mut random, &request);
                if number < SAMPLE {
                    let address = address.clone();
                    late.spawn(async move { (number, send(&address, &bytes, DEADLINE).await) });
                } else {
                    fates.push((number, send(&address, &bytes, PATIENCE).await));
                }
            }
            fates.extend(late.join_all().await);
            fates
        });
    }
    let (mut counts, mut closed, mut bad) = (BTreeMap::<u16, usize>::new(), 0, 0);
    for (number, fate) in workers.join_all().await.into_iter().flatten() {
        match fate {
            Fate::Answered(status) => *counts.entry(status).or_default() += 1,
            Fate::Closed => closed += 1,
            Fate::Bad(what) => {
                bad += 1;
                if bad <= SHOWN {
                    attack.fail(format!("request {number}: {what}"));
                }
            }
        }
    }
    attack.check(bad <= SHOWN, || format!("{bad} bad ones in all"));
    let statuses: Vec<_> = counts.iter().map(|(status, count)| format!("{count} × {status}")).collect();
    attack.came_back(format!("{}, {closed} closed, seed {}", statuses.join(", "), plan.seed));
    Ok(())
}

async fn send(address: &str, bytes: &[u8], patience: Duration) -> Fate {
    let show = |what: String| {
        Fate::Bad(format!("{what}; sent {:.700}", String::from_utf8_lossy(bytes).escape_debug().to_string()))
    };
    let stream = match raw::open(address).await {
        Ok(stream) => stream,
        Err(error) => return show(format!("{error:#}")),
    };
    let (mut reading, mut writing) = stream.into_split();
    let sent = bytes.to_vec();
    // The gateway may answer and close before it has read everything.
    let sender = tokio::spawn(async move {
        let _ = writing.write_all(&sent).await;
        writing
    });
    let mut read = Vec::new();
    let fate = match tokio::time::timeout(patience, answer(&mut reading, &mut read)).await {
        Ok(fate) => fate,
        Err(_) if patience == DEADLINE => return show(format!("nothing for {} s", DEADLINE.as_secs())),
        Err(_) => {
            sender.abort();
            match tokio::time::timeout(CLOSING, async {
                // Dropping the writing half ends the request.
                drop(sender.await);
                answer(&mut reading, &mut read).await
            })
            .await
            {
                Ok(fate) => fate,
                Err(_) => return show(format!("open for {} s after its end", CLOSING.as_secs())),
            }
        }
    };
    match fate {
        Fate::Bad(what) => show(what),
        fate => fate,
    }
}

/// Reads the head of the response, and the body of one that reports a failure.
async fn answer(reading: &mut (impl AsyncReadExt + Unpin), read: &mut Vec<u8>) -> Fate {
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            let Some(status) = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()) else {
                return Fate::Bad(format!("no status in {head:?}"));
            };
            if status == 100 {
                read.drain(..end + 4);
                continue;
            }
            let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            if status < 500 || read.len() >= end + 4 + length {
                return judge(status, &head, &read[end + 4..]);
            }
        }
        if reading.read_buf(read).await.unwrap_or(0) == 0 {
            return Fate::Closed;
        }
    }
}

/// A failure is fine if it is that of a server, or a bound that says when to try again.
fn judge(status: u16, head: &str, body: &[u8]) -> Fate {
    let text = String::from_utf8_lossy(body);
    let is_bound = status == 503 && header(head, "retry-after").is_some();
    let is_of_server = status == 500 && text.contains("server \\\"");
    // HTTP's own answers to a version or a method that is unknown.
    let is_http = matches!(status, 501 | 505);
    if status < 500 || is_bound || is_of_server || is_http {
        Fate::Answered(status)
    } else {
        Fate::Bad(format!("{head:.60} {text:.300}"))
    }
}
