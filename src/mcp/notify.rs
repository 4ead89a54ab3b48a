//! What clients hear unasked: a list of theirs changed, a resource they subscribed to was updated. Also the end of
//! what nobody uses any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Mcp;
use super::live::Live;
use crate::gateway::caller::Owner;

/// How often sessions are looked through for what is over, unless they may be idle for less than that.
const SWEEP: Duration = Duration::from_secs(5);
const SHORTEST_SWEEP: Duration = Duration::from_millis(100);

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
                Ok(()) => tell_changes(&mcp),
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
                end_idle(&mcp, idle_limit);
                if let Some(limit) = idle_limit {
                    let mcp = mcp.clone();
                    mcp.tasks.clone().spawn(async move { mcp.gateway.release_idle_links(limit).await });
                }
            }
        }
    }
}

/// Tells each open stream which of its lists changed; one whose endpoint is gone is closed.
fn tell_changes(mcp: &Arc<Mcp>) {
    let mut over = Vec::new();
    for (serial, live) in mcp.lives.sessions().iter_mut() {
        let Some(lists) = mcp.gateway.lists(&live.viewer) else {
            over.push(*serial);
            continue;
        };
        if let Some(stream) = &mut live.stream {
            stream.tell_changes(&lists);
        }
    }
    for serial in over {
        mcp.sessions.end(serial);
        mcp.release(serial);
    }
}

/// The notice carries the URI that was subscribed to, which may be the qualified one, or that of something larger: what
/// is in a folder is part of it.
fn tell_update(mcp: &Mcp, server: &str, uri: &str) {
    for live in mcp.lives.sessions().values() {
        let Some(stream) = &live.stream else { continue };
        for (subscribed, (of, upstream_uri)) in &live.subscriptions {
            let concerns = of == server && is_part_of(uri, upstream_uri);
            // Rights may have changed since it was subscribed to.
            if concerns && mcp.gateway.shows_resource(&live.viewer, server, upstream_uri) {
                stream.tell_update(subscribed);
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
fn end_idle(mcp: &Arc<Mcp>, idle_limit: Option<Duration>) {
    let (mut over, busy) = (Vec::new(), mcp.lives.busy());
    mcp.lives.sessions().retain(|serial, live| {
        let stream_is_gone = live.stream.as_ref().is_some_and(|stream| stream.outlet.gone.is_cancelled());
        if stream_is_gone {
            live.stream = None;
        }
        if stream_is_gone || busy.contains(serial) {
            live.last_used = Instant::now();
        }
        let is_kept = busy.contains(serial) || holds_something(mcp, *serial, live);
        let is_idle = idle_limit.is_some_and(|limit| live.last_used.elapsed() > limit);
        if is_kept && live.stream.is_none() && is_idle {
            over.push(*serial);
        }
        is_kept
    });
    for serial in over {
        mcp.sessions.end(serial);
        mcp.release(serial);
    }
}

fn holds_something(mcp: &Mcp, serial: u64, live: &Live) -> bool {
    live.stream.is_some()
        || live.level.is_some()
        || !live.subscriptions.is_empty()
        || mcp.gateway.has_links_of(Owner::Session(serial))
}

#[cfg(test)]
mod tests {
    use super::*;

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
