//! Everything that is registered, as an immutable snapshot. A change makes a new snapshot that shares what did
//! not change; looking something up costs the same with one server or a thousand.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Error;
use crate::model::name::SEPARATOR;
use crate::model::{Flags, Offering, QualifiedName, Registration, ServerName, Tool};
use crate::upstream::Upstream;

#[derive(Clone, Default)]
pub struct Catalog {
    servers: BTreeMap<ServerName, Arc<Entry>>,
}

impl FromIterator<Entry> for Catalog {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self { servers: entries.into_iter().map(|entry| (entry.name().clone(), Arc::new(entry))).collect() }
    }
}

impl Catalog {
    /// All servers, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.servers.values()
    }

    /// All servers in the order in which their full names sort: `a-b__x` comes before `a__x`.
    pub fn entries_by_full_name(&self) -> Vec<&Arc<Entry>> {
        let mut entries: Vec<_> = self.entries().collect();
        entries.sort_by_cached_key(|entry| format!("{}{SEPARATOR}", entry.name()));
        entries
    }

    pub fn get(&self, server: &str) -> Option<&Arc<Entry>> {
        self.servers.get(server)
    }

    pub fn require(&self, server: &str) -> Result<&Arc<Entry>, Error> {
        self.get(server).ok_or_else(|| Error::unknown_server(server))
    }

    /// The server and tool of a full name.
    pub fn tool(&self, full_name: &str) -> Result<(&Arc<Entry>, &Tool), Error> {
        let name = QualifiedName::parse(full_name).ok_or_else(|| not_qualified("tool", full_name))?;
        let entry = self.require(name.server)?;
        let tool = entry.tool(name.item);
        let tool = tool.ok_or_else(|| Error::not_found(format!("tool {full_name:?} does not exist")))?;
        Ok((entry, tool))
    }

    pub fn with(&self, entry: Entry) -> Self {
        let mut servers = self.servers.clone();
        servers.insert(entry.name().clone(), Arc::new(entry));
        Self { servers }
    }

    pub fn without(&self, server: &ServerName) -> Self {
        let mut servers = self.servers.clone();
        servers.remove(server);
        Self { servers }
    }
}

pub fn not_qualified(kind: &str, name: &str) -> Error {
    Error::invalid(format!(
        "{name:?} is not the full name of a {kind}, which has the form <server>__<{kind}>"
    ))
}

/// One registered server with what it offers and its live link (none while it is disabled).
#[derive(Clone)]
pub struct Entry {
    pub registration: Arc<Registration>,
    listed: Arc<Listed>,
    pub upstream: Option<Upstream>,
    pub updated_at_ms: i64,
    pub discovered_at_ms: Option<i64>,
}

/// An offering with the ways to find things in it.
struct Listed {
    offering: Arc<Offering>,
    tools: HashMap<Box<str>, usize>,
    /// Positions of the tools in the order of their names.
    sorted_tools: Vec<usize>,
}

impl Entry {
    pub fn new(
        registration: Registration,
        offering: Arc<Offering>,
        upstream: Option<Upstream>,
        updated_at_ms: i64,
        discovered_at_ms: Option<i64>,
    ) -> Self {
        let registration = Arc::new(registration);
        Self {
            registration,
            listed: Arc::new(Listed::new(offering)),
            upstream,
            updated_at_ms,
            discovered_at_ms,
        }
    }

    pub fn with_offering(&self, offering: Arc<Offering>, now_ms: i64) -> Self {
        Self { listed: Arc::new(Listed::new(offering)), discovered_at_ms: Some(now_ms), ..self.clone() }
    }

    pub fn with_flags(&self, change: impl FnOnce(&mut Flags), now_ms: i64) -> Self {
        let mut registration = (*self.registration).clone();
        change(&mut registration.flags);
        Self { registration: Arc::new(registration), updated_at_ms: now_ms, ..self.clone() }
    }

    pub fn name(&self) -> &ServerName {
        &self.registration.config.name
    }

    pub fn offering(&self) -> &Arc<Offering> {
        &self.listed.offering
    }

    pub fn is_enabled(&self) -> bool {
        self.registration.flags.enabled
    }

    /// Whether the tool is visible: its own flag and that of its server.
    pub fn shows_tool(&self, tool: &str) -> bool {
        self.is_enabled() && !self.registration.flags.disabled_tools.contains(tool)
    }

    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.listed.tools.get(name).map(|&position| &self.listed.offering.tools[position])
    }

    /// All tools by name.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.listed.sorted_tools.iter().map(|&position| &self.listed.offering.tools[position])
    }

    pub fn prompt_names(&self) -> Vec<&str> {
        let mut names: Vec<_> =
            self.listed.offering.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

impl Listed {
    fn new(offering: Arc<Offering>) -> Self {
        let names = || offering.tools.iter().enumerate();
        let tools = names().map(|(position, tool)| (tool.name.as_str().into(), position)).collect();
        let mut sorted_tools: Vec<_> = (0..offering.tools.len()).collect();
        sorted_tools.sort_unstable_by(|&a, &b| offering.tools[a].name.cmp(&offering.tools[b].name));
        Self { tools, sorted_tools, offering }
    }
}
