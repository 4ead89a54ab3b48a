//! Writes what is recorded of calls: they come through a queue with a limit, and one task writes them in batches. A slow or
//! full disk costs records, never calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::trail::EndedCall;
use super::{now_ms, random_id};
use model::{CallRecord, Histogram};
use store::{CallCount, CallRow, Kept, Records, SPANS, StoreError};

pub use store::{CallFilter, CountedKind, KeptCall, Retention};

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
    queue: Mutex<Vec<EndedCall>>,
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
            queue: Mutex::default(),
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

    pub(super) fn next_id(&self) -> CallId {
        self.ids.next()
    }

    /// The calls that end from now on.
    pub fn watch(&self) -> broadcast::Receiver<Arc<CallRecord>> {
        self.live.subscribe()
    }

    /// Takes a call that ended. It never waits.
    pub(super) fn add(&self, call: EndedCall) {
        if !self.is_on() {
            return;
        }
        let mut queue = self.queue.lock().expect("no code panics while it holds the queue");
        match queue.len() < QUEUE {
            true => queue.push(call),
            false => self.drop_records(1),
        }
    }

    fn drop_records(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn take_queue(&self) -> Vec<EndedCall> {
        std::mem::take(&mut *self.queue.lock().expect("no code panics while it holds the queue"))
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
        self.ids.go_on_after(self.records.newest_id().await.ok().flatten());
        while self.ending.run_until_cancelled(tokio::time::sleep(PACE)).await.is_some() {
            writer.work(&self).await;
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
    counts: HashMap<CountKey, (CallCount, bool)>,
    /// How many calls may be written now.
    allowance: f64,
    filled: Instant,
    kept: Kept,
    counted: Option<Instant>,
    trimmed: Instant,
    /// After a failure: when to try again, and how long to wait after the next one.
    retry: Option<Instant>,
    pause: Duration,
}

type CountKey = (i64, i64, CountedKind, String);

impl Writer {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            name: random_id(),
            rows: Vec::new(),
            counts: HashMap::new(),
            allowance: f64::MAX,
            filled: now,
            kept: Kept::default(),
            counted: None,
            trimmed: now,
            retry: None,
            pause: PACE,
        }
    }

    async fn work(&mut self, recorder: &Recorder) {
        let now = Instant::now();
        self.flush(recorder, now).await;
        if self.retry.is_none() && now.duration_since(self.trimmed) >= TRIMMING {
            self.trimmed = now;
            if let Err(error) = self.trim(recorder, now).await {
                tracing::debug!(%error, "cannot delete old records of calls");
            }
        }
    }

    async fn flush(&mut self, recorder: &Recorder, now: Instant) {
        self.take(recorder, now);
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

    /// Takes what is in the queue: counts all of it, and keeps as many records as may be written.
    fn take(&mut self, recorder: &Recorder, now: Instant) {
        let rate = f64::from(recorder.recording.rate);
        self.allowance = (self.allowance + rate * now.duration_since(self.filled).as_secs_f64()).min(rate);
        self.filled = now;
        let ended = recorder.take_queue();
        if ended.is_empty() {
            return;
        }
        let mut sums: HashMap<(CountedKind, String), Sum> = HashMap::new();
        for call in ended {
            call.count(|kind, name, counted| sums.entry((kind, name)).or_default().add_one(counted));
            let has_room = self.rows.len() < QUEUE && self.allowance >= 1.0;
            if !has_room {
                recorder.drop_records(1);
                continue;
            }
            self.allowance -= 1.0;
            let row = call.into_row(recorder.keeps_contents());
            if recorder.live.receiver_count() > 0 {
                let _ = recorder.live.send(Arc::new(row.record.clone()));
            }
            self.rows.push(row);
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

/// One call, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub is_error: bool,
    pub bytes: u64,
    pub duration: Duration,
    pub own_time: Duration,
}

/// Calls that were counted together.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    pub calls: u64,
    pub errors: u64,
    pub bytes: u64,
    pub durations: Histogram,
    pub own_times: Histogram,
}

impl Sum {
    fn add_one(&mut self, counted: Counted) {
        self.calls += 1;
        self.errors += u64::from(counted.is_error);
        self.bytes += counted.bytes;
        self.durations.add(counted.duration);
        self.own_times.add(counted.own_time);
    }

    fn add(&mut self, count: &CallCount) {
        self.calls += count.calls;
        self.errors += count.errors;
        self.bytes += count.bytes;
        self.durations.merge(&count.durations);
        self.own_times.merge(&count.own_times);
    }

    fn empty_count(&self, span_ms: i64, at_ms: i64, kind: CountedKind, name: &str) -> CallCount {
        let (durations, own_times) = Default::default();
        let (calls, errors, bytes) = (0, 0, 0);
        CallCount { span_ms, at_ms, kind, name: name.to_owned(), calls, errors, bytes, durations, own_times }
    }

    fn add_to(&self, count: &mut CallCount) {
        count.calls += self.calls;
        count.errors += self.errors;
        count.bytes += self.bytes;
        count.durations.merge(&self.durations);
        count.own_times.merge(&self.own_times);
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

/// The number of a call: later ones are greater, even if the clock jumps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    number: u64,
    /// Tells apart what several gateways number alike.
    writer: u32,
}

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:08x}", self.number, self.writer)
    }
}

#[derive(Debug)]
struct CallIds {
    last: AtomicU64,
    writer: u32,
}

/// The bits of a number that count within a millisecond.
const COUNT_BITS: u32 = 16;

impl CallIds {
    fn new() -> Self {
        let mut writer = [0; 4];
        getrandom::fill(&mut writer).expect("the system has random numbers");
        Self { last: AtomicU64::new(0), writer: u32::from_le_bytes(writer) }
    }

    fn next(&self) -> CallId {
        let now = now_ms().unsigned_abs() << COUNT_BITS;
        let after = |last: u64| Some((last + 1).max(now));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        CallId { number: (last.unwrap_or_default() + 1).max(now), writer: self.writer }
    }

    /// Goes on after an id that was given before.
    fn go_on_after(&self, id: Option<String>) {
        let number = id.and_then(|id| u64::from_str_radix(id.get(..16)?, 16).ok());
        self.last.fetch_max(number.unwrap_or_default(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_even_if_the_clock_jumps_back() {
        let ids = CallIds::new();
        let first = ids.next();
        let far_ahead = (now_ms() + 1_000_000).unsigned_abs() << COUNT_BITS;
        ids.last.store(far_ahead, Ordering::Relaxed);
        let (second, third) = (ids.next(), ids.next());
        assert!(first < second && second < third);
        assert!(first.to_string() < second.to_string() && second.to_string() < third.to_string());
        let restarted = CallIds::new();
        restarted.go_on_after(Some(third.to_string()));
        assert!(restarted.next().to_string()[..16] > third.to_string()[..16]);
        restarted.go_on_after(Some("x".into()));
    }
}
