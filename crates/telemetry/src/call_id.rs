//! The id of a call, and which call the current task works for.

use std::fmt;
use std::future::Future;

/// The id of a call: later ones are greater, even if the clock jumps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    pub number: u64,
    /// Tells apart what several gateways number alike.
    pub writer: u32,
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:08x}", self.number, self.writer)
    }
}

tokio::task_local! {
    static CURRENT: CallId;
}

impl CallId {
    /// Does some work of the call: lines that are logged meanwhile have its id.
    pub async fn within<T>(self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    /// The call that the current task works for.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(|id| *id).ok()
    }
}
