//! Subscriptions to resources and tasks: those of a session, one request each, and those of a listen request, all at
//! once. Both are bounded, for each session or request and for each principal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Mcp;
use super::live::Live;
use super::session::Session;
use budget::{Bound, Budget, Budgets, SUBSCRIPTIONS_OF_SESSION, Taken, URI_BYTES};
use gateway::caller::{Profile, Viewer};
use gateway::refusal::Refusal;
use gateway::subscriptions::SubscribedTopic;
use gateway::usage::Usage;
use model::Topic;
use wire::Head;

/// Timeout for a server to accept a subscription of a listen request, after which it counts as refused: the other
/// subscriptions must not wait for it.
const ASKING: Duration = Duration::from_secs(10);

/// What a session or a listen request is subscribed to, by the URI or id that the client gave.
#[derive(Default)]
pub struct SubscribedTopics {
    by_topic: HashMap<Topic, Subscription>,
    /// The budget of a session; created with its first subscription.
    budget: Option<Budget>,
}

/// A resource or task at its server.
pub struct Subscription {
    pub there: SubscribedTopic,
    room: Arc<Room>,
}

/// The part of the bounds that a subscription takes.
struct Room {
    _session: Option<Taken>,
    _principal: Taken,
}

impl SubscribedTopics {
    pub fn is_empty(&self) -> bool {
        self.by_topic.is_empty()
    }

    pub fn has(&self, topic: &Topic) -> bool {
        self.by_topic.contains_key(topic)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Topic, &Subscription)> {
        self.by_topic.iter()
    }

    /// The topics, for whoever unsubscribes. The room that they took is free at once, however long the servers need.
    fn into_topics(self) -> Vec<SubscribedTopic> {
        self.by_topic.into_values().map(|held| held.there).collect()
    }

    /// Takes room for a subscription of a session; one that it has already shares its room.
    fn room(&mut self, topic: &Topic, usage: &Usage, budgets: &Budgets) -> Result<Arc<Room>, Refusal> {
        if let Some(held) = self.by_topic.get(topic) {
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
        let topic = Topic::Resource(uri.clone());
        let (serial, viewer, profile) = (session.serial, &session.viewer, session.profile());
        let (usage, budgets) = (self.gateway.usage(viewer.principal), self.gateway.budgets());
        let room = self
            .lives
            .with(serial, viewer, &profile, |live| live.subscriptions.room(&topic, &usage, budgets))?;
        let there = self.gateway.subscribe(viewer, &profile, &uri).await?;
        let held = Subscription { there, room };
        let insert = |live: &mut Live| live.subscriptions.by_topic.insert(topic, held);
        let before = self.lives.with(serial, viewer, &profile, insert);
        if self.sessions.has_ended(serial) {
            // It ended while the server was asked; what it held before is released already.
            self.release(serial);
        }
        self.unsubscribe_from(before.map(|before| before.there)).await;
        Ok(Bytes::from_static(b"{}"))
    }

    pub(super) async fn unsubscribe(
        self: &Arc<Self>,
        head: &Head<'_>,
        session: &Session,
    ) -> Result<Bytes, Refusal> {
        let topic = Topic::Resource(self.uri_of(head)?);
        let held =
            self.lives.look(session.serial, |live| live.subscriptions.by_topic.remove(&topic)).flatten();
        self.unsubscribe_from(held.map(|held| held.there)).await;
        Ok(Bytes::from_static(b"{}"))
    }

    /// Unsubscribes in a task of its own: it is done even if the client disconnects meanwhile.
    async fn unsubscribe_from(self: &Arc<Self>, there: Option<SubscribedTopic>) {
        let Some(there) = there else { return };
        let mcp = self.clone();
        let done = self.tasks.spawn(async move { mcp.gateway.unsubscribe(&there).await });
        if let Err(error) = done.await {
            tracing::error!(%error, "a subscription could not be ended");
        }
    }

    /// Ends all subscriptions of a session or request that is over.
    pub(super) async fn unsubscribe_all(&self, subscriptions: SubscribedTopics) {
        for there in subscriptions.into_topics() {
            self.gateway.unsubscribe(&there).await;
        }
    }

    /// Takes room for all subscriptions of a listen request.
    pub(super) fn room_for(&self, viewer: &Viewer, topics: &[Topic]) -> Result<Taken, Refusal> {
        let wanted = topics.len() as u64;
        if wanted > SUBSCRIPTIONS_OF_SESSION {
            return Err(self
                .gateway
                .budgets()
                .exceeded(Bound::Subscriptions, SUBSCRIPTIONS_OF_SESSION)
                .into());
        }
        for topic in topics {
            match topic {
                Topic::Resource(uri) => self.gateway.check_uri(uri)?,
                Topic::Task(id) if id.len() > URI_BYTES => {
                    return Err(Refusal::Invalid("an id of a task is too long".into()));
                }
                Topic::Task(_) => {}
            }
        }
        Ok(self.gateway.usage(viewer.principal).subscriptions.take(wanted)?)
    }

    /// Subscribes to all that a listen request names; returns the accepted subscriptions. They keep as much of `room` as
    /// they need.
    pub(super) async fn subscribe_all(
        self: &Arc<Self>,
        viewer: &Viewer,
        profile: &Profile,
        topics: Vec<Topic>,
        mut room: Taken,
    ) -> SubscribedTopics {
        let mut asking = JoinSet::new();
        for topic in topics {
            let (mcp, viewer, profile) = (self.clone(), viewer.clone(), profile.clone());
            asking.spawn(async move {
                let subscribed = timeout(ASKING, async {
                    match &topic {
                        Topic::Resource(uri) => mcp.gateway.subscribe(&viewer, &profile, uri).await,
                        Topic::Task(id) => mcp.gateway.watch_task(&viewer, &profile, id).await,
                    }
                });
                let late = |_| Err(Refusal::Upstream("the server does not answer".into()));
                let subscribed = subscribed.await.unwrap_or_else(late);
                (topic, subscribed)
            });
        }
        let mut accepted = HashMap::new();
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok((topic, Ok(there))) => {
                    if let Some(twice) = accepted.insert(topic, there) {
                        self.gateway.unsubscribe(&twice).await;
                    }
                }
                Ok((topic, Err(refusal))) => {
                    tracing::debug!(?topic, %refusal, "a subscription was refused")
                }
                Err(error) => tracing::error!(%error, "a subscription was interrupted"),
            }
        }
        room.shrink(room.amount().saturating_sub(accepted.len() as u64));
        let room = Arc::new(Room { _session: None, _principal: room });
        let held = |there| Subscription { there, room: room.clone() };
        let by_topic = accepted.into_iter().map(|(topic, there)| (topic, held(there))).collect();
        SubscribedTopics { by_topic, budget: None }
    }

    fn uri_of(&self, head: &Head<'_>) -> Result<String, Refusal> {
        let uri = head.params.as_ref().and_then(|params| params.uri.as_ref());
        let uri = uri.ok_or_else(|| Refusal::Invalid("params.uri must be a string".into()))?;
        self.gateway.check_uri(&uri.value)?;
        Ok(uri.value.to_string())
    }
}
