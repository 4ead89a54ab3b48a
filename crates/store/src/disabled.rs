//! The table `disabled`: tools and prompts that people switched off, by name.
//! A name stays although its server stops listing it, so that it comes back switched off.

use std::collections::{BTreeSet, HashMap};

use super::StoreError;
use super::db::{Tx, on};
use model::{Flags, ServerName};

/// What can be switched off one by one.
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

/// What is switched off of one server.
#[derive(Debug, Default)]
pub(super) struct Disabled {
    pub(super) tools: BTreeSet<String>,
    pub(super) prompts: BTreeSet<String>,
}

/// Switches things of a server off or on again.
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

/// By server, or what is wrong with a row of it.
pub(super) async fn load(tx: &mut Tx) -> Result<HashMap<String, Result<Disabled, String>>, StoreError> {
    const SQL: &str = "SELECT server, kind, name FROM disabled";
    let rows: Vec<(String, String, String)> = on!(tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
    let mut by_server: HashMap<String, Result<Disabled, String>> = HashMap::new();
    for (server, kind, name) in rows {
        let disabled = by_server.entry(server).or_insert_with(|| Ok(Disabled::default()));
        match (&mut *disabled, kind.as_str()) {
            (Err(_), _) => {}
            (Ok(disabled), "tool") => _ = disabled.tools.insert(name),
            (Ok(disabled), "prompt") => _ = disabled.prompts.insert(name),
            (Ok(_), _) => *disabled = Err(format!("something of the unknown kind \"{kind}\" is disabled")),
        }
    }
    Ok(by_server)
}

/// Makes the stored names of a server exactly those of its flags.
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
