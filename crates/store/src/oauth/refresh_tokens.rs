//! The table `refresh_tokens`: the tokens with which software gets new access tokens. Each use gives a successor. Real clients
//! refresh from several places with stale copies, so a used token works on for some time and gives the same successor.

use super::super::db::{Tx, on};
use super::super::{Store, StoreError};
use super::grants::{UserGrant, read_id};
use super::opaque::{NewOpaque, OpaqueDigest};
use model::{GrantId, Secret};

const PURPOSE: &str = "successor of refresh token";

/// What is left of a successor when it is wiped.
const NOTHING: &[u8] = &[];

/// How long a token that was used works in any case.
const OVERLAP_MS: i64 = 60 * 60 * 1000;

/// How many used tokens of a grant are remembered. Older ones are unknown, so their use does not end the grant.
const MOST: i64 = 500;

/// The grant of a refresh token, with what is known about its software.
#[derive(Debug)]
pub struct RefreshedGrant {
    pub grant: UserGrant,
    pub software: Secret,
}

/// What the use of a refresh token leads to.
#[derive(Debug)]
pub enum Rotation {
    /// It works, and this is the token that follows it.
    Successor(Secret),
    /// It is unknown, has expired, or its grant ended.
    Unknown,
    /// It was replaced long ago: somebody else has a copy of it, so the grant must end.
    Reused,
}

type Row = (String, i64, i64, String, Vec<u8>);

impl Store {
    /// The grant of a refresh token, also of one that was replaced.
    pub async fn refreshed_grant(&self, token: &OpaqueDigest) -> Result<Option<RefreshedGrant>, StoreError> {
        let mut tx = self.read().await?;
        let found = match read(&mut tx, token.as_str()).await? {
            Some((id, ..)) => self.read_user_grant(&mut tx, read_id(&id)?).await?,
            None => None,
        };
        tx.commit().await?;
        let Some((grant, sealed)) = found else { return Ok(None) };
        let software = self.open_software(&grant.id.to_string(), &sealed)?;
        Ok(Some(RefreshedGrant { grant, software }))
    }

    /// Uses a refresh token of a grant. `next` follows a token that was not used before, and expires at `expires_at_ms`.
    pub async fn rotate(
        &self,
        token: &OpaqueDigest,
        grant: GrantId,
        next: &NewOpaque,
        now_ms: i64,
        expires_at_ms: i64,
    ) -> Result<Rotation, StoreError> {
        // Locks the grant, so that two gateways which are asked at once agree, and in the order in which grants are deleted.
        const LOCK: &str = "UPDATE user_grants SET expires_at = expires_at WHERE id = $1";
        let id = grant.to_string();
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(LOCK).bind(&id).execute(db).await.map(|_| ()))?;
        let rotation = match read(&mut tx, token.as_str()).await? {
            Some((of, expires_at, rotated_at, ..)) if of == id && expires_at > now_ms && rotated_at == 0 => {
                self.replace(&mut tx, token, &id, next, now_ms, expires_at_ms).await?;
                Rotation::Successor(next.secret.clone())
            }
            Some((of, expires_at, rotated_at, successor, sealed)) if of == id && expires_at > now_ms => {
                let is_unused = matches!(read(&mut tx, &successor).await?, Some((_, _, 0, ..)));
                match is_unused || now_ms < rotated_at + OVERLAP_MS {
                    true => self.open_successor(token.as_str(), &sealed),
                    false => Rotation::Reused,
                }
            }
            Some(_) | None => Rotation::Unknown,
        };
        tx.commit().await?;
        Ok(rotation)
    }

    /// Stores the successor of a token that is used for the first time.
    async fn replace(
        &self,
        tx: &mut Tx,
        token: &OpaqueDigest,
        grant: &str,
        next: &NewOpaque,
        now_ms: i64,
        expires_at_ms: i64,
    ) -> Result<(), StoreError> {
        const REPLACE: &str =
            "UPDATE refresh_tokens SET rotated_at = $2, successor_digest = $3, successor = $4
            WHERE digest = $1";
        const PROLONG: &str = "UPDATE user_grants SET expires_at = $2 WHERE id = $1";
        const DROP: &str = "DELETE FROM refresh_tokens WHERE digest IN (SELECT digest FROM refresh_tokens
            WHERE grant_id = $1 AND rotated_at > 0 ORDER BY rotated_at DESC, digest LIMIT 10000 OFFSET $2)";
        let sealed = self.seal.seal(&purpose(token.as_str()), next.secret.expose().as_bytes());
        insert(tx, &next.digest, grant, expires_at_ms).await?;
        on!(&mut *tx, |db| {
            let query = sqlx::query(REPLACE).bind(token.as_str()).bind(now_ms).bind(next.digest.as_str());
            query.bind(sealed).execute(db).await.map(|_| ())
        })?;
        on!(&mut *tx, |db| {
            sqlx::query(PROLONG).bind(grant).bind(expires_at_ms).execute(db).await.map(|_| ())
        })?;
        Ok(on!(tx, |db| sqlx::query(DROP).bind(grant).bind(MOST).execute(db).await.map(|_| ()))?)
    }

    /// One that cannot be opened is lost, and the token before it with it. Its grant goes on.
    fn open_successor(&self, digest: &str, sealed: &[u8]) -> Rotation {
        let plain = self.seal.open(&purpose(digest), sealed).ok();
        match plain.as_deref().and_then(|plain| std::str::from_utf8(plain).ok()) {
            Some(successor) => Rotation::Successor(Secret::new(successor)),
            None => {
                tracing::warn!("the successor of a refresh token cannot be opened");
                Rotation::Unknown
            }
        }
    }
}

async fn read(tx: &mut Tx, digest: &str) -> Result<Option<Row>, sqlx::Error> {
    const SQL: &str =
        "SELECT grant_id, expires_at, rotated_at, successor_digest, successor FROM refresh_tokens
        WHERE digest = $1";
    on!(tx, |db| sqlx::query_as(SQL).bind(digest).fetch_optional(db).await)
}

/// Stores a token that was not used yet.
pub(super) async fn insert(
    tx: &mut Tx,
    token: &OpaqueDigest,
    grant: &str,
    expires_at_ms: i64,
) -> Result<(), sqlx::Error> {
    const SQL: &str =
        "INSERT INTO refresh_tokens (digest, grant_id, expires_at, rotated_at, successor_digest,
        successor) VALUES ($1, $2, $3, 0, '', $4)";
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(token.as_str()).bind(grant).bind(expires_at_ms).bind(NOTHING);
        query.execute(db).await.map(|_| ())
    })
}

/// Wipes successors that nobody gets any more, and forgets tokens that have expired.
pub(super) async fn clean(tx: &mut Tx, now_ms: i64) -> Result<(), sqlx::Error> {
    const WIPE: &str = "UPDATE refresh_tokens SET successor = $2 WHERE rotated_at > 0 AND rotated_at <= $1
        AND LENGTH(successor) > 0 AND NOT EXISTS (SELECT 1 FROM refresh_tokens AS next
        WHERE next.digest = refresh_tokens.successor_digest AND next.rotated_at = 0)";
    const FORGET: &str = "DELETE FROM refresh_tokens WHERE expires_at <= $1";
    let over = now_ms - OVERLAP_MS;
    on!(&mut *tx, |db| sqlx::query(WIPE).bind(over).bind(NOTHING).execute(db).await.map(|_| ()))?;
    on!(tx, |db| sqlx::query(FORGET).bind(now_ms).execute(db).await.map(|_| ()))
}

/// The purpose for which the successor of a token is sealed.
pub(in super::super) fn purpose(digest: &str) -> String {
    format!("{PURPOSE} {digest}")
}
