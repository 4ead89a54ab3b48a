//! The table `servers`: the configuration of each server, sealed as a whole, and its description of itself. Its lists
//! are in `catalogs`, its disabled items in `disabled`.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::catalogs::{self, StoredLists};
use super::changes::{ChangeTx, ChangedKind};
use super::db::{Tx, on};
use super::disabled::{self, Disabled, DisabledKind};
use super::grants::{self, GrantChange};
use super::{Store, StoreError, quotas, server_config};
use model::{AuditNote, Flags, Offering, Registration, ServerName};
use seal::Seal;

#[derive(Clone, Debug)]
pub struct StoredServer {
    pub registration: Registration,
    pub offering: Offering,
    pub created_at_ms: i64,
    /// When its configuration or flags last changed.
    pub updated_at_ms: i64,
    /// When its lists were last stored or confirmed; `None` if it never responded.
    pub discovered_at_ms: Option<i64>,
}

impl Store {
    /// Loads all servers, ordered by name. A server that cannot be read is an error that names it; it is never omitted.
    pub async fn load_servers(&self) -> Result<Vec<StoredServer>, StoreError> {
        self.read_servers().await?.into_iter().collect()
    }

    /// Reads each server, or what is wrong with it.
    pub(super) async fn read_servers(&self) -> Result<Vec<Result<StoredServer, StoreError>>, StoreError> {
        let mut tx = self.read().await?;
        let servers = self.read_servers_of(&mut tx, None).await?;
        tx.commit().await?;
        Ok(servers)
    }

    /// The same within a transaction, or only the server of a name.
    pub(super) async fn read_servers_of(
        &self,
        tx: &mut Tx,
        only: Option<&str>,
    ) -> Result<Vec<Result<StoredServer, StoreError>>, StoreError> {
        const SQL: &str =
            "SELECT name, config, enabled, protocol_version, server_info, capabilities, instructions,
            ttl_ms, is_private, created_at, updated_at, discovered_at, meta FROM servers
            WHERE CAST($1 AS TEXT) IS NULL OR name = $1 ORDER BY name";
        let rows: Vec<ServerRow> = on!(&mut *tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
        let mut lists = catalogs::load(tx, only).await?;
        let mut disabled = disabled::load(tx, only).await?;
        let servers = rows.into_iter().map(|row| {
            let name = row.0.clone();
            let lists = lists.remove(&name).unwrap_or_else(|| Ok(StoredLists::default()));
            let disabled = disabled.remove(&name).unwrap_or_else(|| Ok(Disabled::default()));
            let assembled = lists.and_then(|lists| assemble(&self.seal, row, lists, disabled?));
            assembled.map_err(|problem| StoreError::Corrupt(format!("server \"{name}\": {problem}")))
        });
        Ok(servers.collect())
    }

    /// Stores a new server, or replaces an existing one, which keeps the time of its creation.
    pub async fn replace_server(
        &self,
        registration: &Registration,
        offering: &Offering,
        grant: GrantChange<'_>,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const SQL: &str = "INSERT INTO servers (name, config, enabled, protocol_version, is_private,
            created_at, updated_at) VALUES ($1, $2, $3, '', 0, $4, $4)
            ON CONFLICT (name) DO UPDATE SET config = excluded.config, enabled = excluded.enabled,
            updated_at = excluded.updated_at";
        let mut tx = self.change(note).await?;
        let config = server_config::seal(&self.seal, registration);
        let (name, enabled) = (registration.config.name.as_str(), i64::from(registration.flags.enabled));
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(name).bind(config).bind(enabled).bind(now_ms);
            query.execute(db).await.map(|_| ())
        })?;
        let changes_grant = !matches!(grant, GrantChange::Keep);
        grants::change(&mut tx, &self.seal, &registration.config.name, grant, now_ms).await?;
        if changes_grant {
            tx.note(ChangedKind::Grant, name).await?;
        }
        complete(tx, registration, offering, now_ms).await
    }

    /// Stores the lists of a server, without an entry of the audit: a server may change them at any time.
    pub async fn update_offering(
        &self,
        name: &ServerName,
        offering: &Offering,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.own_change().await?;
        describe(&mut tx, name, offering, now_ms).await?;
        catalogs::replace(&mut tx, name, offering).await?;
        tx.note(ChangedKind::Server, name.as_str()).await?;
        tx.commit().await
    }

    /// Notes that a server still offers what is stored, lists included.
    pub async fn confirm_offering(
        &self,
        name: &ServerName,
        offering: &Offering,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.own_change().await?;
        describe(&mut tx, name, offering, now_ms).await?;
        tx.note(ChangedKind::Server, name.as_str()).await?;
        tx.commit().await
    }

    pub async fn set_enabled(
        &self,
        name: &ServerName,
        enabled: bool,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE servers SET enabled = $2 WHERE name = $1";
        let mut tx = self.change(note).await?;
        touch(&mut tx, name, now_ms).await?;
        on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(name.as_str()).bind(i64::from(enabled));
            query.execute(db).await.map(|_| ())
        })?;
        tx.commit().await
    }

    pub async fn set_disabled(
        &self,
        name: &ServerName,
        kind: DisabledKind,
        names: &[String],
        disabled: bool,
        now_ms: i64,
        note: &AuditNote,
    ) -> Result<(), StoreError> {
        let mut tx = self.change(note).await?;
        touch(&mut tx, name, now_ms).await?;
        disabled::set(&mut tx, name, kind, names, disabled).await?;
        tx.commit().await
    }

    /// Deletes a server with its lists and flags. Returns whether it existed.
    pub async fn delete_server(&self, name: &ServerName, note: &AuditNote) -> Result<bool, StoreError> {
        const SQL: &str = "DELETE FROM servers WHERE name = $1";
        const LEASE: &str = "DELETE FROM leases WHERE server = $1";
        let mut tx = self.change(note).await?;
        let deleted = on!(&mut tx, |db| sqlx::query(SQL)
            .bind(name.as_str())
            .execute(db)
            .await
            .map(|done| done.rows_affected()))?;
        if deleted == 0 {
            return Ok(false);
        }
        on!(&mut tx, |db| sqlx::query(LEASE).bind(name.as_str()).execute(db).await.map(|_| ()))?;
        quotas::forget_server(&mut tx, name).await?;
        tx.note(ChangedKind::Server, name.as_str()).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Stores the time of a change that people made to a server. Fails if the server does not exist.
async fn touch(tx: &mut ChangeTx, name: &ServerName, now_ms: i64) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE servers SET updated_at = $2 WHERE name = $1";
    let touched = on!(&mut *tx, |db| {
        let query = sqlx::query(SQL).bind(name.as_str()).bind(now_ms);
        query.execute(db).await.map(|done| done.rows_affected())
    })?;
    tx.note(ChangedKind::Server, name.as_str()).await?;
    if touched == 0 { Err(StoreError::NotFound(name.clone())) } else { Ok(()) }
}

/// Stores everything of a server except for its row, and commits.
async fn complete(
    mut tx: ChangeTx,
    registration: &Registration,
    offering: &Offering,
    now_ms: i64,
) -> Result<(), StoreError> {
    let name = &registration.config.name;
    describe(&mut tx, name, offering, now_ms).await?;
    catalogs::replace(&mut tx, name, offering).await?;
    disabled::replace(&mut tx, name, &registration.flags).await?;
    tx.note(ChangedKind::Server, name.as_str()).await?;
    tx.commit().await
}

/// Stores the server's description of itself.
async fn describe(
    tx: &mut Tx,
    name: &ServerName,
    offering: &Offering,
    now_ms: i64,
) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE servers SET protocol_version = $2, server_info = $3, capabilities = $4,
        instructions = $5, ttl_ms = $6, is_private = $7, discovered_at = $8, meta = $9 WHERE name = $1";
    // As JSON, because the text of an upstream may contain NUL, which Postgres would reject.
    let instructions = offering.instructions.as_deref().map(|text| Value::from(text).to_string());
    let ttl_ms = offering.ttl_ms.map(|ttl| i64::try_from(ttl).unwrap_or(i64::MAX));
    // Every server that responded has a protocol version; without one, nothing has been discovered yet.
    let discovered_at = (!offering.protocol_version.is_empty()).then_some(now_ms);
    let described = on!(tx, |db| {
        let query = sqlx::query(SQL)
            .bind(name.as_str())
            .bind(offering.protocol_version.as_str())
            .bind(offering.server_info.as_deref().map(RawValue::get))
            .bind(offering.capabilities.as_deref().map(RawValue::get))
            .bind(instructions)
            .bind(ttl_ms)
            .bind(i64::from(offering.is_private))
            .bind(discovered_at)
            .bind(offering.meta.to_json());
        query.execute(db).await.map(|done| done.rows_affected())
    })?;
    if described == 0 { Err(StoreError::NotFound(name.clone())) } else { Ok(()) }
}

/// The columns of a server, in the order of the query that reads them.
type ServerRow = (
    String,
    Vec<u8>,
    i64,
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
    i64,
    i64,
    i64,
    Option<i64>,
    Option<String>,
);

fn assemble(
    seal: &Seal,
    row: ServerRow,
    lists: StoredLists,
    disabled: Disabled,
) -> Result<StoredServer, String> {
    let (name, config, enabled, protocol_version, server_info, capabilities, instructions, ..) = &row;
    let (.., ttl_ms, is_private, created_at_ms, updated_at_ms, discovered_at_ms, ref meta) = row;
    let flags =
        Flags { enabled: *enabled != 0, disabled_tools: disabled.tools, disabled_prompts: disabled.prompts };
    let offering = Offering {
        protocol_version: protocol_version.clone(),
        server_info: parse_json("server_info", server_info)?,
        capabilities: parse_json("capabilities", capabilities)?,
        instructions: parse_json("instructions", instructions)?,
        tools: lists.tools,
        prompts: lists.prompts,
        resources: lists.resources,
        templates: lists.templates,
        ttl_ms: ttl_ms.map(|ttl| u64::try_from(ttl).map_err(|_| "its ttl_ms is negative")).transpose()?,
        is_private: is_private != 0,
        meta: parse_json("meta", meta)?.unwrap_or_default(),
    };
    let config = server_config::open(seal, name, config)?;
    let registration = Registration { config, flags };
    Ok(StoredServer { registration, offering, created_at_ms, updated_at_ms, discovered_at_ms })
}

fn parse_json<T: DeserializeOwned>(column: &str, text: &Option<String>) -> Result<Option<T>, String> {
    let parsed = text.as_deref().map(serde_json::from_str).transpose();
    parsed.map_err(|error| format!("its {column} cannot be read: {error}"))
}
