//! Bounds on what anything outside of the gateway can cost: callers, servers and strangers. A bound on something that
//! lasts is a [`Budget`], which has an owner (the process, a principal, a server); a part of it is taken as a guard that
//! gives it back on drop. A bound on a pace is a [`RateLimiter`], or a [`Portion`] of one that gateways share. Every refusal is counted by its [`Bound`] and is one
//! sentence that names the limit. Waiting, closing and status codes are up to the users of this crate.

mod bound;
mod budget;
mod charged;
mod limits;
mod portion;
mod rate;
mod refusals;

pub use bound::{Bound, Exceeded};
pub use budget::{Budget, Taken};
pub use charged::charged;
pub use limits::{
    BATCH_ANSWER_BYTES, BATCH_MESSAGES, LISTED_BYTES, LISTED_ITEMS, LISTED_PAGES, Limits, PARKED_CALLS,
    PARKED_OF_PRINCIPAL, SERVER_PROCESSES, SUBSCRIPTIONS_OF_PRINCIPAL, SUBSCRIPTIONS_OF_SESSION, URI_BYTES,
    WAITING_CALLS,
};
pub use portion::{Portion, PortionTake};
pub use rate::RateLimiter;
pub use refusals::Refusals;

/// The limits of one gateway, its count of refusals, and the budgets that the whole process shares.
#[derive(Clone, Debug)]
pub struct Budgets {
    pub limits: Limits,
    pub refusals: Refusals,
    /// Open connections of clients.
    pub connections: Budget,
    /// Bytes held for requests that are being received and responses that are being sent.
    pub buffered: Budget,
    /// Processes of all stdio servers.
    pub processes: Budget,
    /// Calls waiting for input from their client.
    pub parked: Budget,
}

impl Budgets {
    pub fn new(limits: Limits) -> Self {
        let refusals = Refusals::default();
        Self {
            connections: Budget::new(Bound::Connections, limits.connections, &refusals),
            buffered: Budget::new(Bound::BufferedBytes, limits.buffered_bytes, &refusals),
            processes: Budget::new(Bound::Processes, limits.processes, &refusals),
            parked: Budget::new(Bound::ParkedCalls, PARKED_CALLS, &refusals),
            refusals,
            limits,
        }
    }

    /// Counts a refusal by a bound that has no budget, and returns its error.
    pub fn exceeded(&self, bound: Bound, limit: u64) -> Exceeded {
        self.refusals.count(bound);
        Exceeded { bound, limit }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}
