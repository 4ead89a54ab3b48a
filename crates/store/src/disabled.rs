//! The table `disabled`: tools and prompts that people disabled, by name. A name stays when its server stops listing
//! it, so that it is still disabled when it is listed again.

use std::collections::{BTreeSet, HashMap};

use super::StoreError;
use super::db::{Tx, on};
use model::{Flags, ServerName};

/// The kinds of items that can be disabled one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisabledKind {
    Tool,
    Prompt,
}

impl DisabledKind {
    fn as_str(self) -> &'static str {
        match self {
            DisabledKind::Tool => "tool",
            DisabledKind::Prompt => "prompt",
        }
    }
}

/// The disabled items of one server.
#[derive(Debug, Default)]
pub(super) struct Disabled {
    pub(super) tools: BTreeSet<String>,
    pub(super) prompts: BTreeSet<String>,
}

/// Disables items of a server, or enables them again.
pub(super) async fn set(
    tx: &mut Tx,
    server: &ServerName,
    kind: DisabledKind,
    names: &[String],
    disabled: bool,
) -> Result<(), sqlx::Error> {
    for name in names {
        if disabled {
            insert(tx, server, kind, name).await?;
        } else {
            remove(tx, server, kind, name).await?;
        }
    }
    Ok(())
}

/// Loads the disabled items of each server, or only of one; or what is wrong with one of its rows.
pub(super) async fn load(
    tx: &mut Tx,
    only: Option<&str>,
) -> Result<HashMap<String, Result<Disabled, String>>, StoreError> {
    const SQL: &str = "SELECT server, kind, name FROM disabled WHERE CAST($1 AS TEXT) IS NULL OR server = $1";
    let rows: Vec<(String, String, String)> =
        on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
    let mut by_server: HashMap<String, Result<Disabled, String>> = HashMap::new();
    for (server, kind, name) in rows {
        let disabled = by_server.entry(server).or_insert_with(|| Ok(Disabled::default()));
        match (&mut *disabled, kind.as_str()) {
            (Err(_), _) => {}
            (Ok(disabled), "tool") => _ = disabled.tools.insert(name),
            (Ok(disabled), "prompt") => _ = disabled.prompts.insert(name),
            (Ok(_), _) => *disabled = Err(format!("an item of the unknown kind \"{kind}\" is disabled")),
        }
    }
    Ok(by_server)
}

/// Replaces the stored names of a server with those of its flags.
pub(super) async fn replace(tx: &mut Tx, server: &ServerName, flags: &Flags) -> Result<(), sqlx::Error> {
    const SQL: &str = "DELETE FROM disabled WHERE server = $1";
    on!(&mut *tx, |db| sqlx::query(SQL).bind(server.as_str()).execute(db).await.map(|_| ()))?;
    for name in &flags.disabled_tools {
        insert(tx, server, DisabledKind::Tool, name).await?;
    }
    for name in &flags.disabled_prompts {
        insert(tx, server, DisabledKind::Prompt, name).await?;
    }
    Ok(())
}

async fn insert(tx: &mut Tx, server: &ServerName, kind: DisabledKind, name: &str) -> Result<(), sqlx::Error> {
    const SQL: &str = "INSERT INTO disabled (server, kind, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(server.as_str()).bind(kind.as_str()).bind(name);
        query.execute(db).await.map(|_| ())
    })
}

async fn remove(tx: &mut Tx, server: &ServerName, kind: DisabledKind, name: &str) -> Result<(), sqlx::Error> {
    const SQL: &str = "DELETE FROM disabled WHERE server = $1 AND kind = $2 AND name = $3";
    on!(tx, |db| {
        let query = sqlx::query(SQL).bind(server.as_str()).bind(kind.as_str()).bind(name);
        query.execute(db).await.map(|_| ())
    })
}
