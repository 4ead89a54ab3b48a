//! A client connection in use: what the files that serve it have in common.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::front::Front;
use super::resting::Connections;
use super::stream::ClientStream;
use super::tls::Tls;
use budget::{Bound, Budgets, Taken};

/// Time to send the head of a request, from its first byte. A TLS handshake counts as a part of the first head.
pub const HEAD_TIME: Duration = Duration::from_secs(15);
/// The least of that time which is left for a head that began behind another request, when that was answered: what the client has
/// sent meanwhile may still have to be read.
const LEFT_TO_READ: Duration = Duration::from_secs(5);
/// Interval of the idle check, which drops the buffers of a connection that had no request since the last check. The
/// first check comes soon, since many agents send a single request: connections that come one after another can then
/// reuse the same memory. The interval doubles while a connection is busy.
pub const FIRST_LOOK: Duration = Duration::from_millis(5);
/// What a connection costs while a request is received or answered: the size of its first read buffer. It is charged for
/// more when the buffer of hyper grows.
pub const READ_BUFFER: usize = 8 * 1024;

/// Everything that connections share.
pub struct Shared {
    pub front: Front,
    /// `None` if plain HTTP is served.
    pub tls: Option<Arc<Tls>>,
    pub connections: Connections,
    pub budgets: Budgets,
    /// Cancelled when connections should not be kept for another request.
    pub draining: CancellationToken,
    pub shutdown: CancellationToken,
}

impl Shared {
    /// The same for other connections, which end with another token.
    pub fn until(&self, shutdown: CancellationToken) -> Self {
        Self {
            front: self.front.clone(),
            tls: self.tls.clone(),
            connections: Connections::new(self.budgets.connections.clone()),
            budgets: self.budgets.clone(),
            draining: self.draining.clone(),
            shutdown,
        }
    }
}

/// A connection with a request, or a part of one.
pub struct Begun {
    pub stream: ClientStream,
    /// What was read of it and not used yet.
    pub unread: Bytes,
    /// When the first byte of its head arrived.
    pub head_begun: Instant,
    /// The part of the budget that its read buffer takes.
    pub charge: Taken,
}

/// From when on the head of the next request has its time. Its first byte came at `first`, if it came while the request before was
/// being answered.
pub fn head_begun_behind(first: Option<Instant>, now: Instant) -> Instant {
    let earliest = now.checked_sub(HEAD_TIME - LEFT_TO_READ).unwrap_or(now);
    first.map_or(now, |first| first.max(earliest))
}

/// Counts a connection that was closed since its client read nothing for too long.
pub fn note_unread(cause: Option<&io::Error>, shared: &Shared) {
    if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut) {
        shared.budgets.refusals.count(Bound::SendTime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_behind_a_request_has_its_time_from_its_first_byte_and_some_to_be_read() {
        let second = Duration::from_secs(1);
        let start = Instant::now();
        assert_eq!(head_begun_behind(None, start), start);
        assert_eq!(head_begun_behind(Some(start), start + 3 * second), start);
        let late = start + 60 * second;
        assert_eq!(late.duration_since(head_begun_behind(Some(start), late)), HEAD_TIME - LEFT_TO_READ);
    }
}
