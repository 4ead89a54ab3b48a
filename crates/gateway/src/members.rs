//! The members of a group: its configuration, parsed once into sets for fast lookup.

use std::collections::{HashMap, HashSet};

use model::group::EVERYTHING;
use model::{Group, QualifiedName, ResourceUri};

/// The members of a group, whether or not they exist in the catalog.
pub struct GroupMembers {
    servers: HashSet<String>,
    tools: Named,
    excluded: Named,
    prompts: Named,
    resources: Named,
    /// URIs without a server, which match at any server.
    any_server_resources: HashSet<String>,
    /// All servers that the configuration names, by themselves or with a tool, prompt or resource.
    named_servers: HashSet<String>,
}

impl GroupMembers {
    pub fn of(group: &Group) -> Self {
        let mut resources =
            Named { everything: has_everything(&group.included_resources), ..Named::default() };
        let mut any_server_resources = HashSet::new();
        for uri in &group.included_resources {
            match ResourceUri::parse(uri) {
                Ok(ResourceUri::Qualified { server, uri }) => resources.add(server.as_str(), &uri),
                Ok(ResourceUri::Upstream(uri)) => drop(any_server_resources.insert(uri)),
                Err(_) => {}
            }
        }
        let servers: HashSet<_> = group.included_servers.iter().cloned().collect();
        // All tools of the included servers are members, in addition to those that are named.
        let tools = Named { everything: true, ..Named::of(&group.included_tools) };
        let prompts = Named {
            everything: has_everything(&group.included_prompts),
            ..Named::of(&group.included_prompts)
        };
        let named = [&tools, &prompts, &resources].into_iter().flat_map(|named| named.by_server.keys());
        Self {
            named_servers: named.chain(&servers).cloned().collect(),
            servers,
            tools,
            excluded: Named::of(&group.excluded_tools),
            prompts,
            resources,
            any_server_resources,
        }
    }

    /// All servers that the configuration names, whether or not they exist.
    pub fn named_servers(&self) -> impl Iterator<Item = &str> {
        self.named_servers.iter().map(String::as_str)
    }

    /// Whether the configuration names a server, by itself or with a tool, prompt or resource.
    pub fn names_server(&self, server: &str) -> bool {
        self.named_servers.contains(server)
    }

    /// URIs without a server, which match at any server.
    pub fn any_server_resources(&self) -> &HashSet<String> {
        &self.any_server_resources
    }

    pub fn is_empty(&self) -> bool {
        self.named_servers.is_empty() && self.any_server_resources.is_empty()
    }

    pub fn has_tool(&self, server: &str, tool: &str) -> bool {
        self.tools.has(server, tool, &self.servers) && !self.excluded.names(server, tool)
    }

    /// Whether the group would have the tool, but excludes it.
    pub fn excludes_tool(&self, server: &str, tool: &str) -> bool {
        self.tools.has(server, tool, &self.servers) && self.excluded.names(server, tool)
    }

    /// Whether any tool of a server can be a member.
    pub fn has_tools_of(&self, server: &str) -> bool {
        self.servers.contains(server) || self.tools.by_server.contains_key(server)
    }

    pub fn has_prompt(&self, server: &str, prompt: &str) -> bool {
        self.prompts.has(server, prompt, &self.servers)
    }

    pub fn has_resource(&self, server: &str, uri: &str) -> bool {
        self.resources.has(server, uri, &self.servers) || self.any_server_resources.contains(uri)
    }

    /// Whether the group has the templates of a server: only if it has all resources of the server.
    pub fn has_templates(&self, server: &str) -> bool {
        self.resources.everything && self.servers.contains(server)
    }
}

/// Names by server, and whether everything of the included servers belongs to the group as well.
#[derive(Default)]
struct Named {
    by_server: HashMap<String, HashSet<String>>,
    everything: bool,
}

impl Named {
    fn of(names: &[String]) -> Self {
        let mut named = Self::default();
        for name in names.iter().filter_map(|name| QualifiedName::parse(name)) {
            named.add(name.server, name.item);
        }
        named
    }

    fn add(&mut self, server: &str, item: &str) {
        self.by_server.entry(server.to_owned()).or_default().insert(item.to_owned());
    }

    fn names(&self, server: &str, item: &str) -> bool {
        self.by_server.get(server).is_some_and(|items| items.contains(item))
    }

    fn has(&self, server: &str, item: &str, servers: &HashSet<String>) -> bool {
        self.names(server, item) || self.everything && servers.contains(server)
    }
}

fn has_everything(names: &[String]) -> bool {
    names.iter().any(|name| name == EVERYTHING)
}
