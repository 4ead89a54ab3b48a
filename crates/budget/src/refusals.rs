//! The count of refusals by each bound, for metrics and the dashboard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bound::Bound;

/// The number of refusals by each bound since the start. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<[AtomicU64; Bound::ALL.len()]>);

impl Refusals {
    pub fn count(&self, bound: Bound) {
        self.0[bound as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each bound with its count.
    pub fn all(&self) -> impl Iterator<Item = (Bound, u64)> {
        Bound::ALL.into_iter().map(|bound| (bound, self.0[bound as usize].load(Ordering::Relaxed)))
    }
}
