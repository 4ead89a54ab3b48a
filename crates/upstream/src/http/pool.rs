//! Idle connections to one origin, ready for the next request.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::connection::Connection;

/// Common servers close idle connections after 5 s; dropping them earlier avoids using one while it is being closed.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
const MAX_IDLE: usize = 64;

#[derive(Default)]
pub struct ConnectionPool {
    /// Longest idle first.
    idle: Mutex<VecDeque<(Box<Connection>, Instant)>>,
}

impl ConnectionPool {
    /// Takes the most recently used connection, so that the surplus of a burst stays idle and is dropped.
    pub fn take(&self) -> Option<Box<Connection>> {
        let now = Instant::now();
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= IDLE_LIMIT;
        loop {
            let mut idle = self.lock();
            let expired = match idle.front() {
                Some((_, since)) if is_over(since) => idle.partition_point(|(_, since)| is_over(since)),
                Some(_) | None => 0,
            };
            // They are closed after the lock is released.
            let expired: Vec<_> = idle.drain(..expired).collect();
            let taken = idle.pop_back();
            drop(idle);
            drop(expired);
            let (mut connection, _) = taken?;
            if connection.is_usable() {
                return Some(connection);
            }
        }
    }

    pub fn put(&self, connection: Box<Connection>) {
        let now = Instant::now();
        let mut idle = self.lock();
        if idle.len() < MAX_IDLE {
            idle.push_back((connection, now));
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Box<Connection>, Instant)>> {
        self.idle.lock().expect("no code panics while it holds the pool")
    }
}
