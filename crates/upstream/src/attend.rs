//! The task behind a supervised server: attends to a link while it works, reads the lists again when they may have
//! changed, and reconnects with back-off when it is lost. What callers see of it is in `supervise`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connect::{connect, read_again};
use super::error::ConnectError;
use super::link::Link;
use super::lists::Discovery;
use super::supervise::{Refresh, ServerEvent, Shared, Upstream};
use model::{Offering, Status};

/// Lists are read again at the latest after this, and never sooner than the other after the last time.
const LONGEST_TTL: Duration = Duration::from_secs(600);
const SHORTEST_TTL: Duration = Duration::from_secs(30);
/// A link lost sooner than this after connecting counts towards a crash loop.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// So many short lives are healed at once; more of them back off.
const FREE_RESTARTS: u32 = 2;
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);
/// However often somebody wants a server that failed, attempts have this much time between them.
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(250);
/// Between two readings that a server asked for; it doubles while they bring nothing new.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The task behind an [`Upstream`].
pub struct Supervisor {
    pub upstream: Upstream,
    pub refreshes: mpsc::UnboundedReceiver<Refresh>,
}

/// Why a link is not attended any longer.
enum LinkEnd {
    Stopped,
    /// The session or process is gone; calls in flight have failed already.
    Lost(String),
}

impl Supervisor {
    pub async fn run(mut self, connected: Option<(Arc<Link>, Discovery)>) {
        let mut waiting: Vec<Refresh> = Vec::new();
        let mut next = connected;
        let mut short_lives = 0;
        loop {
            let Some((link, discovery)) = (match next.take() {
                Some(connected) => Some(connected),
                None => self.reconnect(&mut waiting).await,
            }) else {
                return;
            };
            self.offer(&discovery.offering);
            for done in waiting.drain(..) {
                let _ = done.send(Ok(discovery.offering.clone()));
            }
            let since = Instant::now();
            let ended = self.attend(&link, discovery, &mut waiting).await;
            match ended {
                LinkEnd::Stopped => return link.close().await,
                LinkEnd::Lost(reason) => {
                    let server = &self.shared().config.name;
                    tracing::warn!(%server, reason, "lost the link to a server");
                    link.abandon(&reason);
                    short_lives = if since.elapsed() < SHORT_LIFE { short_lives + 1 } else { 0 };
                    if short_lives <= FREE_RESTARTS {
                        self.shared().show(Status::Connecting, reason, None);
                        continue;
                    }
                    self.shared().show(Status::Failed, format!("it keeps ending: {reason}"), None);
                    let time = back_off(short_lives - FREE_RESTARTS);
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

    /// Tries until it works; `None` when the server is stopped first.
    async fn reconnect(&mut self, waiting: &mut Vec<Refresh>) -> Option<(Arc<Link>, Discovery)> {
        for failures in 1u32.. {
            let shared = self.upstream.0.clone();
            let target = shared.target();
            let attempt = connect(&target, shared.era());
            match shared.stop.run_until_cancelled(attempt).await? {
                Ok((link, discovery)) => {
                    shared.remember_era(link.version().map(|version| version.era()));
                    shared.restore(&link, &discovery.offering);
                    shared.show_connected(&link, &discovery);
                    tracing::info!(server = %shared.config.name, "connected");
                    return Some((link, discovery));
                }
                Err(error) => {
                    shared.forget_era();
                    tracing::warn!(server = %shared.config.name, reason = %error, "cannot connect to a server");
                    shared.show(Status::Failed, error.to_string(), None);
                    for done in waiting.drain(..) {
                        let _ = done.send(Err(error.clone()));
                    }
                    if !self.pause(back_off(failures), waiting).await {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Waits before the next attempt; somebody who wants the server ends the wait. False when stopped.
    async fn pause(&mut self, time: Duration, waiting: &mut Vec<Refresh>) -> bool {
        let shared = self.upstream.0.clone();
        // Made before the first wait, so that nobody who comes from now on is missed.
        let wanted = shared.wanted.notified();
        let somebody_comes = async {
            tokio::time::sleep(SHORTEST_BACK_OFF).await;
            wanted.await;
        };
        tokio::select! {
            () = shared.stop.cancelled() => return false,
            _ = tokio::time::timeout(time, somebody_comes) => {}
            Some(refresh) = self.refreshes.recv() => waiting.push(refresh),
        }
        true
    }

    /// Looks after a working link until it ends.
    async fn attend(
        &mut self,
        link: &Arc<Link>,
        mut discovery: Discovery,
        waiting: &mut Vec<Refresh>,
    ) -> LinkEnd {
        let shared = self.upstream.0.clone();
        let signals = &link.calls.signals;
        let mut next_reading = Instant::now() + reading_interval(&discovery.offering);
        let (mut announced, mut doubted) = (false, false);
        let (mut pause, mut not_before) = (FIRST_PAUSE, Instant::now());
        loop {
            tokio::select! {
                () = shared.stop.cancelled() => return LinkEnd::Stopped,
                () = signals.wait() => {
                    if let Some(reason) = link.calls.lost().or_else(|| signals.take_suspect()) {
                        return LinkEnd::Lost(reason);
                    }
                    for uri in signals.take_updated() {
                        let _ = shared.events.send(ServerEvent::Updated(self.upstream.clone(), uri));
                    }
                    announced |= signals.take_lists_changed();
                    doubted |= signals.take_doubt();
                    continue;
                }
                () = tokio::time::sleep_until(not_before), if announced || doubted => {}
                () = tokio::time::sleep_until(next_reading) => {}
                Some(refresh) = self.refreshes.recv() => waiting.push(refresh),
            }
            // One reading serves all who asked before it. Whoever asks during it wants to know what is there after that.
            while let Ok(refresh) = self.refreshes.try_recv() {
                waiting.push(refresh);
            }
            let was_quiet = Instant::now() > not_before + pause;
            let reading = read_again(link, &shared.config, &shared.options, &discovery.offering);
            let Some(reading) = shared.stop.run_until_cancelled(reading).await else {
                return LinkEnd::Stopped;
            };
            match reading {
                Ok(found) => {
                    let is_new = !found.offering.same_as(&discovery.offering);
                    pause = if is_new || was_quiet { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    discovery = found;
                    next_reading = Instant::now() + reading_interval(&discovery.offering);
                    shared.show_connected(link, &discovery);
                    self.offer(&discovery.offering);
                    for done in waiting.drain(..) {
                        let _ = done.send(Ok(discovery.offering.clone()));
                    }
                }
                Err(error) => {
                    if let Some(reason) = link.calls.lost() {
                        return LinkEnd::Lost(reason);
                    }
                    match error {
                        // The server can no longer be spoken to; a new session may help, or shows why not.
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
            // A doubt that the reading itself raised is answered by it.
            signals.take_doubt();
            (announced, doubted) = (false, false);
            not_before = Instant::now() + pause;
        }
    }

    fn offer(&self, offering: &Arc<Offering>) {
        let known = self.shared().offering.swap(Some(offering.clone()));
        if !known.is_some_and(|known| known.same_as(offering)) {
            let _ = self.shared().events.send(ServerEvent::Offered(self.upstream.clone(), offering.clone()));
        }
    }
}

/// When the lists should be read again although nobody said that they changed.
fn reading_interval(offering: &Offering) -> Duration {
    match offering.ttl_ms {
        None | Some(0) => LONGEST_TTL,
        Some(ttl) => Duration::from_millis(ttl).clamp(SHORTEST_TTL, LONGEST_TTL),
    }
}

/// 1 s, 2 s, 4 s and so on, up to a minute.
fn back_off(failures: u32) -> Duration {
    Duration::from_secs(1u64 << (failures.saturating_sub(1)).min(6)).min(LONGEST_BACK_OFF)
}
