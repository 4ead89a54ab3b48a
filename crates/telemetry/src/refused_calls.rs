//! The count of calls that a rate limit refused, by principal and tool. Series of principals and servers that are gone
//! are removed; since a family of metrics cannot be searched, this keeps the labels of its series.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusedLabels {
    pub principal: String,
    pub server: String,
    pub tool: String,
}

#[derive(Default)]
pub struct RefusedCalls {
    counts: Family<RefusedLabels, Counter>,
    /// The labels of all series. Locked during each change of them.
    labels: Mutex<HashSet<RefusedLabels>>,
}

impl RefusedCalls {
    pub fn register(&self, registry: &mut Registry) {
        let help = "Calls that a rate limit refused, by principal, server and tool";
        registry.register("refused_calls", help, self.counts.clone());
    }

    pub fn count(&self, labels: RefusedLabels) {
        let mut known = self.labels();
        self.counts.get_or_create(&labels).inc();
        known.insert(labels);
    }

    /// Removes series.
    pub fn forget(&self, is_gone: impl Fn(&RefusedLabels) -> bool) {
        self.labels().retain(|labels| {
            let stays = !is_gone(labels);
            if !stays {
                self.counts.remove(labels);
            }
            stays
        });
    }

    fn labels(&self) -> MutexGuard<'_, HashSet<RefusedLabels>> {
        self.labels.lock().expect("no code panics while it holds the labels")
    }
}
