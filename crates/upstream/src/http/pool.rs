//! Idle connections to one origin, ready for the next request.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::dial::Connection;

/// Common servers close idle connections after 5 s; dropping them earlier avoids using one while it is being closed.
const IDLE_LIMIT: Duration = Duration::from_secs(4);
const MAX_IDLE: usize = 64;

#[derive(Default)]
pub struct ConnectionPool {
    /// Longest idle first.
    idle: Mutex<VecDeque<(Connection, Instant)>>,
}

impl ConnectionPool {
    /// Takes the most recently used connection, so that the surplus of a burst stays idle and is dropped.
    pub fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().expect("no code panics while it holds the pool");
        let now = Instant::now();
        while idle.front().is_some_and(|(_, since)| now - *since >= IDLE_LIMIT) {
            idle.pop_front();
        }
        while let Some((mut connection, _)) = idle.pop_back() {
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    pub fn put(&self, connection: Connection) {
        let mut idle = self.idle.lock().expect("no code panics while it holds the pool");
        if idle.len() < MAX_IDLE && !connection.sender.is_closed() {
            idle.push_back((connection, Instant::now()));
        }
    }
}
