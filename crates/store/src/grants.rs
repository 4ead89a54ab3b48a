//! The table `oauth_grants`: the OAuth grant of each server. A grant is sealed as a whole.

use std::collections::HashMap;

use super::changes::ChangedKind;
use super::db::{Tx, on};
use super::{Store, StoreError};
use model::{Secret, ServerName};
use seal::Seal;

const PURPOSE: &str = "oauth grant";

/// What happens to a server's grant when the server is stored.
pub enum GrantChange<'a> {
    /// Nothing changes, whether or not there is a grant.
    Keep,
    Put(&'a str, &'a Secret),
    Drop,
}

impl Store {
    /// Loads the grants by server. A grant that cannot be opened is omitted: its server must be authorized again.
    pub async fn load_grants(&self) -> Result<HashMap<String, Secret>, StoreError> {
        Ok(readable(self.read_grants().await?))
    }

    /// Reads the grant of each server that has one; `None` if it cannot be opened.
    pub(super) async fn read_grants(&self) -> Result<Vec<(String, Option<Secret>)>, StoreError> {
        let mut tx = self.read().await?;
        let grants = self.read_grants_of(&mut tx, None).await?;
        tx.commit().await?;
        Ok(grants)
    }

    /// The same within a transaction, or only the grant of one server.
    pub(super) async fn read_grants_of(
        &self,
        tx: &mut Tx,
        only: Option<&str>,
    ) -> Result<Vec<(String, Option<Secret>)>, StoreError> {
        const SQL: &str = "SELECT server, content FROM oauth_grants
            WHERE CAST($1 AS TEXT) IS NULL OR server = $1 ORDER BY server";
        let rows: Vec<(String, Vec<u8>)> = on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
        let open = |(server, sealed): (String, Vec<u8>)| {
            let grant = open(&self.seal, &server, &sealed);
            (server, grant)
        };
        Ok(rows.into_iter().map(open).collect())
    }

    /// Reserves the renewal of a grant for this gateway until a time. Returns whether it did, and the grant as it is stored:
    /// another gateway may have renewed it.
    pub async fn claim_renewal(
        &self,
        server: &ServerName,
        lineage: &str,
        until_ms: i64,
        now_ms: i64,
    ) -> Result<(bool, Option<Secret>), StoreError> {
        const SQL: &str = "UPDATE oauth_grants SET renewing_until = $3
            WHERE server = $1 AND lineage = $2 AND renewing_until <= $4";
        let mut tx = self.write().await?;
        let claimed = on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(server.as_str()).bind(lineage).bind(until_ms).bind(now_ms);
            query.execute(db).await.map(|done| done.rows_affected())
        })?;
        let stored = self.read_grants_of(&mut tx, Some(server.as_str())).await?.pop();
        tx.commit().await?;
        Ok((claimed > 0, stored.and_then(|(_, grant)| grant)))
    }

    /// Lets another gateway renew a grant.
    pub async fn release_renewal(&self, server: &ServerName) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE oauth_grants SET renewing_until = 0 WHERE server = $1";
        let mut tx = self.write().await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(server.as_str()).execute(db).await.map(|_| ()))?;
        tx.commit().await
    }

    /// Stores a renewed grant. Returns false if the server has a different grant by now, or is gone.
    pub async fn renew_grant(
        &self,
        server: &ServerName,
        lineage: &str,
        grant: &Secret,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        const SQL: &str = "UPDATE oauth_grants SET content = $3, updated_at = $4, renewing_until = 0
            WHERE server = $1 AND lineage = $2";
        let sealed = seal(&self.seal, server.as_str(), grant);
        let mut tx = self.own_change().await?;
        let renewed = on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(server.as_str()).bind(lineage).bind(sealed).bind(now_ms);
            query.execute(db).await.map(|done| done.rows_affected())
        })?;
        tx.note(ChangedKind::Grant, server.as_str()).await?;
        tx.commit().await?;
        Ok(renewed > 0)
    }
}

/// The grants that could be opened, by server; the others are logged.
pub(super) fn readable(grants: Vec<(String, Option<Secret>)>) -> HashMap<String, Secret> {
    let readable = |(server, grant): (String, Option<Secret>)| {
        if grant.is_none() {
            tracing::warn!(server, "the grant of a server cannot be opened");
        }
        Some((server, grant?))
    };
    grants.into_iter().filter_map(readable).collect()
}

pub(super) async fn change(
    tx: &mut Tx,
    key: &Seal,
    server: &ServerName,
    change: GrantChange<'_>,
    now_ms: i64,
) -> Result<(), sqlx::Error> {
    const PUT: &str =
        "INSERT INTO oauth_grants (server, lineage, content, updated_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (server) DO UPDATE SET lineage = excluded.lineage, content = excluded.content,
        updated_at = excluded.updated_at";
    const DROP: &str = "DELETE FROM oauth_grants WHERE server = $1";
    match change {
        GrantChange::Keep => Ok(()),
        GrantChange::Put(lineage, grant) => {
            let sealed = seal(key, server.as_str(), grant);
            on!(tx, |db| {
                let query = sqlx::query(PUT).bind(server.as_str()).bind(lineage).bind(sealed).bind(now_ms);
                query.execute(db).await.map(|_| ())
            })
        }
        GrantChange::Drop => {
            on!(tx, |db| sqlx::query(DROP).bind(server.as_str()).execute(db).await.map(|_| ()))
        }
    }
}

/// The purpose for which the grant of a server is sealed. The server is part of it: otherwise a grant moved to another row
/// would send one server's token to another.
pub(super) fn purpose(server: &str) -> String {
    format!("{PURPOSE} of {server}")
}

fn seal(seal: &Seal, server: &str, grant: &Secret) -> Vec<u8> {
    seal.seal(&purpose(server), grant.expose().as_bytes())
}

fn open(seal: &Seal, server: &str, sealed: &[u8]) -> Option<Secret> {
    let plain = seal.open(&purpose(server), sealed).ok()?;
    std::str::from_utf8(&plain).ok().map(Secret::new)
}
