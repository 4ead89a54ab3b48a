//! Resources that somebody wants to hear about, counted over all sessions: the upstream is asked once, and told
//! when nobody is left.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::Gateway;
use super::call::{Call, Failure};
use super::caller::Viewer;
use super::catalog::Entry;
use super::forward::Refusal;
use crate::upstream::Upstream;
use crate::wire::text;

#[derive(Default)]
pub struct Subscriptions(Mutex<HashMap<(String, String), usize>>);

impl Gateway {
    /// Returns the server that has the URI, and the URI there.
    pub async fn subscribe(&self, viewer: &Viewer, uri: &str) -> Result<(String, String), Refusal> {
        let catalog = self.catalog();
        let unknown = || Refusal::UnknownResource(uri.to_owned());
        let lens = catalog.lens(viewer).ok_or_else(unknown)?;
        let (entry, upstream_uri) = catalog.reader_in(&lens, uri)?;
        let key = (entry.name().to_string(), upstream_uri);
        let is_first = {
            let mut counts = self.subscriptions.0.lock().expect("no code panics while it holds the counts");
            let count = counts.entry(key.clone()).or_default();
            *count += 1;
            *count == 1
        };
        if is_first && let Err(refusal) = ask(entry, "resources/subscribe", &key.1).await {
            self.drop_one(&key);
            return Err(refusal);
        }
        self.share_wanted(entry);
        Ok(key)
    }

    pub async fn unsubscribe(&self, server: &str, uri: &str) {
        let key = (server.to_owned(), uri.to_owned());
        let is_last = self.drop_one(&key);
        let catalog = self.catalog();
        let Some(entry) = catalog.get(server) else { return };
        self.share_wanted(entry);
        if is_last && let Err(refusal) = ask(entry, "resources/unsubscribe", uri).await {
            tracing::debug!(server, %refusal, "a server did not take an unsubscription");
        }
    }

    fn drop_one(&self, key: &(String, String)) -> bool {
        let mut counts = self.subscriptions.0.lock().expect("no code panics while it holds the counts");
        let Some(count) = counts.get_mut(key) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            counts.remove(key);
        }
        is_last
    }

    /// The upstream needs to know them all, to ask again after a new connection.
    fn share_wanted(&self, entry: &Arc<Entry>) {
        if let Some(upstream) = &entry.upstream {
            upstream.want_resources(self.wanted_of(entry.name().as_str()));
        }
    }

    /// Tells the upstream of a server that was changed or switched on what the one before it knew.
    pub(super) fn hand_over(&self, upstream: &Upstream) {
        let level = *self.log_level.lock().expect("no code panics while it holds the level");
        upstream.take_over(level, self.wanted_of(upstream.config().name.as_str()));
    }

    fn wanted_of(&self, server: &str) -> BTreeSet<String> {
        let counts = self.subscriptions.0.lock().expect("no code panics while it holds the counts");
        counts.keys().filter(|(of, _)| of == server).map(|(_, uri)| uri.clone()).collect()
    }
}

/// Modern servers have no such request: what is wanted goes into their one subscription.
async fn ask(entry: &Entry, method: &str, uri: &str) -> Result<(), Refusal> {
    if entry.upstream.as_ref().is_some_and(|upstream| upstream.is_modern()) {
        return Ok(());
    }
    let uri = text::quote(uri);
    let call = Call { method, params: &[("uri", &uri)], is_repeatable: true, progress: None };
    match call.run(entry).await {
        Ok(_) => Ok(()),
        Err(Failure::Rpc { code, message, data }) => Err(Refusal::Rpc { code, message, data }),
        Err(failure) => Err(Refusal::Upstream(failure.explain(method, entry).to_string())),
    }
}
