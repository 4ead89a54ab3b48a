//! Writes what is recorded of calls: a call that ends is counted and put into a queue with a limit, and one task writes in
//! batches. A slow or full disk costs records, never calls.

mod follower;
mod ids;
mod intake;
mod paused;
mod sum;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::trail::{EndedCall, Trail};
use super::{now_ms, random_id};
use model::CallRecord;
use store::{CallCount, CallRow, Kept, Records, SPANS, StoreError};
use telemetry::CallId;

use follower::Follower;
use ids::CallIds;
use intake::{Group, Intake};
use paused::Paused;

pub(super) use intake::CountKey;
pub(super) use sum::Counted;

pub use store::{CallFilter, CountedKind, KeptCall, Retention};
pub use sum::Sum;

/// How often the queue is written: what a killed process loses.
const PACE: Duration = Duration::from_millis(400);
/// How often old records are deleted, and how often all are counted.
const TRIMMING: Duration = Duration::from_secs(10);
const COUNTING: Duration = Duration::from_secs(300);
/// How many calls wait to be written at most.
const QUEUE: usize = 20_000;
/// How many calls a slow reader of the live list may be behind.
const LIVE_BACKLOG: usize = 1024;
/// How long the last records may take to be written.
const LAST_FLUSH: Duration = Duration::from_secs(2);
/// The longest time between two attempts to write, after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What is recorded of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallLog {
    Off,
    Summary,
    /// Arguments and results too.
    Full,
}

impl CallLog {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "off" => Some(CallLog::Off),
            "summary" => Some(CallLog::Summary),
            "full" => Some(CallLog::Full),
            _ => None,
        }
    }
}

/// What is recorded, and how much of it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    pub calls: CallLog,
    pub retention: Retention,
    /// The most calls per second that get a record of their own; all are counted.
    pub rate: u32,
}

impl Default for Recording {
    fn default() -> Self {
        let retention = Retention { days: 30, rows: 1_000_000, megabytes: 2048 };
        Self { calls: CallLog::Summary, retention, rate: 500 }
    }
}

/// The records of calls, for whoever writes or reads them.
pub struct Recorder {
    pub recording: Recording,
    records: Records,
    intake: Mutex<Intake>,
    paused: Mutex<Paused>,
    dropped: AtomicU64,
    /// Why records cannot be written at the moment.
    failure: ArcSwapOption<String>,
    live: broadcast::Sender<Arc<CallRecord>>,
    ids: CallIds,
    /// The task that writes, which outlives the calls.
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl Recorder {
    pub fn new(recording: Recording, records: Records) -> Self {
        Self {
            recording,
            records,
            intake: Mutex::new(Intake::new(recording.rate)),
            paused: Mutex::default(),
            dropped: AtomicU64::new(0),
            failure: ArcSwapOption::empty(),
            live: broadcast::Sender::new(LIVE_BACKLOG),
            ids: CallIds::new(),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
        }
    }

    /// Begins to write what arrives.
    pub(super) fn start(self: &Arc<Self>) {
        if self.is_on() {
            self.tasks.spawn(self.clone().run());
        }
    }

    /// Writes what has arrived, and ends.
    pub(super) async fn stop(&self) {
        drop(std::mem::take(&mut *self.lock_paused()));
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub fn is_on(&self) -> bool {
        self.recording.calls != CallLog::Off
    }

    /// Whether arguments and results are kept.
    pub fn keeps_contents(&self) -> bool {
        self.recording.calls == CallLog::Full
    }

    /// How many calls have no record although they should.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Why records cannot be written at the moment.
    pub fn failure(&self) -> Option<Arc<String>> {
        self.failure.load_full()
    }

    pub(super) fn next_id(&self, now_ms: i64) -> CallId {
        self.ids.next(now_ms)
    }

    /// The calls that end from now on.
    pub fn watch(&self) -> broadcast::Receiver<Arc<CallRecord>> {
        self.live.subscribe()
    }

    /// Takes a call that ended. It never waits.
    pub(super) fn add(&self, call: Box<EndedCall>, now: std::time::Instant) {
        // Calls may be traced and not recorded.
        if self.is_on() && !self.lock_intake().add(call, now) {
            self.drop_record();
        }
    }

    fn drop_record(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn lock_intake(&self) -> MutexGuard<'_, Intake> {
        self.intake.lock().expect("no code panics while it holds the intake")
    }

    fn lock_paused(&self) -> MutexGuard<'_, Paused> {
        self.paused.lock().expect("no code panics while it holds what is paused")
    }

    /// Keeps the trail of a call until its client sends its request again.
    pub(super) fn pause(&self, key: Vec<u8>, trail: Trail, limit: Duration) {
        self.lock_paused().add(key, trail, Instant::now() + limit);
    }

    /// The trail of the call that waits longest under this key.
    pub(super) fn resume(&self, key: &[u8]) -> Option<Trail> {
        self.lock_paused().take(key)
    }

    /// Gives calls up whose clients did not come back in time.
    fn end_paused(&self, now: Instant) {
        loop {
            let given_up = self.lock_paused().take_before(now);
            let Some(trail) = given_up else { return };
            trail.abandon();
        }
    }

    /// The calls that fit, newest first.
    pub async fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRecord>, StoreError> {
        match self.is_on() {
            true => self.records.calls(filter).await,
            false => Ok(Vec::new()),
        }
    }

    pub async fn call(&self, id: &str) -> Result<Option<KeptCall>, StoreError> {
        match self.is_on() {
            true => self.records.call(id).await,
            false => Ok(None),
        }
    }

    /// The calls of a window, counted by server, tool or principal, of names that fit.
    pub async fn stats(
        &self,
        window: Window,
        kind: CountedKind,
        fits: impl Fn(&str) -> bool,
    ) -> Result<Stats, StoreError> {
        let span = window.span_ms();
        let last = now_ms().div_euclid(span) * span;
        let first = last - (POINTS - 1) * span;
        let counts = match self.is_on() {
            true => self.records.counts(span, first, kind).await?,
            false => Vec::new(),
        };
        let mut rows: HashMap<String, Sum> = HashMap::new();
        let mut series: Vec<_> = (0..POINTS).map(|point| (first + point * span, Sum::default())).collect();
        for count in counts.into_iter().filter(|count| fits(&count.name)) {
            if let Some((_, sum)) =
                usize::try_from((count.at_ms - first) / span).ok().and_then(|point| series.get_mut(point))
            {
                sum.add(&count);
            }
            rows.entry(count.name.clone()).or_default().add(&count);
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by(|(name, sum), (other, its)| its.calls.cmp(&sum.calls).then_with(|| name.cmp(other)));
        Ok(Stats { rows, series })
    }

    /// Writes what arrives until it is ended, and then the rest.
    async fn run(self: Arc<Self>) {
        let mut writer = Writer::new();
        let mut follower = Follower::default();
        self.ids.go_on_after(self.records.newest_id().await.ok().flatten());
        while self.ending.run_until_cancelled(tokio::time::sleep(PACE)).await.is_some() {
            writer.work(&self).await;
            follower.look(&self).await;
        }
        // The gateway ends soon even if its database does not answer.
        if tokio::time::timeout(LAST_FLUSH, writer.flush(&self, Instant::now())).await.is_err() {
            tracing::warn!("the last records of calls could not be written in time");
        }
        self.records.close().await;
    }
}

/// What the task that writes knows.
struct Writer {
    /// Tells what this process counted from what others did.
    name: String,
    /// Calls that have not been written.
    rows: Vec<CallRow>,
    /// The counts of spans that have not ended, or have not been written.
    counts: HashMap<SpanKey, (CallCount, bool)>,
    kept: Kept,
    counted: Option<Instant>,
    trimmed: Instant,
    /// After a failure: when to try again, and how long to wait after the next one.
    retry: Option<Instant>,
    pause: Duration,
}

type SpanKey = (i64, i64, CountedKind, String);

impl Writer {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            name: random_id(),
            rows: Vec::new(),
            counts: HashMap::new(),
            kept: Kept::default(),
            counted: None,
            trimmed: now,
            retry: None,
            pause: PACE,
        }
    }

    async fn work(&mut self, recorder: &Recorder) {
        let now = Instant::now();
        recorder.end_paused(now);
        self.flush(recorder, now).await;
        if self.retry.is_none() && now.duration_since(self.trimmed) >= TRIMMING {
            self.trimmed = now;
            if let Err(error) = self.trim(recorder, now).await {
                tracing::debug!(%error, "cannot delete old records of calls");
            }
        }
    }

    async fn flush(&mut self, recorder: &Recorder, now: Instant) {
        self.take(recorder);
        if self.retry.is_some_and(|at| now < at) {
            return;
        }
        let changed: Vec<_> =
            self.counts.values().filter(|(_, is_new)| *is_new).map(|(count, _)| count.clone()).collect();
        if self.rows.is_empty() && changed.is_empty() {
            return;
        }
        match recorder.records.add(&self.name, &self.rows, &changed).await {
            Ok(()) => {
                self.kept.rows += self.rows.len() as u64;
                self.rows.clear();
                let now_ms = now_ms();
                self.counts.retain(|(span, at, ..), _| at + span > now_ms);
                self.counts.values_mut().for_each(|(_, is_new)| *is_new = false);
                if recorder.failure.swap(None).is_some() {
                    tracing::info!("records of calls are written again");
                }
                (self.retry, self.pause) = (None, PACE);
            }
            Err(error) => {
                if recorder.failure.swap(Some(Arc::new(error.to_string()))).is_none() {
                    tracing::warn!(%error, "cannot write records of calls; calls go on");
                }
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                self.retry = Some(now + self.pause);
            }
        }
    }

    /// Takes what has ended: as many records as there is room for, and all counts.
    fn take(&mut self, recorder: &Recorder) {
        let (ended, groups) = {
            let mut intake = recorder.lock_intake();
            (std::mem::take(&mut intake.queue), std::mem::take(&mut intake.counts))
        };
        for call in ended {
            if self.rows.len() >= QUEUE {
                recorder.drop_record();
                continue;
            }
            let row = call.into_row(recorder.keeps_contents());
            if recorder.live.receiver_count() > 0 {
                let _ = recorder.live.send(Arc::new(row.record.clone()));
            }
            self.rows.push(row);
        }
        let mut sums: HashMap<(CountedKind, String), Sum> = HashMap::new();
        for Group { names, sum, .. } in groups.into_values() {
            for name in names {
                sums.entry(name).or_default().merge(&sum);
            }
        }
        let now_ms = now_ms();
        for ((kind, name), sum) in sums {
            for span_ms in SPANS {
                let at_ms = now_ms.div_euclid(span_ms) * span_ms;
                let key = (span_ms, at_ms, kind, name.clone());
                let empty = || (sum.empty_count(span_ms, at_ms, kind, &name), true);
                let (count, is_new) = self.counts.entry(key).or_insert_with(empty);
                sum.add_to(count);
                *is_new = true;
            }
        }
    }

    /// Deletes what is too old or too much.
    async fn trim(&mut self, recorder: &Recorder, now: Instant) -> Result<(), StoreError> {
        if self.counted.is_none_or(|at| now.duration_since(at) >= COUNTING) {
            self.kept = recorder.records.kept().await?;
            self.counted = Some(now);
        }
        let retention = &recorder.recording.retention;
        loop {
            let gone = recorder.records.trim(retention, self.kept, now_ms()).await?;
            self.kept.rows = self.kept.rows.saturating_sub(gone.rows);
            self.kept.bytes = self.kept.bytes.saturating_sub(gone.bytes);
            // What arrives meanwhile is written between two steps.
            match gone.rows > 0 && now.elapsed() < PACE {
                true => tokio::task::yield_now().await,
                false => return Ok(()),
            }
        }
    }
}

/// The points of a series.
const POINTS: i64 = 60;

/// A time until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    Hour,
    Day,
    Week,
    Month,
}

impl Window {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "1h" => Some(Window::Hour),
            "24h" => Some(Window::Day),
            "7d" => Some(Window::Week),
            "30d" => Some(Window::Month),
            _ => None,
        }
    }

    /// A 60th of it.
    fn span_ms(self) -> i64 {
        SPANS[self as usize]
    }
}

/// The calls of a window.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// By name, those with most calls first.
    pub rows: Vec<(String, Sum)>,
    /// By the beginning of each of 60 spans, in milliseconds since 1970.
    pub series: Vec<(i64, Sum)>,
}
