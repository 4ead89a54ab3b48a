//! The table `users`: people with their roles and tokens.

use super::changes::ChangedKind;
use super::db::{Tx, on};
use super::retired_tokens::{Retiring, retire};
use super::tokens::Columns;
use super::{Store, StoreError, rate_limits, settings};
use model::{AuditNote, HolderName, Mode, PrincipalId, Role, User};

impl Store {
    /// Loads all users, ordered by name.
    pub async fn load_users(&self) -> Result<Vec<User>, StoreError> {
        self.read_users().await?.into_iter().collect()
    }

    /// Reads each user, or what is wrong with it.
    pub(super) async fn read_users(&self) -> Result<Vec<Result<User, StoreError>>, StoreError> {
        let mut tx = self.read().await?;
        let users = self.read_users_of(&mut tx, None).await?;
        tx.commit().await?;
        Ok(users)
    }

    /// The same within a transaction, or only the user of a name.
    pub(super) async fn read_users_of(
        &self,
        tx: &mut Tx,
        only: Option<&str>,
    ) -> Result<Vec<Result<User, StoreError>>, StoreError> {
        const SQL: &str = "SELECT id, username, role, token_hash, token, token_id, rate_limit FROM users
            WHERE CAST($1 AS TEXT) IS NULL OR username = $1 ORDER BY username";
        type Row = (i64, String, String, Vec<u8>, Vec<u8>, i64, Option<String>);
        let rows: Vec<Row> = on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
        let users = rows.into_iter().map(|(principal, name, role, hash, token, id, rate_limit)| {
            let corrupt = |problem: String| StoreError::Corrupt(format!("user \"{name}\": {problem}"));
            Ok(User {
                id: PrincipalId(principal.cast_unsigned()),
                username: HolderName::parse(&name).map_err(corrupt)?,
                role: Role::parse(&role).ok_or_else(|| corrupt("its role is unknown".into()))?,
                token: self.tokens.read((hash, token, id)).map_err(corrupt)?,
                rate_limit: rate_limits::read(rate_limit.as_deref()).map_err(corrupt)?,
            })
        });
        Ok(users.collect())
    }

    /// Stores the mode and the first user together: a database has both or neither.
    pub async fn initialize(
        &self,
        mode: Mode,
        first: &User,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        let mut tx = self.change(note).await?;
        settings::set_mode(&mut tx, mode.as_str()).await?;
        put(&mut tx, first, self.tokens.to_columns(&first.token), now_ms).await?;
        tx.note(ChangedKind::User, first.username.as_str()).await?;
        tx.commit().await
    }

    /// Stores a new or changed user whose name stays the same.
    pub async fn put_user(&self, user: &User, now_ms: i64, note: &AuditNote) -> Result<(), StoreError> {
        let columns = self.tokens.to_columns(&user.token);
        let mut tx = self.change(note).await?;
        retire(&mut tx, Retiring::User(&user.username), Some(&columns.0), now_ms).await?;
        put(&mut tx, user, columns, now_ms).await?;
        tx.note(ChangedKind::User, user.username.as_str()).await?;
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
        let columns = self.tokens.to_columns(&user.token);
        let mut tx = self.change(note).await?;
        retire(&mut tx, Retiring::User(name), Some(&columns.0), now_ms).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(RENAME).bind(name.as_str()).bind(user.username.as_str());
            query.execute(db).await.map(|_| ())
        })?;
        put(&mut tx, user, columns, now_ms).await?;
        tx.note(ChangedKind::User, name.as_str()).await?;
        tx.note(ChangedKind::User, user.username.as_str()).await?;
        tx.commit().await
    }

    pub async fn delete_user(
        &self,
        name: &HolderName,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM users WHERE username = $1";
        let mut tx = self.change(note).await?;
        retire(&mut tx, Retiring::User(name), None, now_ms).await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(name.as_str()).execute(db).await.map(|_| ()))?;
        tx.note(ChangedKind::User, name.as_str()).await?;
        tx.commit().await
    }
}

async fn put(tx: &mut Tx, user: &User, token: Columns, now_ms: i64) -> Result<(), sqlx::Error> {
    const SQL: &str =
        "INSERT INTO users (username, role, token_hash, token, token_id, created_at, updated_at, id, rate_limit)
        VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8) ON CONFLICT (username) DO UPDATE SET role = excluded.role,
        token_hash = excluded.token_hash, token = excluded.token, token_id = excluded.token_id,
        updated_at = excluded.updated_at, rate_limit = excluded.rate_limit";
    let (hash, sealed, id) = token;
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(user.username.as_str()).bind(user.role.as_str());
        let query = query.bind(hash).bind(sealed).bind(id).bind(now_ms).bind(user.id.0.cast_signed());
        let query = query.bind(rate_limits::to_column(user.rate_limit));
        query.execute(db).await.map(|_| ())
    })
}
