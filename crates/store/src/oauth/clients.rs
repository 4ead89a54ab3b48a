//! The table `oauth_clients`: software that an admin registered.

use super::super::db::on;
use super::super::{Store, StoreError};
use model::{AuditNote, Secret};

const PURPOSE: &str = "oauth client";

#[derive(Clone, Debug)]
pub struct OAuthClient {
    pub id: String,
    pub client_id: String,
    pub name: String,
    /// What is known about the software; sealed.
    pub software: Secret,
    pub created_at_ms: i64,
}

type Row = (String, String, String, Vec<u8>, i64);

impl Store {
    pub async fn insert_oauth_client(
        &self,
        client: &OAuthClient,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO oauth_clients (id, client_id, name, software, created_at)
            VALUES ($1, $2, $3, $4, $5)";
        let sealed = self.seal.seal(&purpose(&client.id), client.software.expose().as_bytes());
        let mut tx = self.noted_write(note).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(&client.id).bind(&client.client_id).bind(&client.name);
            query.bind(sealed).bind(client.created_at_ms).execute(db).await.map(|_| ())
        })?;
        tx.commit().await
    }

    /// All of them, the newest first.
    pub async fn oauth_clients(&self) -> Result<Vec<OAuthClient>, StoreError> {
        const SQL: &str = "SELECT id, client_id, name, software, created_at FROM oauth_clients
            ORDER BY created_at DESC, id";
        let mut tx = self.read().await?;
        let rows: Vec<Row> = on!(&mut tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
        tx.commit().await?;
        rows.into_iter().map(|row| self.read_oauth_client(row)).collect()
    }

    pub async fn oauth_client(&self, client_id: &str) -> Result<Option<OAuthClient>, StoreError> {
        const SQL: &str =
            "SELECT id, client_id, name, software, created_at FROM oauth_clients WHERE client_id = $1";
        let mut tx = self.read().await?;
        let row: Option<Row> =
            on!(&mut tx, |db| sqlx::query_as(SQL).bind(client_id).fetch_optional(db).await)?;
        tx.commit().await?;
        row.map(|row| self.read_oauth_client(row)).transpose()
    }

    /// Deletes one. Returns whether it existed.
    pub async fn delete_oauth_client(&self, id: &str, note: &AuditNote) -> Result<bool, StoreError> {
        const SQL: &str = "DELETE FROM oauth_clients WHERE id = $1";
        let mut tx = self.noted_write(note).await?;
        let deleted = on!(&mut tx, |db| {
            sqlx::query(SQL).bind(id).execute(db).await.map(|done| done.rows_affected() > 0)
        })?;
        match deleted {
            true => tx.commit().await?,
            false => tx.roll_back().await,
        }
        Ok(deleted)
    }

    fn read_oauth_client(&self, row: Row) -> Result<OAuthClient, StoreError> {
        let (id, client_id, name, sealed, created_at_ms) = row;
        let unreadable = || StoreError::Corrupt(format!("the OAuth client {id} cannot be opened"));
        let plain = self.seal.open(&purpose(&id), &sealed).map_err(|_| unreadable())?;
        let software = std::str::from_utf8(&plain).map(Secret::new).map_err(|_| unreadable())?;
        Ok(OAuthClient { id, client_id, name, software, created_at_ms })
    }
}

/// The purpose for which software is sealed.
pub(in super::super) fn purpose(id: &str) -> String {
    format!("{PURPOSE} {id}")
}
