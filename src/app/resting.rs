//! The connections that rest: open, without a request and without a byte of one. When all connections are in use, the
//! one that has rested longest is closed for a new one. Connections that rest too long are closed here as well, so that
//! none of them needs a timer of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use budget::{Budget, Exceeded, Taken};

/// Idle timeout: a connection without a request is closed after this time.
const IDLE: Duration = Duration::from_secs(75);
/// How often connections are compared with the idle timeout.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// How long a new connection waits for another one to rest, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(20);
/// How many new connections may wait at the same time, and how many may be told that there is no room. Their sockets are
/// not part of the budget, so there are few of them where the budget is small because descriptors are.
const MOST_WAITING: u64 = 32;
const PART_WAITING: u64 = 50;

/// The budget of connections, and those that rest. Clones share both.
#[derive(Clone)]
pub struct Connections {
    budget: Budget,
    resting: Arc<Mutex<Resting>>,
    waiting: Arc<Semaphore>,
    /// Limits how many connections are being turned away with an answer at the same time.
    pub turning_away: Arc<Semaphore>,
}

#[derive(Default)]
struct Resting {
    /// In the order in which they came to rest.
    connections: BTreeMap<u64, RestingConnection>,
    last: u64,
    /// Whether no connection may rest any more.
    is_closed: bool,
}

struct RestingConnection {
    taken: Taken,
    since: Instant,
    /// Tells the connection that it is closed.
    evict: Arc<Notify>,
}

/// A connection's place among those that rest; leaves it on drop.
pub struct Place {
    connections: Connections,
    number: u64,
    evict: Arc<Notify>,
}

impl Connections {
    pub fn new(budget: Budget) -> Self {
        let most = (budget.limit() / PART_WAITING).clamp(1, MOST_WAITING) as usize;
        let semaphore = || Arc::new(Semaphore::new(most));
        Self { budget, resting: Arc::default(), waiting: semaphore(), turning_away: semaphore() }
    }

    /// Takes a place for a new connection, if need be that of one that rests.
    pub async fn admit(&self) -> Result<Taken, Exceeded> {
        if let Some(taken) = self.try_admit() {
            return Ok(taken);
        }
        // A connection that has just answered a request rests only a moment later.
        if let Ok(_turn) = self.waiting.try_acquire() {
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until {
                tokio::time::sleep(LOOK).await;
                if let Some(taken) = self.try_admit() {
                    return Ok(taken);
                }
            }
        }
        self.budget.take(1)
    }

    fn try_admit(&self) -> Option<Taken> {
        self.budget.try_take(1).or_else(|| self.evict())
    }

    /// Closes the connection that has rested longest, and returns what it had taken.
    pub fn evict(&self) -> Option<Taken> {
        self.evict_if(|_| true)
    }

    /// Closes the connection that has rested longest if `is_due` says so, and returns what it had taken.
    fn evict_if(&self, is_due: impl FnOnce(&RestingConnection) -> bool) -> Option<Taken> {
        let mut resting = self.lock();
        let longest = resting.connections.first_entry().filter(|longest| is_due(longest.get()))?.remove();
        longest.evict.notify_one();
        Some(longest.taken)
    }

    /// Closes connections that have rested too long. When `shutdown` is cancelled, closes all that rest, and those that
    /// would rest later.
    pub async fn close_idle(self, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(tokio::time::sleep(IDLE_INTERVAL)).await.is_some() {
            while self.evict_if(|longest| longest.since.elapsed() >= IDLE).is_some() {}
        }
        self.lock().is_closed = true;
        while self.evict().is_some() {}
    }

    /// Lets a connection rest, with what it has taken of the budget.
    pub fn rest(&self, taken: Taken) -> Place {
        let evict = Arc::new(Notify::new());
        let mut resting = self.lock();
        resting.last += 1;
        let number = resting.last;
        if resting.is_closed {
            evict.notify_one();
        } else {
            let connection = RestingConnection { taken, since: Instant::now(), evict: evict.clone() };
            resting.connections.insert(number, connection);
        }
        Place { connections: self.clone(), number, evict }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Resting> {
        self.resting.lock().expect("no code panics while it holds the resting connections")
    }
}

impl Place {
    /// Returns when the connection must close.
    pub async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Ends the rest: what was taken comes back, or `None` if the connection must close.
    pub fn leave(self) -> Option<Taken> {
        self.remove()
    }

    fn remove(&self) -> Option<Taken> {
        self.connections.lock().connections.remove(&self.number).map(|resting| resting.taken)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::{Bound, Refusals};
    use tokio_util::task::TaskTracker;

    fn connections(limit: u64) -> Connections {
        Connections::new(Budget::new(Bound::Connections, limit, &Refusals::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_resting_connection_makes_room() {
        let all = connections(2);
        let first = all.rest(all.admit().await.unwrap());
        let second = all.rest(all.admit().await.unwrap());
        let third = all.admit().await.unwrap();
        first.evicted().await;
        assert!(first.leave().is_none());
        let second = second.leave().unwrap();
        assert!(all.admit().await.is_err(), "both are in use");
        drop((second, third));
        assert_eq!(all.budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_waits_a_moment_for_one_to_rest() {
        let all = connections(1);
        let first = all.admit().await.unwrap();
        let resting = {
            let all = all.clone();
            async move {
                tokio::time::sleep(PATIENCE / 2).await;
                all.rest(first)
            }
        };
        let (admitted, place) = tokio::join!(all.admit(), resting);
        assert!(admitted.is_ok() && place.leave().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_rest_too_long_are_closed() {
        let (all, shutdown) = (connections(2), CancellationToken::new());
        let tasks = TaskTracker::new();
        let closing = tasks.spawn(all.clone().close_idle(shutdown.clone()));
        let first = all.rest(all.admit().await.unwrap());
        tokio::time::sleep(IDLE / 2).await;
        let second = all.rest(all.admit().await.unwrap());
        tokio::time::sleep(IDLE / 2 - IDLE_INTERVAL).await;
        assert_eq!(all.budget.used(), 2);
        tokio::time::sleep(2 * IDLE_INTERVAL).await;
        first.evicted().await;
        assert_eq!(all.budget.used(), 1, "the second one has not rested long");
        shutdown.cancel();
        second.evicted().await;
        closing.await.unwrap();
        let third = all.rest(all.admit().await.unwrap());
        third.evicted().await;
        assert!(third.leave().is_none());
        assert_eq!(all.budget.used(), 0);
    }

    #[test]
    fn few_sockets_are_used_beside_a_small_budget() {
        let beside = |limit| connections(limit).turning_away.available_permits();
        assert_eq!([1, 102, 1000, 20_000].map(beside), [1, 2, 20, 32]);
    }

    #[tokio::test]
    async fn a_dropped_place_gives_back_what_was_taken() {
        let all = connections(1);
        drop(all.rest(all.admit().await.unwrap()));
        assert_eq!(all.budget.used(), 0);
    }
}
