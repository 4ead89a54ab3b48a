//! The calls of other gateways on the same database.

use std::collections::HashMap;
use std::sync::Arc;

use super::Recorder;

/// How long after it was written a call of another gateway may become visible.
const OVERLAP_MS: i64 = 5000;

/// Shows calls of other gateways on the same database to those who watch calls here.
#[derive(Default)]
pub struct Follower {
    /// The times of the database server from which and up to which calls are known; `None` while nobody watches.
    known: Option<(i64, i64)>,
    /// Calls that were shown lately, and when they were written.
    shown: HashMap<String, i64>,
}

impl Follower {
    pub async fn look(&mut self, recorder: &Recorder) {
        if recorder.live.receiver_count() == 0 {
            *self = Self::default();
            return;
        }
        let after = self.known.map(|(from, until)| from.max(until - OVERLAP_MS));
        let (calls, now) = match recorder.records.written_after(after).await {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "cannot read the calls of other gateways"),
        };
        let own = recorder.ids.suffix();
        for (record, written) in calls {
            let is_new =
                !record.id.ends_with(&own) && self.shown.insert(record.id.clone(), written).is_none();
            if is_new {
                let _ = recorder.live.send(Arc::new(record));
            }
        }
        let (from, _) = self.known.unwrap_or((now, now));
        self.known = Some((from, now));
        self.shown.retain(|_, written| *written > now - 2 * OVERLAP_MS);
    }
}
