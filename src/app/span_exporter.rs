//! Sends spans to a collector, in batches and in the background. A collector that is down, slow or silent costs spans, which
//! are counted, and never holds up a call or, for more than a moment, the stop of the gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use url::Url;

use crate::config::TraceSettings;
use telemetry::traces::{FinishedSpan, Tracer};

/// How long the last spans may take to be sent.
const LAST_FLUSH: Duration = Duration::from_secs(2);
/// How often a batch is sent at most.
const MOST_ATTEMPTS: u32 = 5;
/// The pause after the first failed attempt, which then doubles, and the longest one that a collector may ask for.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often it is logged that spans are dropped.
const LOGGING: Duration = Duration::from_secs(60);
/// How much of a response is read, so that its connection can be used again.
const LARGEST_RESPONSE: usize = 64 * 1024;

/// The statuses with which a collector asks to be sent the same again.
const TEMPORARY: [u16; 4] = [429, 502, 503, 504];

pub struct SpanExporter {
    tracer: Arc<Tracer>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the task if the gateway does not start.
    _stop_on_drop: DropGuard,
}

impl SpanExporter {
    pub fn start(settings: &TraceSettings, tls: &upstream::Tls) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let mut secret =
                HeaderValue::try_from(value.expose()).context("a header for traces is not valid")?;
            secret.set_sensitive(true);
            headers.insert(HeaderName::try_from(name)?, secret);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let client = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
            .timeout(settings.timeout)
            .tls_backend_preconfigured(tls.config().as_ref().clone())
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()?;
        let full = Arc::new(Notify::new());
        let wake = full.clone();
        let tracer =
            Tracer::new(settings.tracer.clone(), env!("CARGO_PKG_VERSION"), move || wake.notify_one());
        let (tracer, tasks, stop) = (Arc::new(tracer), TaskTracker::new(), CancellationToken::new());
        let worker = Worker {
            tracer: tracer.clone(),
            client,
            endpoint: settings.endpoint.clone(),
            delay: settings.delay,
            full,
            pending: Vec::new(),
            lost: Lost::default(),
        };
        tasks.spawn(worker.run(stop.clone()));
        tracing::info!(collector = address(&settings.endpoint), "calls are traced");
        Ok(Self { tracer, tasks, _stop_on_drop: stop.clone().drop_guard(), stop })
    }

    pub fn tracer(&self) -> Arc<Tracer> {
        self.tracer.clone()
    }

    /// Sends what has arrived, as far as that is possible in a moment, and ends.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The task that sends.
struct Worker {
    tracer: Arc<Tracer>,
    client: reqwest::Client,
    endpoint: Url,
    delay: Duration,
    full: Arc<Notify>,
    /// The batch that is being sent.
    pending: Vec<FinishedSpan>,
    lost: Lost,
}

/// What was lost since it was last logged.
#[derive(Default)]
struct Lost {
    spans: usize,
    logged: Option<Instant>,
}

/// Why a batch was not accepted.
enum Rejection {
    /// It may be sent again, after this time if the collector says so.
    Temporary(String, Option<Duration>),
    Final(String),
}

impl Worker {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let full = self.full.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = full.notified() => {}
                () = tokio::time::sleep(self.delay) => {}
            }
            // A batch that is interrupted by the stop is sent again below.
            if stop.run_until_cancelled(self.send_all()).await.is_none() {
                break;
            }
        }
        if tokio::time::timeout(LAST_FLUSH, self.send_all()).await.is_err() {
            let rest =
                std::iter::from_fn(|| Some(self.tracer.take_batch()).filter(|batch| !batch.is_empty()));
            let count = self.pending.len() + rest.map(|batch| batch.len()).sum::<usize>();
            self.tracer.drop_spans(count);
            tracing::warn!(spans = count, "the last spans could not be sent to the collector in time");
        }
    }

    /// Sends all that waits.
    async fn send_all(&mut self) {
        loop {
            if self.pending.is_empty() {
                self.pending = self.tracer.take_batch();
            }
            if self.pending.is_empty() {
                return;
            }
            self.send_batch().await;
            self.pending.clear();
        }
    }

    /// Sends a batch, several times if necessary, or drops it.
    async fn send_batch(&mut self) {
        let body = bytes::Bytes::from(self.tracer.encode(&self.pending));
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let (reason, wait) = match self.post(body.clone()).await {
                Ok(()) => return self.lost.forget(),
                Err(Rejection::Final(reason)) => return self.drop_batch(&reason),
                Err(Rejection::Temporary(reason, wait)) => (reason, wait),
            };
            if attempt == MOST_ATTEMPTS {
                return self.drop_batch(&reason);
            }
            tracing::debug!(reason, attempt, "the collector did not accept spans; trying again");
            tokio::time::sleep(wait.unwrap_or(pause).min(LONGEST_PAUSE)).await;
            pause *= 2;
        }
    }

    async fn post(&self, body: bytes::Bytes) -> Result<(), Rejection> {
        let sent = self.client.post(self.endpoint.clone()).body(body).send().await;
        let mut response = sent.map_err(|error| {
            let reason = match (error.is_timeout(), error.is_connect()) {
                (true, _) => "it did not answer in time",
                (false, true) => "it cannot be reached",
                (false, false) => "the connection broke",
            };
            Rejection::Temporary(reason.to_owned(), None)
        })?;
        let status = response.status().as_u16();
        let after =
            response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse::<u64>().ok());
        let mut length = 0;
        while let Ok(Some(piece)) = response.chunk().await {
            length += piece.len();
            if length > LARGEST_RESPONSE {
                break;
            }
        }
        let reason = || format!("it answered HTTP {status}");
        match status {
            200..300 => Ok(()),
            status if TEMPORARY.contains(&status) => {
                Err(Rejection::Temporary(reason(), after.map(Duration::from_secs)))
            }
            _ => Err(Rejection::Final(reason())),
        }
    }

    fn drop_batch(&mut self, reason: &str) {
        self.tracer.drop_spans(self.pending.len());
        self.lost.spans += self.pending.len();
        if self.lost.logged.is_none_or(|at| at.elapsed() >= LOGGING) {
            let (spans, collector) = (self.lost.spans, address(&self.endpoint));
            tracing::warn!(spans, collector, reason, "spans were dropped: the collector did not accept them");
            self.lost = Lost { spans: 0, logged: Some(Instant::now()) };
        }
    }
}

impl Lost {
    /// The collector accepts spans.
    fn forget(&mut self) {
        if self.logged.take().is_some() {
            tracing::info!(spans = self.spans, "the collector accepts spans again");
            self.spans = 0;
        }
    }
}

/// The host and port of a URL, whose other parts may be secret.
fn address(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    format!("{host}:{}", url.port_or_known_default().unwrap_or_default())
}
