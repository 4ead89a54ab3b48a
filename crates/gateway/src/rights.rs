//! What an allow list means in a catalog: which servers it shows, and which tools, prompts and resources of them. Rules about
//! whole servers are answered by the list itself. Other rules are compared with all names once per catalog, by the first
//! request that needs them, so that a call costs the same with one rule or a thousand.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, RwLock};

use super::Gateway;
use super::caller::Owner;
use super::catalog::{Catalog, Entry};
use super::members::GroupMembers;
use model::{AllowList, GroupName, Item, Offering, PrincipalId, RuleSubject, ServerName};

/// The most lists whose rules are kept compared. Beyond that all of them are forgotten, and compared again when needed.
const MOST: usize = 1024;

/// What allow lists mean in one catalog, made when needed.
#[derive(Default)]
pub struct RightsCache(RwLock<HashMap<AllowList, Arc<Rights>>>);

/// What one allow list means in one catalog.
pub struct Rights {
    allowed: AllowList,
    /// The servers of which single names are allowed or denied. All others are allowed or denied as a whole.
    partial: HashMap<ServerName, Share>,
    /// Whether a group exists for callers with this list, by name.
    groups: HashMap<GroupName, OnceLock<bool>>,
    /// The catalog as people with this list see it.
    seen: OnceLock<Arc<Catalog>>,
}

/// The part of a server that is allowed. The flags are in the order of the server's lists.
struct Share {
    tools: Vec<bool>,
    prompts: Vec<bool>,
    resources: Vec<bool>,
    templates: bool,
    /// Whether the server exists for agents with this list.
    is_visible: bool,
    /// Whether it exists for people with this list, who also see and use what is disabled.
    is_managed: bool,
}

impl Gateway {
    /// The catalog as a user or client sees it; `None` is everybody in development mode.
    pub fn catalog_seen_by(&self, principal: Option<PrincipalId>) -> Arc<Catalog> {
        let catalog = self.catalog();
        match catalog.principals().allow_list(principal) {
            Some(allowed) => catalog.seen_with(allowed),
            None => catalog.seen_with(&AllowList::default()),
        }
    }

    /// The catalog as the owner of a request over REST sees it.
    pub(super) fn catalog_of(&self, owner: Owner) -> Arc<Catalog> {
        self.catalog_seen_by(match owner {
            Owner::Principal(principal) => Some(principal),
            Owner::Session(_) | Owner::Anybody | Owner::Link(_) => None,
        })
    }
}

impl RightsCache {
    /// What a list means in a catalog.
    pub fn get(&self, catalog: &Catalog, allowed: &AllowList) -> Arc<Rights> {
        let known = self.0.read().expect("no code panics while it holds the rights");
        if let Some(rights) = known.get(allowed) {
            return rights.clone();
        }
        drop(known);
        let rights = Arc::new(Rights::new(catalog, allowed));
        let mut known = self.0.write().expect("no code panics while it holds the rights");
        if known.len() >= MOST {
            known.clear();
        }
        known.entry(allowed.clone()).or_insert(rights).clone()
    }
}

impl Rights {
    fn new(catalog: &Catalog, allowed: &AllowList) -> Self {
        let partial = match allowed.is_plain() {
            true => HashMap::new(),
            false => {
                let shares = catalog.entries().filter(|entry| is_partial(catalog, allowed, entry));
                shares.map(|entry| (entry.name().clone(), Share::new(catalog, allowed, entry))).collect()
            }
        };
        let groups = catalog.groups().map(|group| (group.name.clone(), OnceLock::new())).collect();
        Self { allowed: allowed.clone(), partial, groups, seen: OnceLock::new() }
    }

    /// Whether a server exists for agents with this list.
    pub fn shows_server(&self, server: &str) -> bool {
        match self.partial.get(server) {
            Some(share) => share.is_visible,
            None => self.allowed.allows(server),
        }
    }

    /// Whether all of a server is allowed, also what it does not list.
    pub fn has_whole_server(&self, server: &str) -> bool {
        !self.partial.contains_key(server) && self.allowed.allows(server)
    }

    pub fn allows_tool(&self, catalog: &Catalog, entry: &Entry, tool: &str) -> bool {
        match self.partial.get(entry.name()) {
            None => self.allowed.allows(entry.name().as_str()),
            Some(share) => match entry.tool_position(tool) {
                Some(position) => share.tools[position.0],
                // Only servers that list no tools are called by names that are not listed.
                None => decide(catalog, &self.allowed, entry.name().as_str(), Item::Tool(tool)),
            },
        }
    }

    pub fn allows_prompt(&self, entry: &Entry, prompt: &str) -> bool {
        match self.partial.get(entry.name()) {
            None => self.allowed.allows(entry.name().as_str()),
            Some(share) => entry.prompt_position(prompt).is_some_and(|position| share.prompts[position]),
        }
    }

    /// Whether a resource is allowed, listed or not.
    pub fn allows_resource(&self, catalog: &Catalog, entry: &Entry, uri: &str) -> bool {
        match self.partial.get(entry.name()) {
            None => self.allowed.allows(entry.name().as_str()),
            Some(share) => match entry.resource_position(uri) {
                Some(position) => share.resources[position],
                None => decide(catalog, &self.allowed, entry.name().as_str(), Item::Resource(uri)),
            },
        }
    }

    pub fn allows_templates(&self, entry: &Entry) -> bool {
        match self.partial.get(entry.name()) {
            None => self.allowed.allows(entry.name().as_str()),
            Some(share) => share.templates,
        }
    }

    /// Whether a group exists for callers with this list, as `find` finds out if nobody did before.
    pub fn shows_group(&self, group: &str, find: impl FnOnce() -> bool) -> bool {
        self.groups.get(group).is_some_and(|shows| *shows.get_or_init(find))
    }

    /// The catalog with what the list allows only: what is not allowed does not exist in it.
    pub fn seen(&self, catalog: &Catalog) -> &Arc<Catalog> {
        self.seen.get_or_init(|| {
            let keep = |entry: &Arc<Entry>| {
                let name = entry.name();
                match self.partial.get(name) {
                    None => self.allowed.allows(name.as_str()).then(|| entry.clone()),
                    Some(share) if share.is_managed => {
                        Some(Arc::new(entry.cut_to(share.part_of(entry), &self.allowed)))
                    }
                    Some(_) => None,
                }
            };
            Arc::new(catalog.keeping(keep))
        })
    }
}

impl Share {
    fn new(catalog: &Catalog, allowed: &AllowList, entry: &Entry) -> Self {
        let server = entry.name().as_str();
        let decide = |item: Item<'_>| decide(catalog, allowed, server, item);
        let offering = entry.everything();
        let tools: Vec<_> = offering.tools.iter().map(|tool| decide(Item::Tool(&tool.name))).collect();
        let prompts: Vec<_> =
            offering.prompts.iter().map(|prompt| decide(Item::Prompt(&prompt.name))).collect();
        let resources: Vec<_> =
            offering.resources.iter().map(|resource| decide(Item::Resource(&resource.uri))).collect();
        let templates = decide(Item::Templates);
        let is_whole = allowed.allows(server);
        let allowed_tools = || kept(&offering.tools, &tools);
        let allowed_prompts = || kept(&offering.prompts, &prompts);
        let has_something = allowed_tools().any(|tool| !entry.disables_tool(&tool.name))
            || allowed_prompts().any(|prompt| entry.shows_prompt(&prompt.name))
            || resources.contains(&true)
            || templates && !offering.templates.is_empty()
            || entry.keeps_tools_to_itself() && names_of(allowed, server);
        let denies_nothing =
            ![&tools, &prompts, &resources].into_iter().flatten().any(|is_allowed| !is_allowed)
                && (templates || offering.templates.is_empty());
        let is_visible = has_something || is_whole && denies_nothing;
        // A rule about a group counts only what is enabled.
        let is_named = |item: Item<'_>| allowed.decide(server, item, |_| false);
        let is_managed = is_visible
            || allowed_tools().any(|tool| is_named(Item::Tool(&tool.name)))
            || allowed_prompts().any(|prompt| is_named(Item::Prompt(&prompt.name)));
        Self { tools, prompts, resources, templates, is_visible, is_managed }
    }

    /// What a server offers, without what is not allowed.
    fn part_of(&self, entry: &Entry) -> Offering {
        let all = entry.everything();
        Offering {
            tools: kept(&all.tools, &self.tools).cloned().collect(),
            prompts: kept(&all.prompts, &self.prompts).cloned().collect(),
            resources: kept(&all.resources, &self.resources).cloned().collect(),
            templates: if self.templates { all.templates.clone() } else { Vec::new() },
            ..(**all).clone()
        }
    }
}

/// The items that are allowed.
fn kept<'a, T>(items: &'a [Arc<T>], flags: &'a [bool]) -> impl Iterator<Item = &'a Arc<T>> {
    items.iter().zip(flags).filter(|(_, is_allowed)| **is_allowed).map(|(item, _)| item)
}

/// Whether a list allows something of a server.
pub fn decide(catalog: &Catalog, allowed: &AllowList, server: &str, item: Item<'_>) -> bool {
    allowed.decide(server, item, |group| contains(catalog, group, server, item))
}

/// Whether a tool group contains something of a server.
pub fn contains(catalog: &Catalog, group: &str, server: &str, item: Item<'_>) -> bool {
    catalog.members(group).is_some_and(|members| match item {
        Item::Tool(tool) => members.has_tool(server, tool),
        Item::Prompt(prompt) => members.has_prompt(server, prompt),
        Item::Resource(uri) => members.has_resource(server, uri),
        Item::Templates => members.has_templates(server),
    })
}

/// Whether rules about single names may show or hide a part of a server.
fn is_partial(catalog: &Catalog, allowed: &AllowList, entry: &Entry) -> bool {
    let server = entry.name().as_str();
    let is_in = |members: &GroupMembers| {
        members.names_server(server)
            || members.any_server_resources().iter().any(|uri| entry.resource(uri).is_some())
    };
    !allowed.denies(server)
        && allowed.rules().iter().any(|rule| match &rule.subject {
            RuleSubject::Everything | RuleSubject::Server(_) => false,
            RuleSubject::Names { server: of, .. } => of.as_deref().is_none_or(|of| of == server),
            RuleSubject::Group(group) => catalog.members(group).is_some_and(is_in),
        })
}

/// Whether a list allows any names of a server.
fn names_of(allowed: &AllowList, server: &str) -> bool {
    allowed.allows(server)
        || allowed.rules().iter().any(|rule| {
            !rule.denies
                && matches!(&rule.subject, RuleSubject::Names { server: of, .. } if of.as_deref().is_none_or(|of| of == server))
        })
}
