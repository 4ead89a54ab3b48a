//! The table `user_grants`: software that acts for a user.

use super::super::db::{Tx, on};
use super::super::{Store, StoreError, settings};
use super::{AtEpoch, OpaqueDigest, codes, consents, note_user, refresh_tokens};
use model::{AuditNote, GrantId, PrincipalId, Reach, Secret};

const PURPOSE: &str = "user grant";

/// How many grants a user may have; the least recently used ones end.
const MOST: i64 = 200;

/// A grant that a code gives.
pub struct NewUserGrant<'a> {
    pub id: GrantId,
    pub user: PrincipalId,
    pub client_id: &'a str,
    pub client_name: &'a str,
    /// What is known about the software; sealed.
    pub software: &'a Secret,
    pub reach: &'a Reach,
    /// Its first refresh token, and when that expires.
    pub refresh: &'a OpaqueDigest,
    pub expires_at_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserGrant {
    pub id: GrantId,
    pub user: PrincipalId,
    pub client_id: String,
    pub client_name: String,
    pub reach: Reach,
    pub created_at_ms: i64,
    pub last_used_at_ms: Option<i64>,
}

/// What the first use of a code changed.
#[derive(Debug)]
pub struct MadeGrant {
    pub epoch: i64,
    /// Grants of the same user that ended, since there were too many.
    pub ended: Vec<GrantId>,
}

impl Store {
    /// Uses a code, which gives a grant. `None` if the code was used before, has expired or does not exist.
    pub async fn redeem_code(
        &self,
        code: &OpaqueDigest,
        grant: &NewUserGrant<'_>,
        note: &AuditNote,
    ) -> Result<Option<MadeGrant>, StoreError> {
        const SQL: &str = "INSERT INTO user_grants (id, user_id, client_id, client_name, software, reach,
            created_at, last_used_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8)";
        let (id, user, now) = (grant.id.to_string(), grant.user.0.cast_signed(), note.at_ms);
        let software = self.seal.seal(&purpose(&id), grant.software.expose().as_bytes());
        let mut tx = self.change(note).await?;
        if !codes::claim(&mut tx, code, grant.id, now).await? {
            tx.roll_back().await;
            return Ok(None);
        }
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(&id).bind(user).bind(grant.client_id).bind(grant.client_name);
            let query = query.bind(software).bind(grant.reach.as_str()).bind(now).bind(grant.expires_at_ms);
            query.execute(db).await.map(|_| ())
        })?;
        refresh_tokens::insert(&mut tx, grant.refresh, &id, grant.expires_at_ms).await?;
        let ended = end_least_used(&mut tx, grant.user, &id).await?;
        note_user(&mut tx, grant.user).await?;
        let epoch = tx.epoch();
        tx.commit().await?;
        Ok(Some(MadeGrant { epoch, ended }))
    }

    /// The user of a grant, if it exists.
    pub async fn held_grant(&self, id: GrantId) -> Result<AtEpoch<Option<PrincipalId>>, StoreError> {
        const SQL: &str = "SELECT user_id FROM user_grants WHERE id = $1";
        let mut tx = self.read().await?;
        let epoch = settings::epoch(&mut tx).await?;
        let row: Option<i64> =
            on!(&mut tx, |db| sqlx::query_scalar(SQL).bind(id.to_string()).fetch_optional(db).await)?;
        tx.commit().await?;
        Ok(AtEpoch { epoch, value: row.map(|user| PrincipalId(user.cast_unsigned())) })
    }

    pub async fn user_grant(&self, id: GrantId) -> Result<Option<UserGrant>, StoreError> {
        let mut tx = self.read().await?;
        let found = self.read_user_grant(&mut tx, id).await?;
        tx.commit().await?;
        Ok(found.map(|(grant, _)| grant))
    }

    /// Reads a grant with its sealed software.
    pub(super) async fn read_user_grant(
        &self,
        tx: &mut Tx,
        id: GrantId,
    ) -> Result<Option<(UserGrant, Vec<u8>)>, StoreError> {
        const SQL: &str =
            "SELECT id, user_id, client_id, client_name, reach, created_at, last_used_at, software
            FROM user_grants WHERE id = $1";
        type WithSoftware = (String, i64, String, String, String, i64, i64, Vec<u8>);
        let row: Option<WithSoftware> =
            on!(tx, |db| sqlx::query_as(SQL).bind(id.to_string()).fetch_optional(db).await)?;
        let Some((id, user, client_id, name, reach, created, used, software)) = row else { return Ok(None) };
        Ok(Some((read((id, user, client_id, name, reach, created, used))?, software)))
    }

    /// The grants of a user, or of all users, the newest first.
    pub async fn user_grants(&self, of: Option<PrincipalId>) -> Result<Vec<UserGrant>, StoreError> {
        const SQL: &str = "SELECT id, user_id, client_id, client_name, reach, created_at, last_used_at
            FROM user_grants WHERE CAST($1 AS BIGINT) IS NULL OR user_id = $1 ORDER BY created_at DESC, id";
        let mut tx = self.read().await?;
        let of = of.map(|user| user.0.cast_signed());
        let rows: Vec<Row> = on!(&mut tx, |db| sqlx::query_as(SQL).bind(of).fetch_all(db).await)?;
        tx.commit().await?;
        rows.into_iter().map(read).collect()
    }

    /// The grants of a client.
    pub async fn grants_of_client(&self, client_id: &str) -> Result<Vec<UserGrant>, StoreError> {
        const SQL: &str = "SELECT id, user_id, client_id, client_name, reach, created_at, last_used_at
            FROM user_grants WHERE client_id = $1 ORDER BY id";
        let mut tx = self.read().await?;
        let rows: Vec<Row> = on!(&mut tx, |db| sqlx::query_as(SQL).bind(client_id).fetch_all(db).await)?;
        tx.commit().await?;
        rows.into_iter().map(read).collect()
    }

    /// Ends a grant. Returns the epoch of the change; `None` if it had ended before.
    pub async fn end_grant(
        &self,
        grant: &UserGrant,
        consent: ConsentOfGrant,
        note: &AuditNote,
    ) -> Result<Option<i64>, StoreError> {
        let mut tx = self.change(note).await?;
        if !delete(&mut tx, &grant.id.to_string()).await? {
            tx.roll_back().await;
            return Ok(None);
        }
        match consent {
            ConsentOfGrant::Keep => {}
            ConsentOfGrant::Forget => consents::forget(&mut tx, grant.user, &grant.client_id).await?,
        }
        note_user(&mut tx, grant.user).await?;
        let epoch = tx.epoch();
        tx.commit().await?;
        Ok(Some(epoch))
    }

    /// The ids of grants whose software cannot be opened.
    pub(in super::super) async fn read_user_grants(
        &self,
    ) -> Result<Vec<Result<GrantId, StoreError>>, StoreError> {
        const SQL: &str = "SELECT id, software FROM user_grants ORDER BY id";
        let mut tx = self.read().await?;
        let rows: Vec<(String, Vec<u8>)> = on!(&mut tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
        tx.commit().await?;
        let readable = |(id, sealed): (String, Vec<u8>)| {
            self.open_software(&id, &sealed)?;
            read_id(&id)
        };
        Ok(rows.into_iter().map(readable).collect())
    }

    pub(super) fn open_software(&self, id: &str, sealed: &[u8]) -> Result<Secret, StoreError> {
        let unreadable = || StoreError::Corrupt(format!("the software of grant {id} cannot be opened"));
        let plain = self.seal.open(&purpose(id), sealed).map_err(|_| unreadable())?;
        std::str::from_utf8(&plain).map(Secret::new).map_err(|_| unreadable())
    }
}

/// Reads all grants, each with its user.
pub(in super::super) async fn read_held(tx: &mut Tx) -> Result<Vec<(GrantId, PrincipalId)>, StoreError> {
    const SQL: &str = "SELECT id, user_id FROM user_grants ORDER BY id";
    let rows: Vec<(String, i64)> = on!(tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
    let held = |(id, user): (String, i64)| Ok((read_id(&id)?, PrincipalId(user.cast_unsigned())));
    rows.into_iter().map(held).collect()
}

/// What becomes of the consent that led to a grant, when the grant ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsentOfGrant {
    Keep,
    /// The user is asked again.
    Forget,
}

type Row = (String, i64, String, String, String, i64, i64);

fn read(
    (id, user, client_id, client_name, reach, created_at_ms, used): Row,
) -> Result<UserGrant, StoreError> {
    Ok(UserGrant {
        id: read_id(&id)?,
        user: PrincipalId(user.cast_unsigned()),
        client_id,
        client_name,
        reach: Reach::parse(&reach),
        created_at_ms,
        last_used_at_ms: (used > 0).then_some(used),
    })
}

pub(super) fn read_id(text: &str) -> Result<GrantId, StoreError> {
    GrantId::parse(text).ok_or_else(|| StoreError::Corrupt("a grant has a malformed id".into()))
}

/// Deletes a grant with its refresh tokens. Returns whether it existed.
pub(super) async fn delete(tx: &mut Tx, id: &str) -> Result<bool, sqlx::Error> {
    const SQL: &str = "DELETE FROM user_grants WHERE id = $1";
    on!(tx, |db| sqlx::query(SQL).bind(id).execute(db).await.map(|done| done.rows_affected() > 0))
}

/// Ends the grants of a user that are too many, but not the newest one.
async fn end_least_used(tx: &mut Tx, user: PrincipalId, newest: &str) -> Result<Vec<GrantId>, StoreError> {
    const SQL: &str = "SELECT id FROM user_grants WHERE user_id = $1 AND id <> $2
        ORDER BY CASE WHEN last_used_at > created_at THEN last_used_at ELSE created_at END DESC, id
        LIMIT 10000 OFFSET $3";
    let rows: Vec<String> = on!(&mut *tx, |db| {
        let query = sqlx::query_scalar(SQL).bind(user.0.cast_signed()).bind(newest).bind(MOST - 1);
        query.fetch_all(db).await
    })?;
    let mut ended = Vec::new();
    for id in rows {
        delete(tx, &id).await?;
        ended.push(read_id(&id)?);
    }
    Ok(ended)
}

/// The purpose for which the software of a grant is sealed.
pub(in super::super) fn purpose(id: &str) -> String {
    format!("{PURPOSE} {id}")
}
