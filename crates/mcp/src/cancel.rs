//! Cancels a call. Every call of a session has such a signal, so it costs less than a token that can have children.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// A signal that is given once; clones share it.
#[derive(Clone, Debug, Default)]
pub struct CancelSignal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_given: AtomicBool,
    /// The tasks that wait for it; usually there is one.
    first: Mutex<Option<Waker>>,
    others: Mutex<Vec<Waker>>,
}

impl CancelSignal {
    pub fn cancel(&self) {
        self.0.is_given.store(true, Ordering::Release);
        let waiting =
            lock(&self.0.first).take().into_iter().chain(std::mem::take(&mut *lock(&self.0.others)));
        waiting.for_each(Waker::wake);
    }

    pub fn is_cancelled(&self) -> bool {
        self.0.is_given.load(Ordering::Acquire)
    }

    /// Runs a future until its end, or until the signal is given: then it is dropped.
    pub async fn run_until_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            if self.is_cancelled() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            self.register(context);
            // It may have been given before the task was registered.
            if self.is_cancelled() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }

    fn register(&self, context: &Context<'_>) {
        let waker = context.waker();
        let mut first = lock(&self.0.first);
        match &*first {
            Some(known) if known.will_wake(waker) => return,
            Some(_) => {}
            None => return *first = Some(waker.clone()),
        }
        let mut others = lock(&self.0.others);
        if !others.iter().any(|known| known.will_wake(waker)) {
            others.push(waker.clone());
        }
    }
}

fn lock<T>(waiting: &Mutex<T>) -> MutexGuard<'_, T> {
    waiting.lock().expect("no code panics while it holds the waiting tasks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_who_waits_is_told() {
        let signal = CancelSignal::default();
        let waiting = [signal.clone(), signal.clone(), signal.clone()].map(|signal| {
            tokio::spawn(async move { signal.run_until_cancelled(std::future::pending::<()>()).await })
        });
        assert_eq!(signal.run_until_cancelled(tokio::task::yield_now()).await, Some(()));
        signal.cancel();
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), None);
        }
        assert!(signal.is_cancelled() && signal.run_until_cancelled(async {}).await.is_none());
    }
}
