//! The table `retired_tokens`: hashes of tokens that were valid a short time ago.

use super::db::{Tx, on};
use super::{Store, TokenHash};
use model::HolderName;

/// How long the hash of a token is kept after its end.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// Whose token ends.
pub(super) enum Retiring<'a> {
    User(&'a HolderName),
    Client(&'a HolderName),
}

impl Store {
    /// Tells whether a token that was retired at this time is still remembered.
    pub fn is_remembered(retired_at_ms: i64, now_ms: i64) -> bool {
        retired_at_ms > now_ms - KEPT_MS
    }
}

/// Reads the hashes that are still kept, each with the time when it was retired.
pub(super) async fn read(tx: &mut Tx, now_ms: i64) -> Result<Vec<(TokenHash, i64)>, sqlx::Error> {
    const SQL: &str = "SELECT token_hash, retired_at FROM retired_tokens WHERE retired_at > $1";
    let rows: Vec<(Vec<u8>, i64)> =
        on!(tx, |db| sqlx::query_as(SQL).bind(now_ms - KEPT_MS).fetch_all(db).await)?;
    Ok(rows.into_iter().filter_map(|(hash, at)| Some((TokenHash::restore(&hash)?, at))).collect())
}

/// Keeps the hash of a token that is about to be deleted or replaced, unless `next` is the hash of the same one; and
/// removes the hashes that were kept long enough.
pub(super) async fn retire(
    tx: &mut Tx,
    holder: Retiring<'_>,
    next: Option<&[u8]>,
    now_ms: i64,
) -> Result<(), sqlx::Error> {
    const USER: &str = "INSERT INTO retired_tokens (token_hash, retired_at)
        SELECT token_hash, $2 FROM users WHERE username = $1 AND token_hash <> $3
        ON CONFLICT (token_hash) DO UPDATE SET retired_at = excluded.retired_at";
    const CLIENT: &str = "INSERT INTO retired_tokens (token_hash, retired_at)
        SELECT token_hash, $2 FROM clients WHERE name = $1 AND token_hash <> $3
        ON CONFLICT (token_hash) DO UPDATE SET retired_at = excluded.retired_at";
    const SWEEP: &str = "DELETE FROM retired_tokens WHERE retired_at <= $1";
    let (sql, name) = match holder {
        Retiring::User(name) => (USER, name),
        Retiring::Client(name) => (CLIENT, name),
    };
    on!(&mut *tx, |db| {
        let query = sqlx::query(sql).bind(name.as_str()).bind(now_ms).bind(next.unwrap_or_default());
        query.execute(db).await.map(|_| ())
    })?;
    on!(tx, |db| sqlx::query(SWEEP).bind(now_ms - KEPT_MS).execute(db).await.map(|_| ()))
}
