//! The epoch: a number in the table `settings` that grows with every change of what gateways hold in memory. Gateways on
//! the same database learn from it that something changed.

/// Increments the epoch and returns it.
pub(super) const BUMP_EPOCH: &str = "INSERT INTO settings (key, value) VALUES ('epoch', '1')
    ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(settings.value AS BIGINT) + 1 AS TEXT) RETURNING value";

/// The channel on which Postgres tells all gateways the epoch of a change once it is committed, and what else they tell each
/// other.
pub(super) const CHANNEL: &str = "toolgate";

/// Announces something on the channel when the transaction is committed.
pub(super) const ANNOUNCE: &str = "SELECT pg_notify('toolgate', $1)";

/// A stored epoch as a number.
pub(super) fn parse(text: &str) -> Option<i64> {
    text.parse().ok()
}
