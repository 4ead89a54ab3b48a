//! What is used of one rate limit.

use budget::{Portion, RateLimiter};

/// What is used of one limit, by this gateway alone or by all on the same database.
#[derive(Debug, Default)]
pub struct Limiter {
    /// Counts if this gateway is alone, or cannot reach the database.
    pub alone: RateLimiter,
    /// What this gateway has reserved of a shared limit.
    pub portion: Portion,
    /// Held while more is reserved.
    pub reserving: tokio::sync::Mutex<()>,
}
