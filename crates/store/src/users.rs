//! The table `users`: people with their roles and tokens. Those of an identity provider have a table of their own; the
//! methods here are for both.

use super::changes::{ChangeTx, ChangedKind};
use super::db::{Tx, on};
use super::retired_tokens::{Retiring, retire};
use super::tokens::Columns;
use super::{Store, StoreError, allow_lists, idp_tokens, idp_users, oauth, rate_limits, settings};
use model::{AuditNote, HolderName, Mode, PrincipalId, Role, User};

impl Store {
    /// Loads all users.
    pub async fn load_users(&self) -> Result<Vec<User>, StoreError> {
        self.read_users().await?.into_iter().collect()
    }

    /// Reads each user, or what is wrong with it.
    pub(super) async fn read_users(&self) -> Result<Vec<Result<User, StoreError>>, StoreError> {
        let mut tx = self.read().await?;
        let users = self.read_all_users_of(&mut tx).await?;
        tx.commit().await?;
        Ok(users)
    }

    /// The same within a transaction.
    pub(super) async fn read_all_users_of(
        &self,
        tx: &mut Tx,
    ) -> Result<Vec<Result<User, StoreError>>, StoreError> {
        let mut users = self.read_users_of(tx, None).await?;
        users.extend(idp_users::read_of(tx, None).await?);
        Ok(users)
    }

    /// Reads the users with a token within a transaction, or only the one of a name.
    pub(super) async fn read_users_of(
        &self,
        tx: &mut Tx,
        only: Option<&str>,
    ) -> Result<Vec<Result<User, StoreError>>, StoreError> {
        const SQL: &str = "SELECT id, username, role, token_hash, token, token_id, rate_limit, allow_list,
            is_disabled FROM users WHERE CAST($1 AS TEXT) IS NULL OR username = $1 ORDER BY username";
        type Row = (i64, String, String, Vec<u8>, Vec<u8>, i64, Option<String>, String, i64);
        let rows: Vec<Row> = on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
        let users = rows.into_iter().map(|row| {
            let (principal, name, role, hash, token, id, rate_limit, allow_list, is_disabled) = row;
            let corrupt = |problem: String| StoreError::Corrupt(format!("user \"{name}\": {problem}"));
            Ok(User {
                id: PrincipalId(principal.cast_unsigned()),
                username: HolderName::parse(&name).map_err(corrupt)?,
                role: Role::parse(&role).ok_or_else(|| corrupt("its role is unknown".into()))?,
                token: Some(self.tokens.read((hash, token, id)).map_err(corrupt)?),
                rate_limit: rate_limits::read(rate_limit.as_deref()).map_err(corrupt)?,
                allow_list: allow_lists::read(&allow_list).map_err(corrupt)?,
                is_disabled: is_disabled != 0,
                idp: None,
            })
        });
        Ok(users.collect())
    }

    /// Stores the mode and the first user together: a database has both or neither. Stores nothing if it has both already, and
    /// returns whether it did not.
    pub async fn initialize(
        &self,
        mode: Mode,
        first: &User,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<bool, StoreError> {
        let mut tx = self.change(note).await?;
        if !settings::claim_mode(&mut tx, mode.as_str()).await? {
            tx.roll_back().await;
            return Ok(false);
        }
        self.put(&mut tx, first, now_ms).await?;
        tx.commit().await.map(|()| true)
    }

    /// Stores a new or changed user whose name stays the same.
    pub async fn put_user(&self, user: &User, now_ms: i64, note: &AuditNote) -> Result<(), StoreError> {
        let mut tx = self.change(note).await?;
        self.put(&mut tx, user, now_ms).await?;
        tx.commit().await
    }

    /// Stores a changed user, who may have a new name; `name` is the old one.
    pub async fn change_user(
        &self,
        name: &HolderName,
        user: &User,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const RENAME: &str = "UPDATE users SET username = $2 WHERE username = $1";
        let (kind, rename) = match user.idp {
            Some(_) => (ChangedKind::IdpUser, idp_users::RENAME),
            None => (ChangedKind::User, RENAME),
        };
        let mut tx = self.change(note).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(rename).bind(name.as_str()).bind(user.username.as_str());
            query.execute(db).await.map(|_| ())
        })?;
        tx.note(kind, name.as_str()).await?;
        self.put(&mut tx, user, now_ms).await?;
        if user.is_disabled {
            oauth::end_user(&mut tx, user.id).await?;
        }
        tx.commit().await
    }

    pub async fn delete_user(&self, user: &User, now_ms: i64, note: &AuditNote) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM users WHERE username = $1";
        let name = &user.username;
        let (kind, sql) = match user.idp {
            Some(_) => (ChangedKind::IdpUser, idp_users::DELETE),
            None => (ChangedKind::User, SQL),
        };
        let mut tx = self.change(note).await?;
        retire(&mut tx, Retiring::User(name), None, now_ms).await?;
        oauth::forget_user(&mut tx, user.id).await?;
        idp_tokens::forget(&mut tx, user.id).await?;
        on!(&mut tx, |db| sqlx::query(sql).bind(name.as_str()).execute(db).await.map(|_| ()))?;
        tx.note(kind, name.as_str()).await?;
        tx.commit().await
    }

    /// When each user was last seen, by id.
    pub async fn load_last_seen(&self) -> Result<Vec<(PrincipalId, i64)>, StoreError> {
        const SQL: &str = "SELECT id, last_seen_at FROM users WHERE last_seen_at IS NOT NULL
            UNION ALL SELECT id, last_seen_at FROM idp_users WHERE last_seen_at IS NOT NULL";
        let mut tx = self.read().await?;
        let rows: Vec<(i64, i64)> = on!(&mut tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|(id, at)| (PrincipalId(id.cast_unsigned()), at)).collect())
    }

    /// Stores when users were last seen, unless a later time is stored already.
    pub async fn put_last_seen(&self, seen: &[(PrincipalId, i64)]) -> Result<(), StoreError> {
        const USER: &str = "UPDATE users SET last_seen_at = $2
            WHERE id = $1 AND (last_seen_at IS NULL OR last_seen_at < $2)";
        const OF_IDP: &str = "UPDATE idp_users SET last_seen_at = $2
            WHERE id = $1 AND (last_seen_at IS NULL OR last_seen_at < $2)";
        let mut tx = self.write().await?;
        for (id, at) in seen {
            for sql in [USER, OF_IDP] {
                on!(&mut tx, |db| {
                    let query = sqlx::query(sql).bind(id.0.cast_signed()).bind(at);
                    query.execute(db).await.map(|_| ())
                })?;
            }
        }
        tx.commit().await
    }

    /// Stores a user under its current name.
    async fn put(&self, tx: &mut ChangeTx, user: &User, now_ms: i64) -> Result<(), StoreError> {
        match (&user.idp, &user.token) {
            (Some(account), _) => {
                idp_users::put(tx, user, account, now_ms).await?;
                tx.note(ChangedKind::IdpUser, user.username.as_str()).await?;
            }
            (None, Some(token)) => {
                let columns = self.tokens.to_columns(token);
                retire(tx, Retiring::User(&user.username), Some(&columns.0), now_ms).await?;
                put(tx, user, columns, now_ms).await?;
                tx.note(ChangedKind::User, user.username.as_str()).await?;
            }
            (None, None) => {
                let problem = format!("user \"{}\" has neither a token nor an IdP", user.username);
                return Err(StoreError::Corrupt(problem));
            }
        }
        Ok(())
    }
}

async fn put(tx: &mut Tx, user: &User, token: Columns, now_ms: i64) -> Result<(), sqlx::Error> {
    const SQL: &str =
        "INSERT INTO users (username, role, token_hash, token, token_id, created_at, updated_at, id, rate_limit,
        allow_list, is_disabled)
        VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8, $9, $10) ON CONFLICT (username) DO UPDATE SET
        role = excluded.role, token_hash = excluded.token_hash, token = excluded.token,
        token_id = excluded.token_id, updated_at = excluded.updated_at, rate_limit = excluded.rate_limit,
        allow_list = excluded.allow_list, is_disabled = excluded.is_disabled";
    let (hash, sealed, id) = token;
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(user.username.as_str()).bind(user.role.as_str());
        let query = query.bind(hash).bind(sealed).bind(id).bind(now_ms).bind(user.id.0.cast_signed());
        let query = query.bind(rate_limits::to_column(user.rate_limit));
        let query = query.bind(allow_lists::to_column(&user.allow_list)).bind(i64::from(user.is_disabled));
        query.execute(db).await.map(|_| ())
    })
}
