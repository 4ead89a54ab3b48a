//! Subscriptions to resources and tasks, counted over all sessions: the first one subscribes at the upstream, the last
//! one to go unsubscribes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Gateway;
use super::audience::Extent;
use super::caller::{Profile, Viewer};
use super::catalog::Entry;
use super::disclosure::Disclosure;
use super::refusal::Refusal;
use super::request::{NoResult, OwnRequest};
use super::trail::Trail;
use model::Topic;
use upstream::Upstream;
use wire::{Era, text};

/// A resource or task at its server, subscribed on one of the links to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubscribedTopic {
    pub server: String,
    /// As the server knows it.
    pub topic: Topic,
    /// The profile of the link, which is the one that the calls of its subscribers use.
    pub link: Profile,
}

#[derive(Default)]
pub struct Subscriptions(Mutex<HashMap<SubscribedTopic, Interest>>);

/// The number of subscriptions to a topic, and the lock that orders requests to the server about it.
#[derive(Default)]
struct Interest {
    count: usize,
    turn: TopicTurn,
}

/// Held during a request to the server, so that no subscription succeeds before the server agreed, and the server gets
/// the requests in the order of the changes.
type TopicTurn = Arc<tokio::sync::Mutex<()>>;

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<SubscribedTopic, Interest>> {
        self.0.lock().expect("no code panics while it holds the counts")
    }

    fn turn<'a>(&'a self, key: &'a SubscribedTopic) -> Turn<'a> {
        let lock = self.lock().entry(key.clone()).or_default().turn.clone();
        Turn { subscriptions: self, key, lock: Some(lock) }
    }

    fn count(&self, key: &SubscribedTopic) -> usize {
        self.lock().get(key).map_or(0, |interest| interest.count)
    }

    fn add(&self, key: &SubscribedTopic) {
        self.lock().entry(key.clone()).or_default().count += 1;
    }

    /// Removes one subscription; true if it was the last.
    fn remove(&self, key: &SubscribedTopic) -> bool {
        let mut interests = self.lock();
        let Some(interest) = interests.get_mut(key).filter(|interest| interest.count > 0) else {
            return false;
        };
        interest.count -= 1;
        interest.count == 0
    }
}

/// Somebody's interest in the turn of a topic. Dropping it, at whatever point that ends, removes the entry of a topic
/// without subscriptions, unless somebody else still needs it.
struct Turn<'a> {
    subscriptions: &'a Subscriptions,
    key: &'a SubscribedTopic,
    /// `None` only while it is dropped.
    lock: Option<TopicTurn>,
}

impl Turn<'_> {
    async fn take(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.lock {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut interests = self.subscriptions.lock();
        // Under the lock, so that of two that end at once the second one removes the entry.
        self.lock = None;
        let is_over = |interest: &Interest| interest.count == 0 && Arc::strong_count(&interest.turn) == 1;
        if interests.get(self.key).is_some_and(is_over) {
            interests.remove(self.key);
        }
    }
}

impl Gateway {
    /// Subscribes to a resource on the link that the caller's calls use. Returns when the server has agreed.
    pub async fn subscribe(
        &self,
        viewer: &Viewer,
        profile: &Profile,
        uri: &str,
    ) -> Result<SubscribedTopic, Refusal> {
        let mut found = self.find_resource_for(viewer, profile, uri);
        if found.is_err() {
            Box::pin(self.prepare_lists(viewer, profile, Extent::All)).await;
            found = self.find_resource_for(viewer, profile, uri);
        }
        let (entry, uri) = found?;
        self.subscribe_at(viewer, profile, entry, Topic::Resource(uri)).await
    }

    /// Subscribes to the state of a task on the link that the caller's calls use. Returns when the server has agreed.
    pub async fn watch_task(
        &self,
        viewer: &Viewer,
        profile: &Profile,
        id: &str,
    ) -> Result<SubscribedTopic, Refusal> {
        let (entry, id) = self.find_task(viewer, profile, id)?;
        self.check_task_era(&entry, profile, self.disclosure(viewer.principal)).await?;
        self.subscribe_at(viewer, profile, entry, Topic::Task(id)).await
    }

    async fn subscribe_at(
        &self,
        viewer: &Viewer,
        profile: &Profile,
        entry: Arc<Entry>,
        topic: Topic,
    ) -> Result<SubscribedTopic, Refusal> {
        let disclosure = self.disclosure(viewer.principal);
        let upstream =
            entry.upstream.clone().ok_or_else(|| Refusal::Upstream("the server is disabled".into()))?;
        let link = upstream.link_profile(profile).await.map_err(|error| {
            let what = format!("server {:?}", entry.name().as_str());
            Refusal::Upstream(disclosure.sentence(&what, &error, &entry))
        })?;
        let key = SubscribedTopic { server: entry.name().to_string(), topic, link };
        let turn = self.subscriptions.turn(&key);
        let asked = {
            let _held = turn.take().await;
            let asked = match self.subscriptions.count(&key) {
                0 => self.ask_to_subscribe(&entry, &upstream, profile, &key, disclosure).await,
                _ => Ok(()),
            };
            if asked.is_ok() {
                self.subscriptions.add(&key);
            }
            asked
        };
        drop(turn);
        // If it was refused, this takes back what was wanted.
        self.share_wanted(&entry, &key);
        asked?;
        Ok(key)
    }

    fn find_resource_for(
        &self,
        viewer: &Viewer,
        profile: &Profile,
        uri: &str,
    ) -> Result<(Arc<Entry>, String), Refusal> {
        let catalog = self.catalog_for(profile);
        let lens = catalog.lens(viewer).ok_or_else(|| Refusal::UnknownResource(uri.to_owned()))?;
        let (entry, upstream_uri) = catalog.reader_in(&lens, uri)?;
        Ok((entry.clone(), upstream_uri))
    }

    /// Whether a resource still exists for a viewer.
    pub fn shows_resource(&self, viewer: &Viewer, profile: &Profile, server: &str, uri: &str) -> bool {
        let catalog = self.catalog_for(profile);
        let (Some(lens), Some(entry)) = (catalog.lens(viewer), catalog.get(server)) else { return false };
        lens.shows_resource(entry, uri) || lens.shows_made(entry, uri)
    }

    pub async fn unsubscribe(&self, key: &SubscribedTopic) {
        let turn = self.subscriptions.turn(key);
        let _held = turn.take().await;
        let is_last = self.subscriptions.remove(key);
        if let Some(entry) = self.catalog().get(&key.server) {
            self.share_wanted(entry, key);
            // A modern server has no such request: the next list of what is wanted lacks the topic.
            // A link that is closed ends what was subscribed on it, and is not opened again for that.
            let is_open = entry.upstream.as_ref().is_some_and(|upstream| upstream.has_link(&key.link));
            if let (true, Era::Legacy, Topic::Resource(uri)) = (is_last && is_open, key.link.era, &key.topic)
            {
                // Only the log gets to know it.
                let asked =
                    self.ask_about(entry, "resources/unsubscribe", uri, &key.link, Disclosure::Full).await;
                if let Err(refusal) = asked {
                    tracing::debug!(server = key.server, %refusal, "a server refused to unsubscribe");
                }
            }
        }
    }

    /// Tells the upstream whether a topic has subscriptions, so that it subscribes again after it reconnects.
    fn share_wanted(&self, entry: &Arc<Entry>, key: &SubscribedTopic) {
        if let Some(upstream) = &entry.upstream {
            // Under the lock, so that an older value cannot overwrite a newer one.
            let interests = self.subscriptions.lock();
            let is_wanted = interests.get(key).is_some_and(|interest| interest.count > 0);
            upstream.want_topic(&key.link, &key.topic, is_wanted);
        }
    }

    /// Gives the log level and the subscriptions to the new upstream of a server that was changed or enabled.
    pub(super) fn hand_over(&self, upstream: &Upstream) {
        let level = *self.log_level.lock().expect("no code panics while it holds the level");
        let interests = self.subscriptions.lock();
        upstream.take_over(level, wanted_of(upstream.config().name.as_str(), &interests));
    }

    /// Asks a server to announce updates of a topic. A modern one gets a list of all that is wanted on the link, and
    /// says what it grants of it.
    async fn ask_to_subscribe(
        &self,
        entry: &Arc<Entry>,
        upstream: &Upstream,
        profile: &Profile,
        key: &SubscribedTopic,
        disclosure: Disclosure,
    ) -> Result<(), Refusal> {
        let (method, name) = match (&key.topic, key.link.era) {
            (Topic::Resource(uri), Era::Legacy) => {
                return self.ask_about(entry, "resources/subscribe", uri, profile, disclosure).await;
            }
            (Topic::Resource(uri), Era::Modern) => ("resources/subscribe", uri),
            (Topic::Task(id), Era::Legacy | Era::Modern) => ("subscriptions/listen", id),
        };
        upstream.want_topic(&key.link, &key.topic, true);
        match upstream.grants(&key.link, &key.topic).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::Upstream(format!(
                "server {:?} does not send updates of {name:?}",
                entry.name().as_str()
            ))),
            Err(error) => Err(Refusal::Upstream(disclosure.sentence(method, &error, entry))),
        }
    }

    /// Sends a subscribe or unsubscribe request to a legacy server.
    async fn ask_about(
        &self,
        entry: &Arc<Entry>,
        method: &'static str,
        uri: &str,
        profile: &Profile,
        disclosure: Disclosure,
    ) -> Result<(), Refusal> {
        let uri = text::quote(uri);
        let request = OwnRequest {
            method,
            params: &[("uri", &uri)],
            tool: None,
            is_repeatable: true,
            listener: None,
            profile: profile.clone(),
            trail: Trail::default(),
        };
        match self.ask(entry, request).await {
            Ok(_) => Ok(()),
            Err(NoResult::Rpc { code, message, data }) => Err(Refusal::Rpc { code, message, data }),
            Err(no_result) => {
                Err(Refusal::Upstream(no_result.explain(method, entry, disclosure).to_string()))
            }
        }
    }
}

/// What is subscribed at a server, by the profile of the link.
fn wanted_of(
    server: &str,
    interests: &HashMap<SubscribedTopic, Interest>,
) -> HashMap<Profile, BTreeSet<Topic>> {
    let mut wanted: HashMap<Profile, BTreeSet<Topic>> = HashMap::new();
    for (key, _) in interests.iter().filter(|(key, interest)| key.server == server && interest.count > 0) {
        wanted.entry(key.link.clone()).or_default().insert(key.topic.clone());
    }
    wanted
}
