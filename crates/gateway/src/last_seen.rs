//! When users sent their last requests. It is kept in memory, and stored once a minute, so that a request costs no write.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Error, Gateway};
use model::PrincipalId;

/// The pause between two writes.
const PAUSE: Duration = Duration::from_secs(60);

/// The times that are not stored yet, and all times since the start, in milliseconds.
#[derive(Default)]
pub(super) struct LastSeen {
    unstored: Mutex<HashMap<PrincipalId, i64>>,
    all: Mutex<HashMap<PrincipalId, i64>>,
}

impl Gateway {
    /// Notes that a user sends a request.
    pub fn note_seen(&self, user: PrincipalId) {
        let now = self.clock.now_ms();
        self.last_seen.unstored.lock().expect("no code panics while it holds the times").insert(user, now);
        self.last_seen.all.lock().expect("no code panics while it holds the times").insert(user, now);
    }

    /// Whether a user sent a request to this gateway after a time, in milliseconds.
    pub(super) fn was_seen_since(&self, user: PrincipalId, at_ms: i64) -> bool {
        let all = self.last_seen.all.lock().expect("no code panics while it holds the times");
        all.get(&user).is_some_and(|seen| *seen > at_ms)
    }

    /// When each user was last seen, in milliseconds.
    pub async fn last_seen(&self) -> Result<HashMap<PrincipalId, i64>, Error> {
        let mut seen: HashMap<_, _> = self.store.load_last_seen().await?.into_iter().collect();
        let unstored = self.last_seen.unstored.lock().expect("no code panics while it holds the times");
        for (user, at) in &*unstored {
            let known = seen.entry(*user).or_insert(*at);
            *known = (*known).max(*at);
        }
        Ok(seen)
    }

    pub(super) async fn keep_last_seen(self: Arc<Self>) {
        loop {
            tokio::time::sleep(PAUSE).await;
            self.store_last_seen().await;
        }
    }

    /// Stores the times. If that fails, they wait for the next attempt.
    pub(super) async fn store_last_seen(&self) {
        let times = std::mem::take(
            &mut *self.last_seen.unstored.lock().expect("no code panics while it holds the times"),
        );
        if times.is_empty() {
            return;
        }
        let rows: Vec<_> = times.iter().map(|(user, at)| (*user, *at)).collect();
        if let Err(error) = self.store.put_last_seen(&rows).await {
            tracing::debug!(%error, "cannot store when users were last seen; trying again");
            let catalog = self.catalog();
            let known: HashSet<_> = catalog.principals().users().map(|user| user.id).collect();
            let mut unstored =
                self.last_seen.unstored.lock().expect("no code panics while it holds the times");
            for (user, at) in times.into_iter().filter(|(user, _)| known.contains(user)) {
                unstored.entry(user).or_insert(at);
            }
        }
    }
}
