//! The id of a call, and which call the current thread works for.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

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

thread_local! {
    static CURRENT: Cell<Option<CallId>> = const { Cell::new(None) };
}

impl CallId {
    /// Lines that are logged until the end of this value have the id.
    pub fn enter(self) -> Entered {
        Entered { before: CURRENT.replace(Some(self)) }
    }

    /// Does some work of the call, whose lines have the id.
    pub fn within<F: Future + Unpin>(self, work: F) -> Within<F> {
        Within { call: self, work }
    }

    /// The call that the current thread works for.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.get()
    }
}

/// The current thread works for a call.
pub struct Entered {
    before: Option<CallId>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Work of a call.
pub struct Within<F> {
    call: CallId,
    work: F,
}

impl<F: Future + Unpin> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = self.call.enter();
        Pin::new(&mut self.work).poll(context)
    }
}
