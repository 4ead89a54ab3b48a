//! Messages that a server sends outside of any call: the stream of a legacy link, and the one `subscriptions/listen` that
//! a modern link keeps open for list changes, subscribed resources and watched tasks.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::calls::Purpose;
use super::error::CallError;
use super::exchange::Exchange;
use super::http;
use super::inbound::Inbound;
use super::link::{Grant, Link};
use super::pace::Pace;
use super::request::LinkRequest;
use model::Topic;
use wire::{Era, Head, walk};

/// The pause after a change of what is subscribed, for each `SETTLED_AT_ONCE` bytes of the request that follows.
const SETTLING: Duration = Duration::from_millis(20);
const SETTLED_AT_ONCE: usize = 64 * 1024;
const LONGEST_SETTLING: Duration = Duration::from_secs(5);

/// Starts listening on a link after its handshake.
pub fn start_listening(link: &Arc<Link>) {
    let Some(handshake) = link.handshake() else { return };
    match handshake.version.era() {
        Era::Legacy => http::start_listening(link, handshake.version),
        Era::Modern => {
            let (weak, stop, changes) = (Arc::downgrade(link), link.stop.clone(), handshake.change_notices());
            link.tasks.spawn(async move { stop.run_until_cancelled(subscribe(weak, changes)).await });
        }
    }
}

/// Keeps one `subscriptions/listen` open; its messages are routed like all others.
async fn subscribe(link: Weak<Link>, changes: Vec<String>) {
    let mut pace = Pace::default();
    let Some((mut topics, grant)) =
        link.upgrade().map(|link| (link.wanted_topics.subscribe(), link.grant.clone()))
    else {
        return;
    };
    for round in 0u64.. {
        let asked = topics.borrow_and_update().clone();
        let Some(wanted) = notifications(&changes, &asked) else {
            if let Some(live) = link.upgrade() {
                live.hears_now();
            }
            grant.send_replace(Grant::default());
            match settled_change(&mut topics, Duration::ZERO).await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        let Some(live) = link.upgrade().filter(|link| !link.calls.is_lost()) else { return };
        let params: &[(&str, &[u8])] = &[("notifications", wanted.as_bytes())];
        let request = LinkRequest {
            method: "subscriptions/listen",
            params,
            capabilities: declared_for(&asked),
            progress: false,
            log_level: None,
            purpose: Purpose::OurOwn,
            trace: &[],
        };
        match live.request(request).await {
            Ok(exchange) => {
                live.hears_now();
                if round > 0 {
                    // Changes in the meantime were not announced to us.
                    live.calls.signals.lists_changed();
                }
                drop(live);
                pace.begin();
                let settling = settling_time(wanted.len());
                tokio::select! {
                    goes_on = hear_out(exchange, &asked, &grant) => {
                        // What is not answered by now is not granted.
                        grant.send_if_modified(|grant| grant.settle(&asked));
                        if !goes_on {
                            return;
                        }
                    }
                    changed = settled_change(&mut topics, settling) => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                }
            }
            Err(error @ (CallError::NotSent(_) | CallError::SessionLost(_))) => {
                return live.calls.signals.suspect(&error.to_string());
            }
            Err(CallError::Lost(_) | CallError::TimedOut(_)) => drop(live),
            Err(
                CallError::Status { .. }
                | CallError::Unauthorized(_)
                | CallError::Exceeded(_)
                | CallError::NoRoom(_),
            ) => {
                grant.send_if_modified(|grant| grant.settle(&asked));
                return;
            }
        }
        pace.pause(Duration::ZERO).await;
    }
}

impl Grant {
    /// Counts topics that the server did not answer for as not granted; true if that changed anything.
    fn settle(&mut self, asked: &BTreeSet<Topic>) -> bool {
        let is_open = self.asked != *asked;
        if is_open {
            *self = Grant { asked: asked.clone(), granted: BTreeSet::new() };
        }
        is_open
    }
}

/// Waits for a change of what is subscribed, and for those that follow closely: each request names all of them,
/// so one request for each change would take time proportional to the square of their number.
async fn settled_change(
    topics: &mut watch::Receiver<BTreeSet<Topic>>,
    settling: Duration,
) -> Result<(), watch::error::RecvError> {
    topics.changed().await?;
    if !settling.is_zero() {
        tokio::time::sleep(settling).await;
    }
    Ok(())
}

/// The pause after a change: none before a short request. Otherwise it grows with the length of the request, so that
/// requests never take most of the time.
fn settling_time(length: usize) -> Duration {
    let times = u32::try_from(length / SETTLED_AT_ONCE).unwrap_or(u32::MAX);
    SETTLING.saturating_mul(times).min(LONGEST_SETTLING)
}

/// The notifications to ask for; `None` when there are none.
fn notifications(changes: &[String], topics: &BTreeSet<Topic>) -> Option<String> {
    let mut wanted: serde_json::Map<String, Value> =
        changes.iter().map(|kind| (kind.clone(), Value::Bool(true))).collect();
    for topic in topics {
        let (key, name) = match topic {
            Topic::Resource(uri) => (RESOURCES, uri),
            Topic::Task(id) => (TASKS, id),
        };
        if let Value::Array(names) = wanted.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
            names.push(Value::String(name.clone()));
        }
    }
    (!wanted.is_empty()).then(|| Value::Object(wanted).to_string())
}

/// The client capabilities of the request: a server refuses a client that asks about tasks without having declared them.
fn declared_for(topics: &BTreeSet<Topic>) -> &'static [u8] {
    match topics.iter().any(|topic| matches!(topic, Topic::Task(_))) {
        true => br#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        false => b"{}",
    }
}

/// Waits for the end of a subscription, and reports what the server grants; false when it refused it with an error.
async fn hear_out(mut exchange: Exchange, asked: &BTreeSet<Topic>, grant: &watch::Sender<Grant>) -> bool {
    loop {
        match exchange.next().await {
            // A graceful end is a result.
            Ok(Inbound::Answer(answer)) => return answer.result().is_some(),
            Ok(Inbound::Notice(notice)) => {
                if let Some(granted) = granted(&notice) {
                    grant.send_replace(Grant { asked: asked.clone(), granted });
                }
            }
            Ok(Inbound::Request(_)) => {}
            Err(_) => return true,
        }
    }
}

/// The topics that an acknowledgement grants; `None` if the notice is none.
fn granted(notice: &[u8]) -> Option<BTreeSet<Topic>> {
    let head = Head::parse(notice).ok()?;
    let params = head.params.filter(|_| head.method.as_deref() == Some(ACKNOWLEDGED))?;
    let granted = walk::member(notice, &params.span, "notifications");
    let named = |key: &str| -> Vec<String> {
        let names = granted.as_ref().and_then(|granted| walk::member(notice, granted, key));
        names.and_then(|names| serde_json::from_slice(&notice[names]).ok()).unwrap_or_default()
    };
    let resources = named(RESOURCES).into_iter().map(Topic::Resource);
    Some(resources.chain(named(TASKS).into_iter().map(Topic::Task)).collect())
}

/// The members of a filter that name topics.
const RESOURCES: &str = "resourceSubscriptions";
const TASKS: &str = "taskIds";

/// The notice with which a modern server says what it grants.
pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
