//! What each principal uses of its limits. It belongs to the principal, not to its token: a new token brings no new
//! budget, and neither does a change of the catalog.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, RwLock};

use foldhash::fast::RandomState;

use super::Gateway;
use super::limiter::Limiter;
use super::tasks::OwnTasks;
use budget::{Bound, Budget, Budgets, PARKED_OF_PRINCIPAL, SUBSCRIPTIONS_OF_PRINCIPAL};
use model::PrincipalId;

/// The budgets of one principal, and what belongs to it elsewhere; in development mode, of everybody together.
#[derive(Debug)]
pub struct Usage {
    /// Open event streams.
    pub streams: Budget,
    /// Subscriptions to resources and tasks, in all sessions.
    pub subscriptions: Budget,
    /// Calls in flight.
    pub calls: Budget,
    /// Calls that wait for input of the principal.
    pub parked: Budget,
    /// The tasks that it started at servers.
    pub tasks: OwnTasks,
    /// Calls per minute, if the principal has such a limit.
    pub rate: Limiter,
}

impl Usage {
    fn new(budgets: &Budgets) -> Self {
        let (limits, refusals) = (&budgets.limits, &budgets.refusals);
        Self {
            streams: Budget::new(Bound::Streams, limits.streams, refusals),
            subscriptions: Budget::new(Bound::Subscriptions, SUBSCRIPTIONS_OF_PRINCIPAL, refusals),
            calls: Budget::new(Bound::Calls, limits.calls, refusals),
            parked: Budget::new(Bound::ParkedCalls, PARKED_OF_PRINCIPAL, refusals),
            tasks: OwnTasks::default(),
            rate: Limiter::default(),
        }
    }
}

/// The budgets of all principals that used one since they exist.
pub struct Usages {
    everybody: Arc<Usage>,
    by_principal: RwLock<HashMap<PrincipalId, Arc<Usage>, RandomState>>,
}

impl Usages {
    pub fn new(budgets: &Budgets) -> Self {
        Self { everybody: Arc::new(Usage::new(budgets)), by_principal: RwLock::default() }
    }

    pub fn of(&self, principal: PrincipalId, budgets: &Budgets) -> Arc<Usage> {
        let known = self.by_principal.read().expect("no code panics while it holds the budgets");
        if let Some(usage) = known.get(&principal) {
            return usage.clone();
        }
        drop(known);
        let mut known = self.by_principal.write().expect("no code panics while it holds the budgets");
        known.entry(principal).or_insert_with(|| Arc::new(Usage::new(budgets))).clone()
    }

    /// The number of open event streams of all principals.
    pub fn streams(&self) -> u64 {
        let known = self.by_principal.read().expect("no code panics while it holds the budgets");
        known.values().chain([&self.everybody]).map(|usage| usage.streams.used()).sum()
    }

    /// Whether a principal has an open event stream or a call in flight.
    pub fn is_active(&self, principal: PrincipalId) -> bool {
        let known = self.by_principal.read().expect("no code panics while it holds the budgets");
        known.get(&principal).is_some_and(|usage| usage.streams.used() + usage.calls.used() > 0)
    }

    /// The sessions, of any principal, that started a task.
    pub fn sessions_of_task(&self, server: &str, id: &str) -> Vec<u64> {
        let known = self.by_principal.read().expect("no code panics while it holds the budgets");
        let usages = known.values().chain([&self.everybody]);
        usages.filter_map(|usage| usage.tasks.session_of(server, id)).collect()
    }

    /// Forgets principals that no longer exist. What they still hold is given back to budgets that nobody else uses.
    pub fn keep(&self, principals: &HashSet<PrincipalId>) {
        let mut known = self.by_principal.write().expect("no code panics while it holds the budgets");
        known.retain(|principal, _| principals.contains(principal));
    }
}

impl Gateway {
    /// The budgets of a principal; `None` is everybody in development mode.
    pub fn usage(&self, principal: Option<PrincipalId>) -> Arc<Usage> {
        match principal {
            None => self.usages.everybody.clone(),
            Some(principal) => self.usages.of(principal, self.budgets()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budgets_of_a_principal_last_as_long_as_it_exists() {
        let budgets = Budgets::default();
        let usages = Usages::new(&budgets);
        let used = |principal| usages.of(PrincipalId(principal), &budgets).streams.used();
        let held =
            [1, 2].map(|principal| usages.of(PrincipalId(principal), &budgets).streams.take(3).unwrap());
        usages.keep(&HashSet::from([PrincipalId(1)]));
        assert_eq!((used(1), used(2), usages.streams()), (3, 0, 3));
        drop(held);
        assert_eq!((used(1), used(2)), (0, 0));
        assert_eq!(usages.everybody.streams.limit(), budgets.limits.streams);
    }
}
