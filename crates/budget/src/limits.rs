//! The limits: constants, and those that the operator can set, with their defaults.

use std::time::Duration;

/// The most messages in a batch.
pub const BATCH_MESSAGES: usize = 100;
/// The most bytes in the answer to a batch.
pub const BATCH_ANSWER_BYTES: usize = 16 * MIB;
/// The longest URI in a request.
pub const URI_BYTES: usize = 8192;
/// The most subscriptions of one session, or in one listen request.
pub const SUBSCRIPTIONS_OF_SESSION: u64 = 1000;
/// The most subscriptions of one principal.
pub const SUBSCRIPTIONS_OF_PRINCIPAL: u64 = 10_000;
/// The most calls that wait for a server with `max_concurrency`.
pub const WAITING_CALLS: u64 = 1000;
/// The most parked calls of one principal; beyond it, the oldest one expires.
pub const PARKED_OF_PRINCIPAL: u64 = 100;
/// The most parked calls in all.
pub const PARKED_CALLS: u64 = 10_000;
/// The most processes of one stdio server.
pub const SERVER_PROCESSES: u64 = 32;
/// The most tools, prompts, resources or templates that a server may list.
pub const LISTED_ITEMS: usize = 10_000;
/// The most bytes in all lists of a server.
pub const LISTED_BYTES: usize = 64 * MIB;
/// The most pages of one list.
pub const LISTED_PAGES: usize = 1000;

const MIB: usize = 1024 * 1024;

/// The limits that the operator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `MAX_CONNECTIONS`: open connections of clients.
    pub connections: u64,
    /// `MAX_BUFFERED_MB`: bytes held for requests being received and responses being sent.
    pub buffered_bytes: u64,
    /// `MAX_STREAMS`: open event streams of a principal.
    pub streams: u64,
    /// `MAX_CALLS`: calls in flight of a principal.
    pub calls: u64,
    /// `MAX_PROCESSES`: processes of all stdio servers.
    pub processes: u64,
    /// `MAX_MESSAGE_MB`: the largest message of a server.
    pub message_bytes: usize,
    /// `PARK_TIMEOUT_SEC`: how long a client may take to answer a question of a server.
    pub answer_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            buffered_bytes: 512 * MIB as u64,
            streams: 2000,
            calls: 1000,
            processes: 256,
            message_bytes: 64 * MIB,
            answer_time: Duration::from_secs(600),
        }
    }
}
