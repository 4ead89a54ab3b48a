//! Subscriptions to resources: those of a session, one request each, and those of a listen request, all at once. Both
//! are bounded, for each session or request and for each principal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Mcp;
use super::live::Live;
use super::session::Session;
use budget::{Bound, Budget, Budgets, SUBSCRIPTIONS_OF_SESSION, Taken};
use gateway::caller::{Profile, Viewer};
use gateway::refusal::Refusal;
use gateway::subscriptions::SubscribedResource;
use gateway::usage::Usage;
use wire::Head;

/// Timeout for a server to accept a subscription of a listen request, after which it counts as refused: the other
/// subscriptions must not wait for it.
const ASKING: Duration = Duration::from_secs(5);

/// The resources that a session or a listen request is subscribed to, by the URI that the client gave.
#[derive(Default)]
pub struct SubscribedResources {
    by_uri: HashMap<String, Subscription>,
    /// The budget of a session; created with its first subscription.
    budget: Option<Budget>,
}

/// A resource at its server.
pub struct Subscription {
    pub resource: SubscribedResource,
    room: Arc<Room>,
}

/// The part of the bounds that a subscription takes.
struct Room {
    _session: Option<Taken>,
    _principal: Taken,
}

impl SubscribedResources {
    pub fn is_empty(&self) -> bool {
        self.by_uri.is_empty()
    }

    pub fn has(&self, uri: &str) -> bool {
        self.by_uri.contains_key(uri)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Subscription)> {
        self.by_uri.iter()
    }

    /// The resources, for whoever unsubscribes. The room that they took is free at once, however long the servers need.
    fn into_resources(self) -> Vec<SubscribedResource> {
        self.by_uri.into_values().map(|held| held.resource).collect()
    }

    /// Takes room for a subscription of a session; one that it has already shares its room.
    fn room(&mut self, uri: &str, usage: &Usage, budgets: &Budgets) -> Result<Arc<Room>, Refusal> {
        if let Some(held) = self.by_uri.get(uri) {
            return Ok(held.room.clone());
        }
        let of_session = || Budget::new(Bound::Subscriptions, SUBSCRIPTIONS_OF_SESSION, &budgets.refusals);
        let session = self.budget.get_or_insert_with(of_session).take(1)?;
        let principal = usage.subscriptions.take(1)?;
        Ok(Arc::new(Room { _session: Some(session), _principal: principal }))
    }
}

impl Mcp {
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        head: &Head<'_>,
        session: &Session,
    ) -> Result<Bytes, Refusal> {
        let uri = self.uri_of(head)?;
        let (serial, viewer, profile) = (session.serial, &session.viewer, session.profile());
        let (usage, budgets) = (self.gateway.usage(viewer.client), self.gateway.budgets());
        let room = self
            .lives
            .with(serial, viewer, &profile, |live| live.subscriptions.room(&uri, &usage, budgets))?;
        let resource = self.gateway.subscribe(viewer, &profile, &uri).await?;
        let held = Subscription { resource, room };
        let insert = |live: &mut Live| live.subscriptions.by_uri.insert(uri, held);
        let before = self.lives.with(serial, viewer, &profile, insert);
        if self.sessions.has_ended(serial) {
            // It ended while the server was asked; what it held before is released already.
            self.release(serial);
        }
        self.unsubscribe_from(before.map(|before| before.resource)).await;
        Ok(Bytes::from_static(b"{}"))
    }

    pub(super) async fn unsubscribe(
        self: &Arc<Self>,
        head: &Head<'_>,
        session: &Session,
    ) -> Result<Bytes, Refusal> {
        let uri = self.uri_of(head)?;
        let held = self.lives.look(session.serial, |live| live.subscriptions.by_uri.remove(&uri)).flatten();
        self.unsubscribe_from(held.map(|held| held.resource)).await;
        Ok(Bytes::from_static(b"{}"))
    }

    /// Unsubscribes in a task of its own: it is done even if the client disconnects meanwhile.
    async fn unsubscribe_from(self: &Arc<Self>, resource: Option<SubscribedResource>) {
        let Some(resource) = resource else { return };
        let mcp = self.clone();
        let done = self.tasks.spawn(async move { mcp.gateway.unsubscribe(&resource).await });
        if let Err(error) = done.await {
            tracing::error!(%error, "a subscription could not be ended");
        }
    }

    /// Ends all subscriptions of a session or request that is over.
    pub(super) async fn unsubscribe_all(&self, subscriptions: SubscribedResources) {
        for resource in subscriptions.into_resources() {
            self.gateway.unsubscribe(&resource).await;
        }
    }

    /// Takes room for all subscriptions of a listen request.
    pub(super) fn room_for(&self, viewer: &Viewer, uris: &[String]) -> Result<Taken, Refusal> {
        let wanted = uris.len() as u64;
        if wanted > SUBSCRIPTIONS_OF_SESSION {
            return Err(self
                .gateway
                .budgets()
                .exceeded(Bound::Subscriptions, SUBSCRIPTIONS_OF_SESSION)
                .into());
        }
        for uri in uris {
            self.gateway.check_uri(uri)?;
        }
        Ok(self.gateway.usage(viewer.client).subscriptions.take(wanted)?)
    }

    /// Subscribes to all URIs of a listen request; returns the accepted subscriptions. They keep as much of `room` as
    /// they need.
    pub(super) async fn subscribe_all(
        self: &Arc<Self>,
        viewer: &Viewer,
        profile: &Profile,
        uris: &[String],
        mut room: Taken,
    ) -> SubscribedResources {
        let mut asking = JoinSet::new();
        for uri in uris {
            let (mcp, viewer, profile, uri) = (self.clone(), viewer.clone(), profile.clone(), uri.clone());
            asking.spawn(async move {
                let subscribed = timeout(ASKING, mcp.gateway.subscribe(&viewer, &profile, &uri)).await;
                let late = || Refusal::Upstream("the server does not answer".into());
                (uri, subscribed.unwrap_or_else(|_| Err(late())))
            });
        }
        let mut accepted = HashMap::new();
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok((uri, Ok(there))) => {
                    if let Some(twice) = accepted.insert(uri, there) {
                        self.gateway.unsubscribe(&twice).await;
                    }
                }
                Ok((uri, Err(refusal))) => tracing::debug!(uri, %refusal, "a subscription is not granted"),
                Err(error) => tracing::error!(%error, "a subscription was interrupted"),
            }
        }
        room.shrink(room.amount().saturating_sub(accepted.len() as u64));
        let room = Arc::new(Room { _session: None, _principal: room });
        let held = |resource| Subscription { resource, room: room.clone() };
        let by_uri = accepted.into_iter().map(|(uri, there)| (uri, held(there))).collect();
        SubscribedResources { by_uri, budget: None }
    }

    fn uri_of(&self, head: &Head<'_>) -> Result<String, Refusal> {
        let uri = head.params.as_ref().and_then(|params| params.uri.as_ref());
        let uri = uri.ok_or_else(|| Refusal::Invalid("params.uri must be a string".into()))?;
        self.gateway.check_uri(&uri.value)?;
        Ok(uri.value.to_string())
    }
}
