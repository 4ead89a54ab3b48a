//! Subscriptions to resources, counted over all sessions: the first one subscribes at the upstream, the last one to go
//! unsubscribes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use super::Gateway;
use super::caller::Viewer;
use super::catalog::Entry;
use super::disclosure::Disclosure;
use super::refusal::Refusal;
use super::request::{NoResult, OwnRequest};
use upstream::Upstream;
use wire::text;

/// A server and the URI there.
type ResourceKey = (String, String);

#[derive(Default)]
pub struct Subscriptions(Mutex<HashMap<ResourceKey, Interest>>);

/// The number of subscriptions to a resource, and the lock that orders requests to the server about it.
#[derive(Default)]
struct Interest {
    count: usize,
    turn: ResourceTurn,
}

/// Held during a request to the server, so that no subscription succeeds before the server agreed, and the server gets
/// the requests in the order of the changes.
type ResourceTurn = Arc<tokio::sync::Mutex<()>>;

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, HashMap<ResourceKey, Interest>> {
        self.0.lock().expect("no code panics while it holds the counts")
    }

    fn turn<'a>(&'a self, key: &'a ResourceKey) -> Turn<'a> {
        let lock = self.lock().entry(key.clone()).or_default().turn.clone();
        Turn { subscriptions: self, key, lock: Some(lock) }
    }

    fn count(&self, key: &ResourceKey) -> usize {
        self.lock().get(key).map_or(0, |interest| interest.count)
    }

    fn add(&self, key: &ResourceKey) {
        self.lock().entry(key.clone()).or_default().count += 1;
    }

    /// Removes one subscription; true if it was the last.
    fn remove(&self, key: &ResourceKey) -> bool {
        let mut interests = self.lock();
        let Some(interest) = interests.get_mut(key).filter(|interest| interest.count > 0) else {
            return false;
        };
        interest.count -= 1;
        interest.count == 0
    }
}

/// A task's interest in the turn of a resource. Dropping it, at whatever point the task ends, removes the entry of a
/// resource without subscriptions, unless another task still needs it.
struct Turn<'a> {
    subscriptions: &'a Subscriptions,
    key: &'a ResourceKey,
    /// `None` only while it is dropped.
    lock: Option<ResourceTurn>,
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
        // Under the lock, so that of two tasks that end at once the second one removes the entry.
        self.lock = None;
        let is_over = |interest: &Interest| interest.count == 0 && Arc::strong_count(&interest.turn) == 1;
        if interests.get(self.key).is_some_and(is_over) {
            interests.remove(self.key);
        }
    }
}

impl Gateway {
    /// Subscribes to a resource. Returns the server that has the URI, and the URI there.
    pub async fn subscribe(&self, viewer: &Viewer, uri: &str) -> Result<(String, String), Refusal> {
        let catalog = self.catalog();
        let unknown = || Refusal::UnknownResource(uri.to_owned());
        let lens = catalog.lens(viewer).ok_or_else(unknown)?;
        let (entry, upstream_uri) = catalog.reader_in(&lens, uri)?;
        let key = (entry.name().to_string(), upstream_uri);
        let turn = self.subscriptions.turn(&key);
        let asked = {
            let _held = turn.take().await;
            let asked = match self.subscriptions.count(&key) {
                0 => {
                    let disclosure = self.disclosure(viewer.client);
                    self.tell_server(entry, "resources/subscribe", &key.1, disclosure).await
                }
                _ => Ok(()),
            };
            if asked.is_ok() {
                self.subscriptions.add(&key);
            }
            asked
        };
        drop(turn);
        asked?;
        self.share_wanted(entry, &key);
        Ok(key)
    }

    /// Whether a resource still exists for a viewer.
    pub fn shows_resource(&self, viewer: &Viewer, server: &str, uri: &str) -> bool {
        let catalog = self.catalog();
        let (Some(lens), Some(entry)) = (catalog.lens(viewer), catalog.get(server)) else { return false };
        lens.shows_resource(entry, uri) || lens.shows_templates(entry)
    }

    pub async fn unsubscribe(&self, server: &str, uri: &str) {
        let key = (server.to_owned(), uri.to_owned());
        let turn = self.subscriptions.turn(&key);
        let _held = turn.take().await;
        let is_last = self.subscriptions.remove(&key);
        if let Some(entry) = self.catalog().get(server) {
            self.share_wanted(entry, &key);
            if is_last {
                // Only the log gets to know it.
                let told = self.tell_server(entry, "resources/unsubscribe", uri, Disclosure::Full).await;
                if let Err(refusal) = told {
                    tracing::debug!(server, %refusal, "a server refused to unsubscribe");
                }
            }
        }
    }

    /// Tells the upstream whether a resource has subscriptions, so that it subscribes again after it reconnects.
    fn share_wanted(&self, entry: &Arc<Entry>, key: &ResourceKey) {
        if let Some(upstream) = &entry.upstream {
            // Under the lock, so that an older value cannot overwrite a newer one.
            let interests = self.subscriptions.lock();
            let is_wanted = interests.get(key).is_some_and(|interest| interest.count > 0);
            upstream.want_resource(&key.1, is_wanted);
        }
    }

    /// Gives the log level and the subscriptions to the new upstream of a server that was changed or enabled.
    pub(super) fn hand_over(&self, upstream: &Upstream) {
        let level = *self.log_level.lock().expect("no code panics while it holds the level");
        let interests = self.subscriptions.lock();
        upstream.take_over(level, wanted_of(upstream.config().name.as_str(), &interests));
    }
}

impl Gateway {
    /// Sends a subscribe or unsubscribe request. Modern servers have none: `upstream` lists what is wanted in its one
    /// subscription there.
    async fn tell_server(
        &self,
        entry: &Arc<Entry>,
        method: &'static str,
        uri: &str,
        disclosure: Disclosure,
    ) -> Result<(), Refusal> {
        if entry.upstream.as_ref().is_some_and(|upstream| upstream.is_modern()) {
            return Ok(());
        }
        let uri = text::quote(uri);
        let request = OwnRequest {
            method,
            params: &[("uri", &uri)],
            tool: None,
            is_repeatable: true,
            progress: None,
            // On the shared link, which stays open whatever sessions come and go.
            owner: None,
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

fn wanted_of(server: &str, interests: &HashMap<ResourceKey, Interest>) -> BTreeSet<String> {
    let wanted = interests.iter().filter(|((of, _), interest)| of == server && interest.count > 0);
    wanted.map(|((_, uri), _)| uri.clone()).collect()
}
