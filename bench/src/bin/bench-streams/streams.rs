//! The event streams, opened and read in their own thread. For each stream the number of notifications about changed
//! tools and the time of the last one are recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use toolgate_bench::Wire;
use toolgate_bench::system::step_back;
use toolgate_bench::target::Target;

const NOTICE: &[u8] = b"notifications/tools/list_changed";
/// Number of streams that are opened concurrently.
const OPENING: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The GET stream of a session.
    Legacy,
    /// HTTP+SSE.
    Sse,
    /// `subscriptions/listen`.
    Listen,
}

/// A stream to open: its kind, the number of its client, and the client's token.
pub struct Wanted {
    pub kind: Kind,
    pub client: usize,
    pub token: String,
}

pub struct Streams {
    begun: Instant,
    heard: Arc<Vec<Heard>>,
    /// For each stream, the number of its client.
    pub clients: Vec<usize>,
}

#[derive(Default)]
struct Heard {
    count: AtomicU64,
    /// In nanoseconds since the start.
    last: AtomicU64,
}

/// The result of one change.
pub struct Reception {
    /// When the last affected stream was notified.
    pub last: Instant,
    pub missed: usize,
    /// Superfluous notifications: to other streams, or a second one to the same stream.
    pub needless: u64,
}

impl Streams {
    /// Opens all streams; returns when each is known to be open.
    pub async fn open(address: &str, wanted: Vec<Wanted>) -> Result<Self> {
        let heard: Arc<Vec<_>> = Arc::new(wanted.iter().map(|_| Heard::default()).collect());
        let clients = wanted.iter().map(|wanted| wanted.client).collect();
        let begun = Instant::now();
        let (opened, is_open) = oneshot::channel();
        let (address, shared) = (address.to_owned(), heard.clone());
        std::thread::spawn(move || {
            step_back();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run(address, wanted, shared, begun, opened))
        });
        is_open.await.context("the streams could not be opened")??;
        Ok(Self { begun, heard, clients })
    }

    pub fn counts(&self) -> Vec<u64> {
        self.heard.iter().map(|heard| heard.count.load(Ordering::Acquire)).collect()
    }

    /// Waits until all affected streams were notified, and then for a while for superfluous notifications.
    pub async fn reception(
        &self,
        before: &[u64],
        must_hear: impl Fn(usize) -> bool,
        limit: Duration,
        settling: Duration,
    ) -> Reception {
        let end = Instant::now() + limit;
        let has_heard = |stream: usize, now: &[u64]| now[stream] > before[stream];
        let concerned: Vec<_> = (0..before.len()).filter(|&stream| must_hear(self.clients[stream])).collect();
        while Instant::now() < end {
            let now = self.counts();
            if concerned.iter().all(|&stream| has_heard(stream, &now)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let last = concerned.iter().map(|&stream| self.heard[stream].last.load(Ordering::Acquire)).max();
        tokio::time::sleep(settling).await;
        let now = self.counts();
        let missed = concerned.iter().filter(|&&stream| !has_heard(stream, &now)).count();
        let all: u64 = now.iter().zip(before).map(|(now, before)| now - before).sum();
        let needless = all - (concerned.len() - missed) as u64;
        let last = self.begun + Duration::from_nanos(last.unwrap_or_default());
        Reception { last, missed, needless }
    }
}

async fn run(
    address: String,
    wanted: Vec<Wanted>,
    heard: Arc<Vec<Heard>>,
    begun: Instant,
    opened: oneshot::Sender<Result<()>>,
) -> Result<()> {
    let (address, turns) = (Arc::<str>::from(address), Arc::new(Semaphore::new(OPENING)));
    let mut opening = JoinSet::new();
    for (number, wanted) in wanted.into_iter().enumerate() {
        let (address, turns) = (address.clone(), turns.clone());
        opening.spawn(async move {
            let _turn = turns.acquire().await?;
            anyhow::Ok((number, open(&address, &wanted).await?))
        });
    }
    let mut reading = JoinSet::new();
    let mut failed = None;
    while let Some(stream) = opening.join_next().await {
        match stream? {
            Ok((number, (stream, early))) => {
                reading.spawn(read(stream, early, begun, heard.clone(), number));
            }
            Err(error) => failed = Some(error),
        }
    }
    // An error means that the receiver no longer waits.
    let _ = opened.send(failed.map_or(Ok(()), Err));
    while reading.join_next().await.is_some() {}
    Ok(())
}

async fn open(address: &str, wanted: &Wanted) -> Result<(TcpStream, Vec<u8>)> {
    let (mut wire, target) = (Wire::connect(address).await?, Target::new(address, &wanted.token));
    let stream = match wanted.kind {
        Kind::Legacy => {
            let headers = target.open_session(&mut wire).await?;
            target.request("GET", &headers, "")
        }
        Kind::Sse => target.at("/sse").request("GET", "", ""),
        Kind::Listen => {
            let wishes = json!({"notifications": {"toolsListChanged": true}});
            target.modern("subscriptions/listen", wishes)
        }
    };
    wire.send(&stream).await?;
    let head = wire.receive_head().await?.context("the gateway closed the connection")?;
    ensure!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "no stream: {head}");
    Ok(wire.into_parts())
}

/// Counts notifications until the stream ends.
async fn read(
    mut stream: TcpStream,
    early: Vec<u8>,
    begun: Instant,
    heard: Arc<Vec<Heard>>,
    number: usize,
) -> Result<()> {
    // A notification may arrive in two parts.
    let mut unread = early;
    unread.shrink_to_fit();
    loop {
        while let Some(at) = unread.windows(NOTICE.len()).position(|part| part == NOTICE) {
            unread.drain(..at + NOTICE.len());
            let now = u64::try_from(begun.elapsed().as_nanos())?;
            heard[number].last.store(now, Ordering::Release);
            heard[number].count.fetch_add(1, Ordering::Release);
        }
        let done = unread.len().saturating_sub(NOTICE.len());
        unread.drain(..done);
        unread.reserve(512);
        ensure!(stream.read_buf(&mut unread).await? > 0, "the stream ended");
    }
}
