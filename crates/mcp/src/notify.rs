//! Notifications to clients outside of requests: a list changed, a subscribed resource was updated. Those about tasks are
//! in `tasks`. Also ends idle sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Mcp;
use super::live::Live;
use super::subscriptions::Subscription;
use gateway::caller::{Owner, Profile, Viewer};
use gateway::subscriptions::SubscribedTopic;
use model::Topic;

/// How long a change of lists is known before it is announced, where several gateways share a database: a client that reads the
/// lists at once may reach another one, which should know of the change by then.
const SPREADING: Duration = Duration::from_millis(100);
/// How often idle sessions are looked for, unless the idle timeout is short.
const SWEEP: Duration = Duration::from_secs(5);
const SHORTEST_SWEEP: Duration = Duration::from_millis(100);
/// A session's entry is removed only if it was unused for this long: what the session opens now may not be visible yet.
const SETTLED: Duration = Duration::from_millis(50);
/// The most sessions processed, and the longest time spent, before yielding to other tasks: other tasks write the
/// streams, and the first fingerprint of a view takes longer than the next ones.
const BATCH: usize = 16;
const LONGEST_TURN: Duration = Duration::from_micros(200);

/// Sends notifications and ends idle sessions for as long as the gateway runs. `idle_limit` is the idle timeout of
/// sessions that hold something.
pub async fn watch(mcp: Arc<Mcp>, idle_limit: Option<Duration>) {
    let mut changes = mcp.gateway.changes();
    let mut updates = mcp.gateway.resource_updates();
    let mut own_changes = mcp.gateway.own_list_changes();
    let mut task_notices = mcp.gateway.task_notices();
    // Often enough that a session that was in use until just now is not taken for idle.
    let time = idle_limit.map_or(SWEEP, |limit| (limit / 4).clamp(SHORTEST_SWEEP, SWEEP));
    let mut sweep = tokio::time::interval(time);
    let mut spread_at: Option<tokio::time::Instant> = None;
    loop {
        let spread = async {
            match spread_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = spread => {
                spread_at = None;
                tell_changes(&mcp).await;
            }
            changed = changes.changed() => match changed {
                Ok(()) if mcp.gateway.is_shared() => {
                    spread_at = spread_at.or_else(|| Some(tokio::time::Instant::now() + SPREADING));
                }
                Ok(()) => tell_changes(&mcp).await,
                Err(_) => return,
            },
            changed = own_changes.recv() => match changed {
                Ok(owner) => tell_own_change(&mcp, owner),
                // Everybody is looked at instead.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => tell_changes(&mcp).await,
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            },
            updated = updates.recv() => match updated {
                Ok(updated) => tell_update(&mcp, &updated),
                Err(tokio::sync::broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "resource updates arrived faster than they could be passed on");
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            },
            noticed = task_notices.recv() => match noticed {
                Ok(notice) => mcp.tell_task(&notice),
                Err(tokio::sync::broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "task notifications arrived faster than they could be passed on");
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
            },
            _ = sweep.tick() => {
                end_idle(&mcp, idle_limit).await;
                // What a session began just before its end may have opened a link after it.
                let has_ended = |owner| matches!(owner, Owner::Session(of) if mcp.sessions.has_ended(of));
                mcp.gateway.release_links_of(has_ended);
                if let Some(limit) = idle_limit {
                    let mcp = mcp.clone();
                    mcp.tasks.clone().spawn(async move { mcp.gateway.release_idle_links(limit).await });
                }
            }
        }
    }
}

/// Yields to other tasks while many sessions are processed.
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
    /// Counts a session, and yields when the batch is full or took too long.
    async fn count(&mut self) {
        self.looked_at += 1;
        if self.looked_at > BATCH || self.begun.elapsed() > LONGEST_TURN {
            tokio::task::yield_now().await;
            *self = Self::default();
        }
    }
}

/// Notifies each open stream of its changed lists; one whose endpoint is gone is closed. Streams with the same view
/// share one computation, and concurrent calls do not wait for it.
async fn tell_changes(mcp: &Arc<Mcp>) {
    let viewers = mcp.lives.collect(|serial, live| Some((serial, live.viewer.clone(), live.profile.clone())));
    let mut pacing = Pacing::default();
    for (serial, viewer, profile) in viewers {
        pacing.count().await;
        tell_change(mcp, serial, &viewer, &profile);
    }
}

/// Notifies the streams of an owner for whom a stateful server changed its lists.
fn tell_own_change(mcp: &Arc<Mcp>, owner: Owner) {
    let concerned = match owner {
        Owner::Session(serial) => mcp
            .lives
            .look(serial, |live| (serial, live.viewer.clone(), live.profile.clone()))
            .into_iter()
            .collect(),
        Owner::Principal(_) | Owner::Anybody | Owner::Link(_) => mcp.lives.collect(|serial, live| {
            let is_meant = live.profile.owner == Some(owner);
            is_meant.then(|| (serial, live.viewer.clone(), live.profile.clone()))
        }),
    };
    for (serial, viewer, profile) in concerned {
        tell_change(mcp, serial, &viewer, &profile);
    }
}

fn tell_change(mcp: &Arc<Mcp>, serial: u64, viewer: &Viewer, profile: &Profile) {
    match mcp.gateway.fingerprint(viewer, profile) {
        Some(now) => {
            mcp.lives.look(serial, |live| {
                if let Some(stream) = &mut live.stream {
                    stream.tell_changes(now);
                }
            });
        }
        None => {
            mcp.note_end(serial);
            mcp.release(serial);
        }
    }
}

/// Notifies streams that are subscribed to an updated resource. The notice carries the URI that was subscribed to,
/// which may be the qualified one, or that of a folder that contains the resource.
fn tell_update(mcp: &Mcp, updated: &SubscribedTopic) {
    let Topic::Resource(updated_uri) = &updated.topic else { return };
    let concerned = mcp.lives.collect(|serial, live| {
        live.stream.as_ref()?;
        let concerned = |subscribed: &Topic, held: &Subscription| {
            let there = &held.there;
            let is_there = there.server == updated.server && there.link == updated.link;
            match (subscribed, &there.topic) {
                (Topic::Resource(subscribed), Topic::Resource(uri))
                    if is_there && is_part_of(updated_uri, uri) =>
                {
                    Some((subscribed.clone(), uri.clone()))
                }
                (Topic::Resource(_) | Topic::Task(_), _) => None,
            }
        };
        let subscriptions = live.subscriptions.iter();
        let subscriptions: Vec<_> =
            subscriptions.filter_map(|(subscribed, held)| concerned(subscribed, held)).collect();
        (!subscriptions.is_empty())
            .then(|| (serial, live.viewer.clone(), live.profile.clone(), subscriptions))
    });
    for (serial, viewer, profile, subscriptions) in concerned {
        for (subscribed, upstream_uri) in subscriptions {
            // Access may have changed since the subscription.
            if mcp.gateway.shows_resource(&viewer, &profile, &updated.server, &upstream_uri) {
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

/// Ends sessions that were unused for the idle timeout and releases what they hold; only removes the entry of a session
/// that holds nothing any more.
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
            mcp.note_end(serial);
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
