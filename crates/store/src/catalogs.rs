//! The table `catalogs`: the lists of each server, one row per kind, the definitions byte for byte as sent. A server's
//! description of itself is not here but in `servers`.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::StoreError;
use super::db::{Tx, on};
use model::{Offering, Prompt, Resource, ServerName, Template, Tool};

/// The lists of one server.
#[derive(Debug, Default)]
pub(super) struct StoredLists {
    pub(super) tools: Vec<Arc<Tool>>,
    pub(super) prompts: Vec<Arc<Prompt>>,
    pub(super) resources: Vec<Arc<Resource>>,
    pub(super) templates: Vec<Arc<Template>>,
}

/// Loads the lists of each server, or only of one; or what is wrong with one of them.
pub(super) async fn load(
    tx: &mut Tx,
    only: Option<&str>,
) -> Result<HashMap<String, Result<StoredLists, String>>, StoreError> {
    const SQL: &str =
        "SELECT server, kind, items FROM catalogs WHERE CAST($1 AS TEXT) IS NULL OR server = $1";
    let rows: Vec<(String, String, String)> =
        on!(tx, |db| sqlx::query_as(SQL).bind(only).fetch_all(db).await)?;
    let mut by_server: HashMap<String, Result<StoredLists, String>> = HashMap::new();
    for (server, kind, items) in rows {
        let lists = by_server.entry(server).or_insert_with(|| Ok(StoredLists::default()));
        if let Ok(so_far) = lists
            && let Err(problem) = so_far.read(&kind, &items)
        {
            *lists = Err(format!("its {kind} list: {problem}"));
        }
    }
    Ok(by_server)
}

impl StoredLists {
    fn read(&mut self, kind: &str, items: &str) -> Result<(), String> {
        match kind {
            "tool" => self.tools = split(items, Tool::read_stored)?,
            "prompt" => self.prompts = split(items, Prompt::read_stored)?,
            "resource" => self.resources = split(items, Resource::read_stored)?,
            "template" => self.templates = split(items, Template::read_stored)?,
            _ => return Err("the kind is unknown".into()),
        }
        Ok(())
    }
}

/// Replaces the stored lists of a server with those of its offering; an empty list has no row.
pub(super) async fn replace(
    tx: &mut Tx,
    server: &ServerName,
    offering: &Offering,
) -> Result<(), sqlx::Error> {
    const DELETE: &str = "DELETE FROM catalogs WHERE server = $1";
    const INSERT: &str = "INSERT INTO catalogs (server, kind, items) VALUES ($1, $2, $3)";
    on!(&mut *tx, |db| sqlx::query(DELETE).bind(server.as_str()).execute(db).await.map(|_| ()))?;
    let lists = [
        ("tool", join(offering.tools.iter().map(|tool| &*tool.definition))),
        ("prompt", join(offering.prompts.iter().map(|prompt| &*prompt.definition))),
        ("resource", join(offering.resources.iter().map(|resource| &*resource.definition))),
        ("template", join(offering.templates.iter().map(|template| &*template.definition))),
    ];
    for (kind, items) in lists {
        let Some(items) = items else { continue };
        on!(&mut *tx, |db| {
            let query = sqlx::query(INSERT).bind(server.as_str()).bind(kind).bind(items);
            query.execute(db).await.map(|_| ())
        })?;
    }
    Ok(())
}

/// A JSON array with the definitions untouched; `None` if there are none.
fn join<'a>(definitions: impl Iterator<Item = &'a RawValue>) -> Option<String> {
    let mut items = String::new();
    for definition in definitions {
        items.push(if items.is_empty() { '[' } else { ',' });
        items.push_str(definition.get());
    }
    if items.is_empty() {
        return None;
    }
    items.push(']');
    Some(items)
}

fn split<T>(items: &str, read: impl Fn(Box<RawValue>) -> Result<T, String>) -> Result<Vec<Arc<T>>, String> {
    let definitions: Vec<Box<RawValue>> = serde_json::from_str(items).map_err(|error| error.to_string())?;
    definitions.into_iter().map(|definition| read(definition).map(Arc::new)).collect()
}
