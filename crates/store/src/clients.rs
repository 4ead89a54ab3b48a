//! The table `clients`: agents with their tokens and allow lists.

use super::changes::ChangedKind;
use super::db::{Tx, on};
use super::retired_tokens::{Retiring, retire};
use super::{Store, StoreError, allow_lists, rate_limits};
use model::{AuditNote, Client, HolderName, PrincipalId};

impl Store {
    /// Loads all clients, ordered by name.
    pub async fn load_clients(&self) -> Result<Vec<Client>, StoreError> {
        self.read_clients().await?.into_iter().collect()
    }

    /// Reads each client, or what is wrong with it.
    pub(super) async fn read_clients(&self) -> Result<Vec<Result<Client, StoreError>>, StoreError> {
        let mut tx = self.read().await?;
        let clients = self.read_clients_of(&mut tx, None).await?;
        tx.commit().await?;
        Ok(clients)
    }

    /// The same within a transaction, or only the client of a name.
    pub(super) async fn read_clients_of(
        &self,
        tx: &mut Tx,
        only: Option<&str>,
    ) -> Result<Vec<Result<Client, StoreError>>, StoreError> {
        const SQL: &str = "SELECT id, name, description, allow_list, is_custom_token, token_hash, token,
            token_id, rate_limit, jwt_subject FROM clients WHERE CAST($1 AS TEXT) IS NULL OR name = $1 ORDER BY name";
        type Row = (i64, String, String, String, i64, Vec<u8>, Vec<u8>, i64, Option<String>, Option<String>);
        let rows: Vec<Row> = on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
        let clients = rows.into_iter().map(|row| {
            let (
                principal,
                name,
                description,
                allow_list,
                is_custom,
                hash,
                token,
                id,
                rate_limit,
                jwt_subject,
            ) = row;
            let corrupt = |problem: String| StoreError::Corrupt(format!("client \"{name}\": {problem}"));
            Ok(Client {
                id: PrincipalId(principal.cast_unsigned()),
                name: HolderName::parse(&name).map_err(corrupt)?,
                description,
                allow_list: allow_lists::read(&allow_list).map_err(corrupt)?,
                token: self.tokens.read((hash, token, id)).map_err(corrupt)?,
                is_custom_token: is_custom != 0,
                rate_limit: rate_limits::read(rate_limit.as_deref()).map_err(corrupt)?,
                jwt_subject,
            })
        });
        Ok(clients.collect())
    }

    /// Stores a new or changed client.
    pub async fn put_client(&self, client: &Client, now_ms: i64, note: &AuditNote) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO clients (name, description, allow_list, is_custom_token, token_hash,
            token, token_id, created_at, updated_at, id, rate_limit, jwt_subject)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11)
            ON CONFLICT (name) DO UPDATE SET description = excluded.description,
            allow_list = excluded.allow_list, is_custom_token = excluded.is_custom_token,
            token_hash = excluded.token_hash, token = excluded.token, token_id = excluded.token_id,
            updated_at = excluded.updated_at, rate_limit = excluded.rate_limit,
            jwt_subject = excluded.jwt_subject";
        let (hash, sealed, id) = self.tokens.to_columns(&client.token);
        let mut tx = self.change(note).await?;
        retire(&mut tx, Retiring::Client(&client.name), Some(&hash), now_ms).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(client.name.as_str()).bind(&client.description);
            let query = query
                .bind(allow_lists::to_column(&client.allow_list))
                .bind(i64::from(client.is_custom_token));
            let query = query.bind(hash).bind(sealed).bind(id).bind(now_ms).bind(client.id.0.cast_signed());
            let query = query.bind(rate_limits::to_column(client.rate_limit)).bind(&client.jwt_subject);
            query.execute(db).await.map(|_| ())
        })?;
        tx.note(ChangedKind::Client, client.name.as_str()).await?;
        tx.commit().await
    }

    pub async fn delete_client(
        &self,
        name: &HolderName,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM clients WHERE name = $1";
        let mut tx = self.change(note).await?;
        retire(&mut tx, Retiring::Client(name), None, now_ms).await?;
        on!(&mut tx, |db| sqlx::query(SQL).bind(name.as_str()).execute(db).await.map(|_| ()))?;
        tx.note(ChangedKind::Client, name.as_str()).await?;
        tx.commit().await
    }
}
