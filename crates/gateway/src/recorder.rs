//! Writes what is recorded of calls: a call that ends is counted and put into a queue with a limit, and one task writes in
//! batches. A slow or full disk costs records, never calls.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::catalog::{Entry, ToolPosition};
use super::trail::{EndedCall, Trail};
use super::{now_ms, random_id};
use model::{CallRecord, Histogram, PrincipalId};
use store::{CallCount, CallRow, Kept, Records, SPANS, StoreError};
use telemetry::CallId;

pub use store::{CallFilter, CountedKind, KeptCall, Retention};

/// How often the queue is written: what a killed process loses.
const PACE: Duration = Duration::from_millis(400);
/// How often old records are deleted, and how often all are counted.
const TRIMMING: Duration = Duration::from_secs(10);
const COUNTING: Duration = Duration::from_secs(300);
/// How many calls wait to be written at most.
const QUEUE: usize = 20_000;
/// How many calls wait for another request of their client at most; others are recorded at once.
const MOST_PAUSED: usize = 10_000;
/// How many calls a slow reader of the live list may be behind.
const LIVE_BACKLOG: usize = 1024;
/// How long after it was written a call of another gateway may become visible.
const OVERLAP_MS: i64 = 5000;
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
    pub(super) fn add(&self, call: EndedCall, now: std::time::Instant) {
        let is_kept = self.lock_intake().add(call, now);
        if !is_kept {
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

/// Calls that wait for another request of their client.
#[derive(Default)]
struct Paused {
    /// By the time until which they wait, and a number.
    trails: BTreeMap<(Instant, u64), (Vec<u8>, Trail)>,
    /// The same times and numbers for each key, in order.
    by_key: HashMap<Vec<u8>, VecDeque<(Instant, u64)>>,
    last: u64,
}

impl Paused {
    fn add(&mut self, key: Vec<u8>, trail: Trail, until: Instant) {
        if self.trails.len() < MOST_PAUSED {
            self.last += 1;
            self.by_key.entry(key.clone()).or_default().push_back((until, self.last));
            self.trails.insert((until, self.last), (key, trail));
        }
    }

    /// Takes out the one that has waited longest under this key.
    fn take(&mut self, key: &[u8]) -> Option<Trail> {
        let waiting = self.by_key.get_mut(key)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.by_key.remove(key);
        }
        self.trails.remove(&first?).map(|(_, trail)| trail)
    }

    /// Takes out one whose time is over.
    fn take_before(&mut self, now: Instant) -> Option<Trail> {
        let (_, (key, _)) = self.trails.first_key_value().filter(|((until, _), _)| *until <= now)?;
        // All of a key wait equally long, so it is the first of them.
        let key = key.clone();
        self.take(&key)
    }
}

/// What has ended since the task that writes last looked.
struct Intake {
    counts: HashMap<CountKey, Group>,
    queue: Vec<EndedCall>,
    /// How many calls per second get a record, and how many may get one now.
    rate: f64,
    allowance: f64,
    filled: std::time::Instant,
}

/// What calls have in common that are counted under the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountKey {
    /// The address of the entry in the catalog.
    pub entry: usize,
    pub tool: Option<ToolPosition>,
    pub principal: Option<PrincipalId>,
}

impl Hash for CountKey {
    /// Hashes one word instead of five.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let tool = self.tool.map_or(0, |ToolPosition(position)| position as u64 + 1);
        let principal = self.principal.map_or(0, |PrincipalId(id)| id);
        state.write_u64(self.entry as u64 ^ tool.rotate_left(48) ^ principal.rotate_left(24));
    }
}

/// Calls that are counted under the same names.
struct Group {
    names: Vec<(CountedKind, String)>,
    sum: Sum,
    /// As long as it is held, no other entry has its address.
    _entry: Option<Arc<Entry>>,
}

impl Intake {
    fn new(rate: u32) -> Self {
        let rate = f64::from(rate);
        let filled = std::time::Instant::now();
        Self { counts: HashMap::new(), queue: Vec::new(), rate, allowance: rate, filled }
    }

    /// Counts a call, and keeps it for the task that writes if there is room; returns whether it was kept.
    fn add(&mut self, call: EndedCall, now: std::time::Instant) -> bool {
        let group = self.counts.entry(call.count_key()).or_insert_with(|| {
            let (names, entry) = call.counted_under();
            Group { names, sum: Sum::default(), _entry: entry }
        });
        group.sum.add_one(call.counted());
        let gained = self.rate * now.saturating_duration_since(self.filled).as_secs_f64();
        (self.allowance, self.filled) = ((self.allowance + gained).min(self.rate), now.max(self.filled));
        let is_kept = self.allowance >= 1.0 && self.queue.len() < QUEUE;
        if is_kept {
            self.allowance -= 1.0;
            self.queue.push(call);
        }
        is_kept
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

/// Shows calls of other gateways on the same database to those who watch calls here.
#[derive(Default)]
struct Follower {
    /// The times of the database server from which and up to which calls are known; `None` while nobody watches.
    known: Option<(i64, i64)>,
    /// Calls that were shown lately, and when they were written.
    shown: HashMap<String, i64>,
}

impl Follower {
    async fn look(&mut self, recorder: &Recorder) {
        if recorder.live.receiver_count() == 0 {
            *self = Self::default();
            return;
        }
        let after = self.known.map(|(from, until)| from.max(until - OVERLAP_MS));
        let (calls, now) = match recorder.records.written_after(after).await {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "cannot read the calls of other gateways"),
        };
        let own = recorder.ids.suffix();
        for (record, written) in calls {
            let is_new =
                !record.id.ends_with(&own) && self.shown.insert(record.id.clone(), written).is_none();
            if is_new {
                let _ = recorder.live.send(Arc::new(record));
            }
        }
        let (from, _) = self.known.unwrap_or((now, now));
        self.known = Some((from, now));
        self.shown.retain(|_, written| *written > now - 2 * OVERLAP_MS);
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

    fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.bytes += other.bytes;
        self.durations.merge(&other.durations);
        self.own_times.merge(&other.own_times);
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

/// Numbers calls.
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

    fn next(&self, now_ms: i64) -> CallId {
        let now = now_ms.unsigned_abs() << COUNT_BITS;
        let after = |last: u64| Some((last + 1).max(now));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        CallId { number: (last.unwrap_or_default() + 1).max(now), writer: self.writer }
    }

    /// The end of all ids that are given here.
    fn suffix(&self) -> String {
        format!("{:08x}", self.writer)
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
        let first = ids.next(now_ms());
        let far_ahead = (now_ms() + 1_000_000).unsigned_abs() << COUNT_BITS;
        ids.last.store(far_ahead, Ordering::Relaxed);
        let (second, third) = (ids.next(now_ms()), ids.next(now_ms()));
        assert!(first < second && second < third);
        assert!(first.to_string() < second.to_string() && second.to_string() < third.to_string());
        let restarted = CallIds::new();
        restarted.go_on_after(Some(third.to_string()));
        assert!(restarted.next(now_ms()).to_string()[..16] > third.to_string()[..16]);
        restarted.go_on_after(Some("x".into()));
    }
}
