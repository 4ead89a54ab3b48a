//! Tools, as people manage them: listing, looking up, enabling and disabling.

use std::sync::Arc;

use serde_json::json;

use super::{Catalog, Entry, Error, Gateway, now_ms};
use model::{AuditNote, By, Flags, Tool};
use store;

/// The servers that a list covers.
pub enum Coverage<'a> {
    /// Those that are enabled.
    Enabled,
    All,
    /// One server; the list is empty while it is disabled.
    Server(&'a str),
    /// One server, disabled or not.
    ServerAtAll(&'a str),
}

impl Catalog {
    /// The covered servers, in the sort order of the full names of what they offer.
    pub fn covered(&self, coverage: &Coverage<'_>) -> Result<Vec<&Arc<Entry>>, Error> {
        let is_enabled = |entry: &&Arc<Entry>| entry.is_enabled();
        Ok(match coverage {
            Coverage::Enabled => self.entries_by_full_name().into_iter().filter(is_enabled).collect(),
            Coverage::All => self.entries_by_full_name(),
            Coverage::Server(name) => Some(self.require(name)?).into_iter().filter(is_enabled).collect(),
            Coverage::ServerAtAll(name) => vec![self.require(name)?],
        })
    }

    /// All covered tools, sorted by full name.
    pub fn covered_tools(
        &self,
        coverage: &Coverage<'_>,
    ) -> Result<impl Iterator<Item = (&Arc<Entry>, &Tool)>, Error> {
        let entries = self.covered(coverage)?.into_iter();
        Ok(entries.flat_map(|entry| entry.tools().map(move |tool| (entry, tool))))
    }
}

/// What can be enabled and disabled one by one.
#[derive(Clone, Copy)]
pub enum Switchable {
    Tools,
    Prompts,
}

impl Switchable {
    fn names(self, entry: &Entry) -> Vec<String> {
        match self {
            Switchable::Tools => entry.tools().map(|tool| tool.name.clone()).collect(),
            Switchable::Prompts => entry.prompts().map(|prompt| prompt.name.clone()).collect(),
        }
    }

    /// The server of a full name, and its name there.
    fn find<'a>(self, catalog: &'a Catalog, full_name: &str) -> Result<(&'a Arc<Entry>, String), Error> {
        match self {
            Switchable::Tools => catalog.tool(full_name).map(|(entry, tool)| (entry, tool.name.clone())),
            Switchable::Prompts => {
                catalog.prompt(full_name).map(|(entry, prompt)| (entry, prompt.name.clone()))
            }
        }
    }

    fn disabled(self, flags: &mut Flags) -> &mut std::collections::BTreeSet<String> {
        match self {
            Switchable::Tools => &mut flags.disabled_tools,
            Switchable::Prompts => &mut flags.disabled_prompts,
        }
    }

    /// What is noted of a switch. One that concerns a whole server names what changed.
    fn note(self, by: &By, entry: &Entry, entity: &str, names: &[String], enabled: bool) -> AuditNote {
        let action = match (self, enabled) {
            (Switchable::Tools, true) => "tool.enable",
            (Switchable::Tools, false) => "tool.disable",
            (Switchable::Prompts, true) => "prompt.enable",
            (Switchable::Prompts, false) => "prompt.disable",
        };
        let note = AuditNote::new(by, action, entity, now_ms());
        match entity == entry.name().as_str() {
            true => note.after(json!({ "enabled": enabled, "names": names })),
            false => {
                let disabled = self.disabled(&mut entry.registration.flags.clone()).contains(&names.concat());
                note.before(json!({ "enabled": !disabled })).after(json!({ "enabled": enabled }))
            }
        }
    }

    fn stored(self) -> store::DisabledKind {
        match self {
            Switchable::Tools => store::DisabledKind::Tool,
            Switchable::Prompts => store::DisabledKind::Prompt,
        }
    }
}

impl Gateway {
    /// Sets the own flag of one tool, or of all tools of a server. Returns the full names of those that changed; a
    /// single tool is returned even if its flag was already set so.
    pub async fn switch_tools(
        self: &Arc<Self>,
        entity: &str,
        enabled: bool,
        by: &By,
    ) -> Result<Vec<String>, Error> {
        self.switch(Switchable::Tools, entity, enabled, by).await
    }

    pub(super) async fn switch(
        self: &Arc<Self>,
        kind: Switchable,
        entity: &str,
        enabled: bool,
        by: &By,
    ) -> Result<Vec<String>, Error> {
        let (entity, by) = (entity.to_owned(), by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _turn = gateway.turn().await?;
            let catalog = gateway.catalog();
            let (entry, names) = match catalog.get(&entity) {
                Some(entry) => {
                    let mut flags = entry.registration.flags.clone();
                    let disabled = kind.disabled(&mut flags);
                    let names = kind.names(entry).into_iter();
                    (entry, names.filter(|name| disabled.contains(name) == enabled).collect())
                }
                None => {
                    let (entry, name) =
                        kind.find(&catalog, &entity).map_err(|error| match entity.contains("__") {
                            true => error,
                            false => Error::not_found(format!(
                                "{entity:?} is neither a server nor a full name, which has the form <server>__<name>"
                            )),
                        })?;
                    (entry, vec![name])
                }
            };
            let note = kind.note(&by, entry, &entity, &names, enabled);
            gateway.set_flags(kind, entry, &catalog, names, enabled, &note).await
        })
        .await
    }

    /// Stores and publishes the flags. The caller holds the turn.
    async fn set_flags(
        &self,
        kind: Switchable,
        entry: &Entry,
        catalog: &Catalog,
        names: Vec<String>,
        enabled: bool,
        note: &AuditNote,
    ) -> Result<Vec<String>, Error> {
        let server = entry.name();
        if !names.is_empty() {
            let now = note.at_ms;
            self.store.set_disabled(server, kind.stored(), &names, !enabled, now, note).await?;
            let change = |flags: &mut Flags| {
                let disabled = kind.disabled(flags);
                for name in &names {
                    if enabled {
                        disabled.remove(name);
                    } else {
                        disabled.insert(name.clone());
                    }
                }
            };
            self.swap(catalog.with(entry.with_flags(change, now)));
            tracing::info!(%server, count = names.len(), enabled, "switched tools or prompts");
        }
        Ok(names.iter().map(|name| server.qualify(name)).collect())
    }
}
