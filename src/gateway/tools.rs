//! Tools as people manage them: listing, looking up, switching on and off.

use std::sync::Arc;

use super::record::ToolRecord;
use super::{Catalog, Entry, Error, Gateway};
use crate::store;

/// Which servers a list covers.
pub enum Scope<'a> {
    /// Those that are enabled.
    Enabled,
    All,
    /// One server; its tools are shown only while it is enabled.
    Server(&'a str),
    /// One server, disabled or not.
    ServerAtAll(&'a str),
}

impl Catalog {
    /// The servers of a scope, in the order in which the full names of what they offer sort.
    pub fn in_scope(&self, scope: &Scope<'_>) -> Result<Vec<&Arc<Entry>>, Error> {
        Ok(match scope {
            Scope::Enabled => {
                self.entries_by_full_name().into_iter().filter(|entry| entry.is_enabled()).collect()
            }
            Scope::All => self.entries_by_full_name(),
            Scope::Server(name) => {
                Some(self.require(name)?).into_iter().filter(|entry| entry.is_enabled()).collect()
            }
            Scope::ServerAtAll(name) => vec![self.require(name)?],
        })
    }

    /// The records of all tools in a scope, by full name.
    pub fn tool_records(&self, scope: &Scope<'_>) -> Result<Vec<ToolRecord<'_>>, Error> {
        let entries = self.in_scope(scope)?.into_iter();
        Ok(entries.flat_map(|entry| entry.tools().map(|tool| ToolRecord::of(entry, tool))).collect())
    }

    pub fn tool_record(&self, full_name: &str) -> Result<ToolRecord<'_>, Error> {
        self.tool(full_name).map(|(entry, tool)| ToolRecord::of(entry, tool))
    }
}

impl Gateway {
    /// Sets the own flag of one tool, or of all tools of a server. Returns the full names of the tools that
    /// changed; a single tool is returned even when it was so already.
    pub async fn switch_tools(self: &Arc<Self>, entity: &str, enabled: bool) -> Result<Vec<String>, Error> {
        let entity = entity.to_owned();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let catalog = gateway.catalog();
            if let Some(entry) = catalog.get(&entity) {
                let is_disabled = |tool: &str| entry.registration.flags.disabled_tools.contains(tool);
                let tools = entry.tools().map(|tool| tool.name.clone());
                let changing = tools.filter(|tool| is_disabled(tool) == enabled).collect();
                return gateway.set_tool_flags(entry, changing, enabled).await;
            }
            let (entry, tool) = catalog.tool(&entity).map_err(|error| match entity.contains("__") {
                true => error,
                false => Error::not_found(format!("no tool or server is called {entity:?}")),
            })?;
            gateway.set_tool_flags(entry, vec![tool.name.clone()], enabled).await
        })
        .await
    }

    async fn set_tool_flags(
        &self,
        entry: &Entry,
        tools: Vec<String>,
        enabled: bool,
    ) -> Result<Vec<String>, Error> {
        let name = entry.name();
        if !tools.is_empty() {
            let change = |flags: &mut crate::model::Flags| {
                for tool in &tools {
                    match enabled {
                        true => flags.disabled_tools.remove(tool),
                        false => flags.disabled_tools.insert(tool.clone()),
                    };
                }
            };
            let stored = |now| self.store.set_disabled(name, store::Kind::Tool, &tools, !enabled, now);
            self.change_flags(name, change, stored).await?;
            tracing::info!(server = %name, count = tools.len(), enabled, "switched tools");
        }
        Ok(tools.iter().map(|tool| name.qualify(tool)).collect())
    }
}
