//! The event stream of the dashboard: `changed` names the lists that changed, `status` has the new status of a server
//! and, while it connects, the current step.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use crate::http::Face;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::stream::SseBody;
use gateway::catalog::Catalog;
use gateway::difference::Noun;
use gateway::record::state_of;
use gateway::{News, StoreHealth};
use wire::sse;

/// How many events are queued for a slow browser.
const BACKLOG: usize = 64;

#[derive(Serialize)]
struct Changed<'a> {
    changed: &'a BTreeSet<Noun>,
}

#[derive(Clone, PartialEq, Eq, Serialize)]
struct ServerStatus {
    name: String,
    status: &'static str,
    status_reason: String,
}

/// Streams changes of lists and of the status of servers, from now on.
#[utoipa::path(get, path = "/api/dashboard/events", tag = "dashboard",
    responses((status = 200, description = "Events `changed` and `status`", content_type = "text/event-stream",
        body = String)))]
pub async fn stream(State(face): State<Face>) -> HandlerResult<Response> {
    // The route exists in development mode only, where everybody shares one budget.
    let slot = face.gateway.usage(None).streams.take(1);
    let slot = slot.map_err(|exceeded| ErrorResponse::too_many_streams(&exceeded))?;
    let (frames, notices) = mpsc::channel(BACKLOG);
    let (changes, news, health) = (face.gateway.changes(), face.gateway.news(), face.gateway.store_health());
    let arrivals = face.gateway.client_arrivals();
    let seen = face.gateway.catalog();
    let closing = face.closing.clone();
    let mut feed = EventFeed { statuses: statuses(&seen), seen, frames, face };
    let work = async move {
        let _slot = slot;
        closing.run_until_cancelled(feed.follow(changes, news, health, arrivals)).await;
        Bytes::new()
    };
    Ok(SseBody::response(work, notices))
}

/// The event stream of one browser, with the state that was sent last.
struct EventFeed {
    face: Face,
    seen: Arc<Catalog>,
    statuses: BTreeMap<String, ServerStatus>,
    frames: mpsc::Sender<Bytes>,
}

impl EventFeed {
    async fn follow(
        &mut self,
        mut changes: tokio::sync::watch::Receiver<()>,
        mut news: tokio::sync::broadcast::Receiver<News>,
        mut health: tokio::sync::watch::Receiver<StoreHealth>,
        mut arrivals: tokio::sync::watch::Receiver<()>,
    ) {
        loop {
            tokio::select! {
                changed = changes.changed() => match changed {
                    Ok(()) => self.tell_changes().await,
                    // The gateway is shutting down, which ends this stream.
                    Err(_) => return pending().await,
                },
                changed = health.changed() => match changed {
                    Ok(()) => self.tell_changed(&BTreeSet::from([Noun::Store])).await,
                    Err(_) => return pending().await,
                },
                arrived = arrivals.changed() => match arrived {
                    Ok(()) => self.tell_changed(&BTreeSet::from([Noun::RecentClients])).await,
                    Err(_) => return pending().await,
                },
                heard = news.recv() => match heard {
                    Ok(News::Step(server, doing)) => self.tell_step(server.as_str(), doing).await,
                    Ok(News::Status(_)) | Err(RecvError::Lagged(_)) => self.tell_statuses().await,
                    Ok(News::Failure) => self.tell_changed(&BTreeSet::from([Noun::Failures])).await,
                    Err(RecvError::Closed) => return pending().await,
                },
            }
        }
    }

    async fn tell_changes(&mut self) {
        let catalog = self.face.gateway.catalog();
        let changed = catalog.difference(&self.seen);
        self.seen = catalog;
        if !changed.is_empty() {
            self.tell_changed(&changed).await;
        }
        self.tell_statuses().await;
    }

    async fn tell_changed(&self, changed: &BTreeSet<Noun>) {
        self.tell("changed", &Changed { changed }).await;
    }

    async fn tell_statuses(&mut self) {
        let now = statuses(&self.face.gateway.catalog());
        let before = std::mem::replace(&mut self.statuses, now);
        let news: Vec<_> =
            self.statuses.values().filter(|now| before.get(&now.name) != Some(*now)).cloned().collect();
        for status in news {
            self.tell("status", &status).await;
        }
    }

    async fn tell_step(&mut self, server: &str, doing: String) {
        // Only for a server that is connecting: a connected one may be refreshing its lists, and a failed one keeps its
        // reason until a retry succeeds.
        if self.statuses.get(server).is_none_or(|known| known.status == "connecting") {
            let status = ServerStatus { name: server.to_owned(), status: "connecting", status_reason: doing };
            self.tell("status", &status).await;
        }
    }

    async fn tell(&self, event: &str, data: &impl Serialize) {
        let data = serde_json::to_vec(data).expect("events have string keys and no failing parts");
        // Fails only if the browser is gone; then the stream is dropped.
        let _ = self.frames.send(sse::frame(Some(event), &data)).await;
    }
}

fn statuses(catalog: &Catalog) -> BTreeMap<String, ServerStatus> {
    let status = |entry: &Arc<gateway::Entry>| {
        let (status, status_reason) = state_of(entry);
        let name = entry.name().to_string();
        (name.clone(), ServerStatus { name, status: status.as_str(), status_reason })
    };
    catalog.entries().map(status).collect()
}
