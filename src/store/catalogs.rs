//! The table `catalogs`: the lists of each server, one row per kind, the definitions byte for byte as sent.
//! Words of a server about itself are not here but in `servers`.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::StoreError;
use super::db::{Tx, on};
use crate::model::{Offering, Prompt, Resource, ServerName, Template, Tool};

/// The lists of one server.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) tools: Vec<Tool>,
    pub(super) prompts: Vec<Prompt>,
    pub(super) resources: Vec<Resource>,
    pub(super) templates: Vec<Template>,
}

/// By server.
pub(super) async fn load(tx: &mut Tx) -> Result<HashMap<String, Lists>, StoreError> {
    const SQL: &str = "SELECT server, kind, items FROM catalogs";
    let rows: Vec<(String, String, String)> = on!(tx, |db| sqlx::query_as(SQL).fetch_all(db).await)?;
    let mut by_server: HashMap<String, Lists> = HashMap::new();
    for (server, kind, items) in rows {
        let corrupt =
            |problem| StoreError::Corrupt(format!("the {kind} list of server \"{server}\": {problem}"));
        let mut lists = by_server.remove(&server).unwrap_or_default();
        match kind.as_str() {
            "tool" => lists.tools = split(&items, Tool::parse).map_err(corrupt)?,
            "prompt" => lists.prompts = split(&items, Prompt::parse).map_err(corrupt)?,
            "resource" => lists.resources = split(&items, Resource::parse).map_err(corrupt)?,
            "template" => lists.templates = split(&items, Template::parse).map_err(corrupt)?,
            _ => return Err(corrupt("there is no such kind".into())),
        }
        by_server.insert(server, lists);
    }
    Ok(by_server)
}

/// Makes the stored lists of a server exactly those of its offering; an empty list is no row.
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

fn split<T>(items: &str, parse: impl Fn(Box<RawValue>) -> Result<T, String>) -> Result<Vec<T>, String> {
    let definitions: Vec<Box<RawValue>> = serde_json::from_str(items).map_err(|error| error.to_string())?;
    definitions.into_iter().map(parse).collect()
}
