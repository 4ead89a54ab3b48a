//! The epoch: a number in the table `settings` that every write transaction increments. It has a file of its own, since
//! the connection to a database uses it too, below the tables.

/// Increments the epoch, a number that grows with every change.
pub(super) const BUMP_EPOCH: &str = "INSERT INTO settings (key, value) VALUES ('epoch', '1')
    ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(settings.value AS BIGINT) + 1 AS TEXT)";
