//! What clients hear unasked: a list of theirs changed, a resource they subscribed to was updated. Also the end of
//! what nobody uses any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Mcp;
use super::live::Live;
use gateway::caller::Owner;

/// How often sessions are looked through for what is over, unless they may be idle for less than that.
const SWEEP: Duration = Duration::from_secs(5);
const SHORTEST_SWEEP: Duration = Duration::from_millis(100);
/// A session is forgotten only if nothing happened to it for this long: what it opens now may not show yet.
const SETTLED: Duration = Duration::from_millis(50);
/// So many sessions are looked at before others get their turn, and for so long: streams that were told something
/// are written to by others, and a first look at what somebody sees takes longer than the next ones.
const BATCH: usize = 16;
const LONGEST_TURN: Duration = Duration::from_micros(200);

/// Runs for as long as the gateway does. `idle_limit` ends sessions that hold something but are not used.
pub async fn watch(mcp: Arc<Mcp>, idle_limit: Option<Duration>) {
    let mut changes = mcp.gateway.changes();
    let mut updates = mcp.gateway.resource_updates();
    // Often enough that what was used until just now is not taken for idle.
    let time = idle_limit.map_or(SWEEP, |limit| (limit / 4).clamp(SHORTEST_SWEEP, SWEEP));
    let mut sweep = tokio::time::interval(time);
    loop {
        tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => tell_changes(&mcp).await,
                Err(_) => return,
            },
            updated = updates.recv() => match updated {
                Ok((server, uri)) => tell_update(&mcp, &server, &uri),
                Err(tokio::sync::broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "resource updates came faster than they could be passed on");
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            },
            _ = sweep.tick() => {
                end_idle(&mcp, idle_limit).await;
                if let Some(limit) = idle_limit {
                    let mcp = mcp.clone();
                    mcp.tasks.clone().spawn(async move { mcp.gateway.release_idle_links(limit).await });
                }
            }
        }
    }
}

/// Lets others run while many sessions are looked at.
struct Pacing {
    begun: Instant,
    looked_at: usize,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { begun: Instant::now(), looked_at: 0 }
    }
}

impl Pacing {
    /// Counts a session, and lets others go on when its turn is over.
    async fn count(&mut self) {
        self.looked_at += 1;
        if self.looked_at > BATCH || self.begun.elapsed() > LONGEST_TURN {
            tokio::task::yield_now().await;
            *self = Self::default();
        }
    }
}

/// Tells each open stream which of its lists changed; one whose endpoint is gone is closed. Streams that see the same
/// are looked at once, and nobody who calls meanwhile waits for it.
async fn tell_changes(mcp: &Arc<Mcp>) {
    let viewers = mcp.lives.collect(|serial, live| Some((serial, live.viewer.clone())));
    let mut pacing = Pacing::default();
    for (serial, viewer) in viewers {
        pacing.count().await;
        match mcp.gateway.fingerprint(&viewer) {
            Some(now) => {
                mcp.lives.look(serial, |live| {
                    if let Some(stream) = &mut live.stream {
                        stream.tell_changes(now);
                    }
                });
            }
            None => {
                mcp.sessions.end(serial);
                mcp.release(serial);
            }
        }
    }
}

/// The notice carries the URI that was subscribed to, which may be the qualified one, or that of something larger: what
/// is in a folder is part of it.
fn tell_update(mcp: &Mcp, server: &str, uri: &str) {
    let concerned = mcp.lives.collect(|serial, live| {
        live.stream.as_ref()?;
        let concerns = |(of, upstream_uri): &(String, String)| of == server && is_part_of(uri, upstream_uri);
        let subscriptions = live.subscriptions.iter().filter(|(_, there)| concerns(there));
        let subscriptions: Vec<_> =
            subscriptions.map(|(subscribed, (_, there))| (subscribed.clone(), there.clone())).collect();
        (!subscriptions.is_empty()).then(|| (serial, live.viewer.clone(), subscriptions))
    });
    for (serial, viewer, subscriptions) in concerned {
        for (subscribed, upstream_uri) in subscriptions {
            // Rights may have changed since it was subscribed to.
            if mcp.gateway.shows_resource(&viewer, server, &upstream_uri) {
                let tell =
                    |live: &mut Live| live.stream.as_ref().map(|stream| stream.tell_update(&subscribed));
                mcp.lives.look(serial, tell);
            }
        }
    }
}

fn is_part_of(uri: &str, whole: &str) -> bool {
    uri.strip_prefix(whole)
        .is_some_and(|rest| rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '#', '?']))
}

/// A session that was not used for the idle time-out loses what it holds and is over; one that holds nothing more
/// is only forgotten.
async fn end_idle(mcp: &Arc<Mcp>, idle_limit: Option<Duration>) {
    let mut pacing = Pacing::default();
    for serial in mcp.lives.collect(|serial, _| Some(serial)) {
        pacing.count().await;
        let (is_busy, has_links) =
            (mcp.lives.is_busy(serial), mcp.gateway.has_links_of(Owner::Session(serial)));
        let is_over = mcp.lives.look(serial, |live| {
            let stream_is_gone = live.stream.as_ref().is_some_and(|stream| stream.outlet.gone.is_cancelled());
            if stream_is_gone {
                live.stream = None;
            }
            if stream_is_gone || is_busy {
                live.last_used = Instant::now();
            }
            let is_idle = idle_limit.is_some_and(|limit| live.last_used.elapsed() > limit);
            is_idle && live.stream.is_none() && (has_links || holds_something(live))
        });
        if is_over == Some(true) {
            mcp.sessions.end(serial);
            mcp.release(serial);
        } else if !is_busy && !has_links {
            mcp.lives.forget_if(serial, |live| !holds_something(live) && live.last_used.elapsed() > SETTLED);
        }
    }
}

fn holds_something(live: &Live) -> bool {
    live.stream.is_some() || live.level.is_some() || !live.subscriptions.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn others_go_on_after_each_batch() {
        let others = tokio::spawn(async {});
        let mut pacing = Pacing::default();
        for _ in 0..=BATCH {
            pacing.count().await;
        }
        assert!(others.is_finished());
    }

    #[test]
    fn what_is_in_a_resource_is_part_of_it() {
        for part in ["x://a", "x://a/b", "x://a#b", "x://a?b"] {
            assert!(is_part_of(part, "x://a"), "{part}");
        }
        assert!(is_part_of("x://a/b", "x://a/"));
        for other in ["x://ab", "x://b", "x://", "x://A/b"] {
            assert!(!is_part_of(other, "x://a"), "{other}");
        }
    }
}
