//! The background task of a supervised server: watches a link while it works, reads the lists again when they may have
//! changed, and reconnects with backoff when the link is lost. The part that callers use is in `handle`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connect::{connect, connect_only, read_lists};
use super::error::{ConnectError, seconds};
use super::handle::{Refresh, ServerEvent, Shared, Upstream, counted};
use super::journal::without_output;
use super::link::Link;
use super::lists::Discovery;
use super::profile::Profile;
use super::reading::{MOVED, Reading};
use model::{Capabilities, Offering, Status, Transport};

/// The longest and the shortest time between two scheduled readings of the lists.
const LONGEST_TTL: Duration = Duration::from_secs(600);
const SHORTEST_TTL: Duration = Duration::from_secs(30);
/// A link lost sooner than this after connecting counts towards a crash loop.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// After up to this many short lives in a row the link is reopened at once; after more, with backoff.
const FREE_RESTARTS: u32 = 2;
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);
/// The shortest time between two attempts to connect to a failed server, however often callers need it.
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(250);
/// The pause between two unscheduled readings of the lists; it doubles while they find nothing new.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long callers wait until it is known which gateway runs the server.
const UNKNOWN_GATEWAY: Duration = Duration::from_secs(8);
/// How long callers wait for another gateway to run the server after the one that did cannot be reached.
const UNREACHABLE_GATEWAY: Duration = Duration::from_secs(1);
/// Until a caller comes.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The background task of an [`Upstream`].
pub struct Supervisor {
    pub upstream: Upstream,
    pub refreshes: mpsc::UnboundedReceiver<Refresh>,
    /// Whether the lists were read over the current link.
    pub has_read: bool,
    /// Whether the next attempt to connect follows a process that ended, or that could not be used.
    pub starts_again: bool,
    /// Whether there was a link before.
    pub was_connected: bool,
}

/// Why the supervisor stopped watching a link.
enum LinkEnd {
    Stopped,
    /// The session or process is gone; calls in flight have failed already.
    Lost(String),
    /// Another gateway runs the server now, or this one.
    Moved,
}

impl Supervisor {
    pub async fn run(mut self, connected: Option<(Arc<Link>, Discovery)>) {
        let mut waiting: Vec<Refresh> = Vec::new();
        let mut next = connected.map(|connected| (connected, Reading::Here));
        let mut short_lives = 0;
        let just_failed = self.upstream.state().status == Status::Failed;
        if just_failed && !self.pause(back_off(1), &mut waiting).await {
            return;
        }
        loop {
            let Some(((link, discovery), opened_under)) = (match next.take() {
                Some(connected) => Some(connected),
                None if self.rest(&mut waiting).await => self.reconnect(&mut waiting).await,
                None => None,
            }) else {
                return;
            };
            self.offer(&discovery.offering);
            for done in waiting.drain(..) {
                let _ = done.send(Ok(discovery.offering.clone()));
            }
            let since = Instant::now();
            let ended = self.attend(&link, discovery, opened_under, &mut waiting).await;
            match ended {
                LinkEnd::Stopped => return link.close().await,
                LinkEnd::Moved => {
                    let server = &self.shared().config.name;
                    tracing::info!(%server, from = ?opened_under, "{MOVED}");
                    self.shared().note(MOVED);
                    self.shared().show(Status::Connecting, MOVED, None);
                    match opened_under {
                        // There must be no second process.
                        Reading::Here | Reading::Elsewhere => link.close().await,
                        // What the other gateway has begun, it may finish.
                        Reading::Through(_) => link.abandon(MOVED),
                    }
                    (short_lives, self.starts_again) = (0, false);
                }
                LinkEnd::Lost(reason) => {
                    self.starts_again = true;
                    let server = &self.shared().config.name;
                    tracing::warn!(%server, reason = without_output(&reason), "lost the link to a server");
                    self.shared().note(&format!("lost the link: {reason}"));
                    link.abandon(&reason);
                    short_lives = if since.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
                    if short_lives <= FREE_RESTARTS {
                        self.shared().show(Status::Connecting, reason, None);
                        continue;
                    }
                    self.shared().show(Status::Failed, format!("it keeps ending: {reason}"), None);
                    let time = back_off(short_lives - FREE_RESTARTS);
                    self.shared()
                        .note(&format!("it keeps ending; waiting {} before the next start", seconds(time)));
                    if waiting.is_empty() && !self.pause(time, &mut waiting).await {
                        return;
                    }
                }
            }
        }
    }

    fn shared(&self) -> &Shared {
        &self.upstream.0
    }

    fn reads_here(&self) -> bool {
        *self.shared().reading.borrow() == Reading::Here
    }

    /// Waits until a caller needs the link, where another gateway reads the lists. False when stopped.
    async fn rest(&mut self, waiting: &mut Vec<Refresh>) -> bool {
        let shared = self.upstream.0.clone();
        let mut reading = shared.reading.subscribe();
        if self.reads_here() || !waiting.is_empty() || shared.has_topics() {
            return true;
        }
        shared.show_resting();
        tokio::select! {
            () = shared.stop.cancelled() => return false,
            () = shared.woken.notified() => {}
            _ = reading.wait_for(|reading| *reading == Reading::Here) => {}
            Some(refresh) = self.refreshes.recv() => waiting.push(refresh),
        }
        shared.show(Status::Connecting, "", None);
        true
    }

    /// Tries to connect until it succeeds; `None` when the server is stopped first.
    async fn reconnect(&mut self, waiting: &mut Vec<Refresh>) -> Option<((Arc<Link>, Discovery), Reading)> {
        let mut failures = 0;
        loop {
            let shared = self.upstream.0.clone();
            let mut reading = shared.reading.subscribe();
            let known = reading.wait_for(|reading| *reading != Reading::Through(None));
            let waited = tokio::time::timeout(UNKNOWN_GATEWAY, known);
            shared.stop.run_until_cancelled(async { drop(waited.await) }).await?;
            shared.note("connecting");
            let target = shared.target();
            let opened_under = target.reading;
            self.count_restart(opened_under);
            let known = shared.offering.load_full().filter(|_| !self.reads_here() && waiting.is_empty());
            let is_known = known.is_some();
            let attempt = async {
                match known {
                    Some(offering) => {
                        let link = connect_only(&target, shared.era()).await?;
                        Ok((link, Discovery::known(offering)))
                    }
                    None => connect(&target, shared.era()).await,
                }
            };
            let attempt = async {
                tokio::select! {
                    attempted = attempt => Some(attempted),
                    _ = reading.wait_for(|now| opened_under.moves_to(*now)) => None,
                }
            };
            let Some(attempted) = shared.stop.run_until_cancelled(attempt).await? else { continue };
            match attempted {
                Ok((link, discovery)) => {
                    if shared.first_era().is_some_and(|era| era != link.era()) {
                        self.upstream.give_up_branches();
                    }
                    shared.remember_era(Some(link.era()));
                    shared.set_speaks_legacy(link.also_legacy());
                    shared.restore(&link, &discovery.offering);
                    self.has_read = !is_known;
                    match is_known {
                        true => shared.show_served(&link),
                        false => shared.show_connected(&link, &discovery),
                    }
                    tracing::info!(server = %shared.config.name, "connected");
                    let how = match (self.was_connected, &shared.config.transport) {
                        (false, _) => "connected",
                        (true, Transport::Stdio(_)) => "restarted and connected",
                        (true, Transport::StreamableHttp(_) | Transport::Sse(_)) => "connected again",
                    };
                    self.was_connected = true;
                    shared.note_connected(how, &link, &discovery.offering);
                    return Some(((link, discovery), opened_under));
                }
                Err(error) => {
                    (failures, self.starts_again) = (failures + 1, true);
                    if failures == 1 && self.waits_for_other_gateway(&error, opened_under).await {
                        continue;
                    }
                    shared.forget_era();
                    let reason = error.to_string();
                    tracing::warn!(server = %shared.config.name, reason = without_output(&reason), "cannot connect to a server");
                    shared.note(&format!("cannot connect: {reason}"));
                    shared.show(Status::Failed, reason, None);
                    for done in waiting.drain(..) {
                        let _ = done.send(Err(error.clone()));
                    }
                    if !self.pause(back_off(failures), waiting).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Counts an attempt that starts the process of the server again.
    fn count_restart(&self, under: Reading) {
        let shared = self.shared();
        let is_process = matches!(shared.config.transport, Transport::Stdio(_));
        if self.starts_again && is_process && !matches!(under, Reading::Through(_)) {
            shared.restarts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits a moment for another gateway to run the server if the one that did cannot be reached; true if there is one.
    async fn waits_for_other_gateway(&self, error: &ConnectError, before: Reading) -> bool {
        let is_unreachable = matches!(error, ConnectError::Unreachable(_));
        if !is_unreachable || !matches!(before, Reading::Through(Some(_))) {
            return false;
        }
        let mut reading = self.shared().reading.subscribe();
        let moved = reading.wait_for(|now| before.moves_to(*now));
        tokio::time::timeout(UNREACHABLE_GATEWAY, moved).await.is_ok()
    }

    /// Waits before the next attempt; a caller that needs the server ends the wait early. False when stopped.
    async fn pause(&mut self, time: Duration, waiting: &mut Vec<Refresh>) -> bool {
        let shared = self.upstream.0.clone();
        // Created before the first wait, so that no caller that arrives from now on is missed.
        let wanted = shared.wanted.notified();
        let mut reading = shared.reading.subscribe();
        // Only the gateway that reads the lists tries again by itself.
        let time = if self.reads_here() { time } else { FOREVER };
        let caller_arrives = async {
            tokio::time::sleep(SHORTEST_BACK_OFF).await;
            wanted.await;
        };
        tokio::select! {
            () = shared.stop.cancelled() => return false,
            _ = tokio::time::timeout(time, caller_arrives) => {}
            Ok(()) = reading.changed() => {}
            Some(refresh) = self.refreshes.recv() => waiting.push(refresh),
        }
        true
    }

    /// Watches a working link until it ends.
    async fn attend(
        &mut self,
        link: &Arc<Link>,
        mut discovery: Discovery,
        opened_under: Reading,
        waiting: &mut Vec<Refresh>,
    ) -> LinkEnd {
        let shared = self.upstream.0.clone();
        let signals = &link.calls.signals;
        let first = Profile { era: link.era(), capabilities: Capabilities::NONE, owner: None };
        let mut next_reading = Instant::now() + reading_interval(&discovery.offering);
        let (mut announced, mut doubted) = (!self.has_read && self.reads_here(), false);
        let (mut pause, mut not_before) = (FIRST_PAUSE, Instant::now());
        let mut reading = shared.reading.subscribe();
        loop {
            if opened_under.moves_to(*reading.borrow()) {
                return LinkEnd::Moved;
            }
            tokio::select! {
                () = shared.stop.cancelled() => return LinkEnd::Stopped,
                () = signals.wait() => {
                    if let Some(reason) = link.calls.lost().or_else(|| signals.take_suspect()) {
                        return LinkEnd::Lost(reason);
                    }
                    for uri in signals.take_updated() {
                        let _ = shared.events.send(ServerEvent::Updated(self.upstream.clone(), first.clone(), uri));
                    }
                    for notice in signals.task_notices.take() {
                        let noticed = ServerEvent::TaskNotice(self.upstream.clone(), first.clone(), notice);
                        let _ = shared.events.send(noticed);
                    }
                    announced |= signals.take_lists_changed();
                    doubted |= signals.take_doubt();
                    continue;
                }
                () = tokio::time::sleep_until(not_before), if announced || doubted => {
                    if !self.reads_here() {
                        // A gateway that runs the server has heard of it before.
                        if self.upstream.reading() == Reading::Elsewhere {
                            let _ = shared.events.send(ServerEvent::Doubted(self.upstream.clone()));
                        }
                        self.upstream.read_branches_again();
                        (announced, doubted) = (false, false);
                        not_before = Instant::now() + pause;
                        continue;
                    }
                }
                () = tokio::time::sleep_until(next_reading), if self.reads_here() => {}
                Ok(()) = reading.changed() => {
                    // What changed before was not told to this gateway.
                    if !self.reads_here() || opened_under.moves_to(Reading::Here) {
                        continue;
                    }
                }
                Some(refresh) = self.refreshes.recv() => waiting.push(refresh),
            }
            // One reading answers all requests made before it. A request made during it needs the next reading.
            while let Ok(refresh) = self.refreshes.try_recv() {
                waiting.push(refresh);
            }
            let was_quiet = Instant::now() > not_before + pause;
            let reading = read_lists(link, &shared.config, &shared.options, &Capabilities::NONE);
            let Some(reading) = shared.stop.run_until_cancelled(reading).await else {
                return LinkEnd::Stopped;
            };
            match reading {
                Ok(found) => {
                    self.has_read = true;
                    let is_new = !found.offering.same_as(&discovery.offering);
                    pause = if is_new || was_quiet { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    discovery = found;
                    next_reading = Instant::now() + reading_interval(&discovery.offering);
                    shared.show_connected(link, &discovery);
                    self.offer(&discovery.offering);
                    self.upstream.read_branches_again();
                    for done in waiting.drain(..) {
                        let _ = done.send(Ok(discovery.offering.clone()));
                    }
                }
                Err(error) => {
                    if let Some(reason) = link.calls.lost() {
                        return LinkEnd::Lost(reason);
                    }
                    match error {
                        // The link is unusable; a new session may work, or fails with the reason.
                        ConnectError::Unauthorized(denial) => return LinkEnd::Lost(denial.text),
                        ConnectError::Unreachable(reason) => return LinkEnd::Lost(reason),
                        ConnectError::Failed(reason) if doubted => {
                            shared.forget_era();
                            return LinkEnd::Lost(reason);
                        }
                        ConnectError::Failed(reason) => {
                            for done in waiting.drain(..) {
                                let _ = done.send(Err(ConnectError::Failed(reason.clone())));
                            }
                            let reason = format!("its lists could not be read again: {reason}");
                            shared.show(Status::Degraded, reason, Some(link.clone()));
                        }
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    next_reading = Instant::now() + SHORTEST_TTL;
                }
            }
            // The reading may have raised a doubt itself, which its result has settled.
            signals.take_doubt();
            (announced, doubted) = (false, false);
            not_before = Instant::now() + pause;
        }
    }

    fn offer(&self, offering: &Arc<Offering>) {
        let known = self.shared().offering.swap(Some(offering.clone()));
        if !known.as_ref().is_some_and(|known| known.same_as(offering)) {
            if known.is_some() {
                self.shared().note(&format!("its lists changed: {}", counted(offering)));
            }
            let _ = self.shared().events.send(ServerEvent::Offered(self.upstream.clone(), offering.clone()));
        }
    }
}

/// The time until the next scheduled reading of the lists.
fn reading_interval(offering: &Offering) -> Duration {
    match offering.ttl_ms {
        None | Some(0) => LONGEST_TTL,
        Some(ttl) => Duration::from_millis(ttl).clamp(SHORTEST_TTL, LONGEST_TTL),
    }
}

/// The wait after this many failures: 1 s, 2 s, 4 s and so on, up to a minute.
fn back_off(failures: u32) -> Duration {
    Duration::from_secs(1u64 << (failures.saturating_sub(1)).min(6)).min(LONGEST_BACK_OFF)
}
