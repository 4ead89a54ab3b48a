//! What an endpoint tells a new client about itself: capabilities, name and instructions.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::Gateway;
use super::caller::{LinkScope, Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::union::{united, without_tasks};
use super::view::{Lens, View};
use model::Offering;
use wire::{Era, Version, text};

/// Maximum length of the composed instructions, in bytes.
const INSTRUCTIONS_LIMIT: usize = 2000;
/// Maximum length of the line about one server, in bytes.
const LINE_LIMIT: usize = 200;

/// The parts of a response to `initialize` or `server/discover`, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    /// By era: tasks of one era are of no use to clients of the other.
    legacy_capabilities: Vec<u8>,
    modern_capabilities: Vec<u8>,
    pub server_info: Vec<u8>,
    pub instructions: Option<Vec<u8>>,
    /// The `_meta` of a server at its own endpoint.
    pub meta: Option<Vec<u8>>,
}

impl Gateway {
    /// The reason why the endpoint does not exist for this viewer; `None` if it exists.
    pub fn missing(&self, viewer: &Viewer) -> Option<String> {
        if self.catalog().lens(viewer).is_some() {
            return None;
        }
        Some(match &viewer.scope {
            Scope::Everything => "this endpoint does not exist".to_owned(),
            Scope::Group(name) => format!("tool group {name:?} does not exist"),
            Scope::Server(name) | Scope::Link(LinkScope { server: name, .. }) => {
                format!("server {name:?} does not exist")
            }
        })
    }
}

impl Greeting {
    /// What the endpoint declares to clients of an era.
    pub fn capabilities(&self, era: Era) -> &[u8] {
        match era {
            Era::Legacy => &self.legacy_capabilities,
            Era::Modern => &self.modern_capabilities,
        }
    }

    /// The greeting of a scope; `None` if the scope does not exist.
    pub fn of(catalog: &Catalog, lens: &Lens<'_>, view: &View<'_>, scope: &Scope) -> Option<Self> {
        match scope {
            Scope::Server(name) | Scope::Link(LinkScope { server: name, .. }) => {
                catalog.get(name).map(|entry| native(entry))
            }
            Scope::Everything => {
                let servers: Vec<_> = catalog.entries().filter(|entry| lens.admits(entry)).collect();
                Some(composed(&servers, instructions(servers.iter().map(|entry| &***entry))))
            }
            Scope::Group(name) => {
                let group = catalog.group(name).ok()?;
                let tools = view.tools.iter().map(|(of, _)| of.name());
                let named: HashSet<_> = tools.chain(view.prompts.iter().map(|(of, _)| of.name())).collect();
                let others = view.resources.iter().map(|(of, _)| of.name());
                let others: HashSet<_> =
                    others.chain(view.templates.iter().map(|(of, _)| of.name())).collect();
                let said = catalog.entries().filter(|entry| named.contains(entry.name()));
                let said = instructions(said.map(|entry| &**entry));
                let is_inside =
                    |entry: &&Arc<Entry>| named.contains(entry.name()) || others.contains(entry.name());
                let servers: Vec<_> = catalog.entries().filter(is_inside).collect();
                Some(composed(
                    &servers,
                    match group.description.is_empty() {
                        true => said,
                        false => {
                            let text = format!("{}\n{}", group.description, said.unwrap_or_default());
                            Some(cut(&text, INSTRUCTIONS_LIMIT))
                        }
                    },
                ))
            }
        }
    }
}

/// The greeting of one server, as the server itself gave it.
fn native(entry: &Entry) -> Greeting {
    let offering = entry.offering();
    let raw = |value: &Option<Box<RawValue>>, otherwise: String| {
        value.as_deref().map_or(otherwise, |value| value.get().to_owned()).into_bytes()
    };
    let capabilities = raw(&offering.capabilities, "{}".into());
    let usable = |era| match offering_era(offering) == era {
        true => capabilities.clone(),
        false => without_tasks(&capabilities),
    };
    let nameless = format!(r#"{{"name":"{}","version":""}}"#, entry.name());
    Greeting {
        legacy_capabilities: usable(Era::Legacy),
        modern_capabilities: usable(Era::Modern),
        server_info: raw(&offering.server_info, nameless),
        instructions: offering.instructions.as_deref().map(text::quote),
        meta: offering.meta.handshake.as_deref().map(|meta| meta.get().as_bytes().to_vec()),
    }
}

/// The greeting of several servers together.
fn composed(servers: &[&Arc<Entry>], instructions: Option<String>) -> Greeting {
    let server_info =
        format!(r#"{{"name":"toolgate","title":"toolgate","version":"{}"}}"#, env!("CARGO_PKG_VERSION"));
    let declared = servers.iter().map(|entry| entry.offering());
    let declared = declared.filter_map(|of| Some((offering_era(of), of.capabilities.as_deref()?)));
    let declared: Vec<_> = declared.collect();
    Greeting {
        legacy_capabilities: united(&declared, Era::Legacy),
        modern_capabilities: united(&declared, Era::Modern),
        server_info: server_info.into_bytes(),
        instructions: instructions.as_deref().map(text::quote),
        meta: None,
    }
}

/// The era in which a server declared what it offers.
fn offering_era(offering: &Offering) -> Era {
    Version::parse(&offering.protocol_version).map_or(Era::Legacy, Version::era)
}

/// A list of the servers, one line each; those that do not fit are only counted.
fn instructions<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<String> {
    let lines: Vec<_> = entries.map(line).collect();
    if lines.is_empty() {
        return None;
    }
    let mut text = String::from("Tools and prompts are named <server>__<name>. Servers:");
    for (index, line) in lines.iter().enumerate() {
        let rest = format!("\n- and {} more", lines.len() - index);
        if text.len() + 1 + line.len() + rest.len() > INSTRUCTIONS_LIMIT {
            text.push_str(&rest);
            break;
        }
        text.push('\n');
        text.push_str(line);
    }
    Some(text)
}

fn line(entry: &Entry) -> String {
    let description = entry.registration.config.description.trim();
    let said = entry.offering().instructions.as_deref().unwrap_or_default();
    let first = said.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    let about = if description.is_empty() { first.unwrap_or_default() } else { description };
    let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
    match about.is_empty() {
        true => format!("- {}", entry.name()),
        false => cut(&format!("- {}: {about}", entry.name()), LINE_LIMIT),
    }
}

fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}
