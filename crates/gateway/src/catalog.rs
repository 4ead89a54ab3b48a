//! An immutable snapshot of everything registered. A change makes a new snapshot, which shares all unchanged entries
//! with the old one. A lookup costs the same with one server or a thousand.

mod definitions;
mod index;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

use super::Error;
use super::audience::Audiences;
use super::members::GroupMembers;
use super::principals::Principals;
use super::quota::ServerQuota;
use super::rights::{Rights, RightsCache};
use definitions::header_params;
use index::Index;
use model::name::SEPARATOR;
use model::{
    AllowList, Flags, Group, GroupName, Offering, Prompt, QualifiedName, Registration, Resource, ServerName,
    Template, Tool,
};
use telemetry::{Metrics, ToolMeter};
use upstream::{Journal, Profile, Upstream};
use wire::{HeaderParam, text, walk};

pub use definitions::with_member;

#[derive(Clone, Default)]
pub struct Catalog {
    servers: BTreeMap<ServerName, Arc<Entry>>,
    groups: BTreeMap<GroupName, Arc<GroupEntry>>,
    principals: Arc<Principals>,
    /// How many catalogs came before this one.
    pub generation: u64,
    /// Whether any server is registered as stateful.
    pub has_stateful_servers: bool,
    /// Whether any server lists something else to some callers than to others.
    has_differing_lists: bool,
    /// Which callers this snapshot is for: 0 for people and the gateway itself, who see every name; another number for
    /// each group of callers that see the same.
    pub audience: u64,
    /// The snapshots for agents, derived from this one.
    audiences: Arc<Audiences>,
    /// The servers with a URI that another server lists too; computed on first use.
    sharing: Arc<OnceLock<HashSet<ServerName>>>,
    /// What allow lists mean here.
    rights: Arc<RightsCache>,
}

impl Catalog {
    pub fn new(entries: impl IntoIterator<Item = Entry>, groups: impl IntoIterator<Item = Group>) -> Self {
        Self {
            servers: entries.into_iter().map(|entry| (entry.name().clone(), Arc::new(entry))).collect(),
            groups: groups
                .into_iter()
                .map(|group| (group.name.clone(), Arc::new(GroupEntry::new(group))))
                .collect(),
            ..Self::default()
        }
    }

    /// Makes this the next catalog after the one of this generation, and computes what is derived from its servers.
    pub fn following(mut self, generation: u64) -> Self {
        self.generation = generation + 1;
        self.has_stateful_servers = self.servers.values().any(|entry| entry.is_stateful());
        self.has_differing_lists = self.servers.values().any(|entry| !entry.sets.is_empty());
        self.audiences = Arc::default();
        self.sharing = Arc::default();
        self.rights = Arc::default();
        self
    }

    /// The snapshot as callers with this profile see it: the same servers, each with the lists that it shows to them.
    pub fn for_profile(self: &Arc<Self>, profile: &Profile) -> Arc<Self> {
        if !self.has_differing_lists {
            return self.clone();
        }
        let profile = profile.shared();
        self.audiences.get_or_derive(
            &profile,
            || {
                let sets = self.entries().filter_map(|entry| Some((entry.name(), entry.set_for(&profile)?)));
                sets.map(|(name, listed)| (name.clone(), listed.clone())).collect()
            },
            self,
        )
    }

    /// This snapshot for callers that see other lists of these servers than its own, and of all others the common ones.
    pub fn showing(&self, lists: &HashMap<ServerName, Arc<Listed>>, audience: u64) -> Self {
        let mut servers = self.servers.clone();
        for (name, entry) in &mut servers {
            match lists.get(name) {
                Some(listed) => *entry = Arc::new(entry.showing(listed.clone())),
                None if Arc::ptr_eq(&entry.listed, &entry.common) => {}
                None => *entry = Arc::new(entry.showing(entry.common.clone())),
            }
        }
        Self { servers, audience, sharing: Arc::default(), rights: Arc::default(), ..self.clone() }
    }

    /// What an allow list means in this snapshot.
    pub fn rights_of(&self, allowed: &AllowList) -> Arc<Rights> {
        self.rights.get(self, allowed)
    }

    /// This snapshot as people with an allow list see it: what is not allowed does not exist in it.
    pub fn seen_with(self: &Arc<Self>, allowed: &AllowList) -> Arc<Self> {
        match allowed.allows_everything() {
            true => self.clone(),
            false => self.rights_of(allowed).seen(self).clone(),
        }
    }

    /// This snapshot with other entries in place of its own; `None` leaves a server out.
    pub fn keeping(&self, keep: impl Fn(&Arc<Entry>) -> Option<Arc<Entry>>) -> Self {
        let servers = self.servers.iter().filter_map(|(name, entry)| Some((name.clone(), keep(entry)?)));
        Self { servers: servers.collect(), sharing: Arc::default(), rights: Arc::default(), ..self.clone() }
    }

    /// Whether the server lists a URI that another server lists too, for whichever viewers.
    pub fn shares_uris(&self, server: &ServerName) -> bool {
        let sharing = self.sharing.get_or_init(|| {
            let mut sharing = HashSet::new();
            let mut first: HashMap<&str, &ServerName> = HashMap::new();
            for entry in self.servers.values() {
                for resource in entry.resources() {
                    let other = *first.entry(&resource.uri).or_insert(entry.name());
                    if other != entry.name() {
                        sharing.extend([other.clone(), entry.name().clone()]);
                    }
                }
            }
            sharing
        });
        sharing.contains(server)
    }

    pub fn principals(&self) -> &Principals {
        &self.principals
    }

    /// All servers, sorted by name.
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

    /// The server and prompt of a full name.
    pub fn prompt(&self, full_name: &str) -> Result<(&Arc<Entry>, &Prompt), Error> {
        let name = QualifiedName::parse(full_name).ok_or_else(|| not_qualified("prompt", full_name))?;
        let entry = self.require(name.server)?;
        let prompt = entry.prompt(name.item);
        let prompt =
            prompt.ok_or_else(|| Error::not_found(format!("prompt {full_name:?} does not exist")))?;
        Ok((entry, prompt))
    }

    /// All groups, sorted by name.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().map(|entry| &entry.group)
    }

    pub fn group(&self, name: &str) -> Result<&Group, Error> {
        let entry = self.groups.get(name).ok_or_else(|| unknown_group(name));
        entry.map(|entry| &entry.group)
    }

    pub fn members(&self, group: &str) -> Option<&GroupMembers> {
        self.groups.get(group).map(|entry| &entry.members)
    }

    pub fn with(&self, mut entry: Entry) -> Self {
        let mut changed = self.clone();
        if let Some(before) = changed.servers.get(entry.name()) {
            entry.quota = before.quota.clone();
            entry.quota.keep_tools_of(&entry);
        }
        changed.servers.insert(entry.name().clone(), Arc::new(entry));
        changed
    }

    pub fn without(&self, server: &ServerName) -> Self {
        let mut changed = self.clone();
        changed.servers.remove(server);
        changed
    }

    pub fn with_group(&self, group: Group) -> Self {
        let mut changed = self.clone();
        changed.groups.insert(group.name.clone(), Arc::new(GroupEntry::new(group)));
        changed
    }

    pub fn with_principals(&self, principals: Principals) -> Self {
        Self { principals: Arc::new(principals), ..self.clone() }
    }

    pub fn without_group(&self, group: &GroupName) -> Self {
        let mut changed = self.clone();
        changed.groups.remove(group);
        changed
    }
}

pub fn not_qualified(kind: &str, name: &str) -> Error {
    Error::invalid(format!(
        "{name:?} is not the full name of a {kind}, which has the form <server>__<{kind}>"
    ))
}

pub fn unknown_group(name: &str) -> Error {
    Error::not_found(format!("tool group {name:?} does not exist"))
}

struct GroupEntry {
    group: Group,
    members: GroupMembers,
}

impl GroupEntry {
    fn new(group: Group) -> Self {
        Self { members: GroupMembers::of(&group), group }
    }
}

/// One registered server with what it offers and its live link (none while it is disabled).
#[derive(Clone)]
pub struct Entry {
    pub registration: Arc<Registration>,
    /// All names that the server lists to anybody.
    listed: Arc<Listed>,
    /// What the server lists to callers without capabilities.
    common: Arc<Listed>,
    /// What it lists to callers with other profiles, as far as that differs.
    sets: Arc<HashMap<Profile, Arc<Listed>>>,
    pub upstream: Option<Upstream>,
    pub updated_at_ms: i64,
    pub discovered_at_ms: Option<i64>,
    /// What is used of its rate limits; an entry that replaces this one takes it over.
    pub quota: Arc<ServerQuota>,
    /// Its log, which is also that of the entries before this one.
    pub journal: Journal,
    /// The rules by which parts of the lists were left out, if any were.
    cut_by: Option<AllowList>,
}

/// An offering with its indexes.
pub struct Listed {
    offering: Arc<Offering>,
    tools: Index<Tool>,
    prompts: Index<Prompt>,
    resources: Index<Resource>,
    /// By tool: the arguments that modern clients repeat in headers.
    header_params: HashMap<Box<str>, Vec<HeaderParam>>,
    /// By position of the tool.
    tool_uses: Box<[ToolUse]>,
}

/// What calls of a tool need, made by the first of them.
#[derive(Default)]
struct ToolUse {
    is_repeatable: OnceLock<bool>,
    meter: OnceLock<Box<ToolMeter>>,
}

/// The position of a tool in the lists of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ToolPosition(pub(super) usize);

impl Entry {
    pub fn new(
        registration: Registration,
        offering: Arc<Offering>,
        upstream: Option<Upstream>,
        journal: Journal,
        updated_at_ms: i64,
        discovered_at_ms: Option<i64>,
    ) -> Self {
        let registration = Arc::new(registration);
        let common = Arc::new(Listed::new(offering));
        Self {
            registration,
            listed: common.clone(),
            common,
            sets: Arc::default(),
            upstream,
            updated_at_ms,
            discovered_at_ms,
            quota: Arc::default(),
            journal,
            cut_by: None,
        }
    }

    pub fn with_offering(&self, offering: Arc<Offering>, now_ms: i64) -> Self {
        let common = Arc::new(Listed::new(offering));
        Self { common, discovered_at_ms: Some(now_ms), ..self.clone() }.with_all_names()
    }

    /// The entry with the lists for these profiles changed; `None` if they are known already. Lists equal to the common
    /// ones are not kept.
    pub fn with_set(&self, profiles: &[Profile], offering: Option<&Arc<Offering>>) -> Option<Self> {
        let differing = offering.filter(|offering| !offering.same_as(self.offering()));
        let is_known = |profile: &Profile| match (self.sets.get(profile), differing) {
            (None, None) => true,
            (Some(known), Some(offering)) => known.offering.same_as(offering),
            (Some(_), None) | (None, Some(_)) => false,
        };
        if profiles.iter().all(is_known) {
            return None;
        }
        let listed = differing.map(|offering| Arc::new(Listed::new(offering.clone())));
        let mut sets = (*self.sets).clone();
        for profile in profiles {
            match &listed {
                Some(listed) => drop(sets.insert(profile.clone(), listed.clone())),
                None => drop(sets.remove(profile)),
            }
        }
        Some(Self { sets: Arc::new(sets), ..self.clone() }.with_all_names())
    }

    /// Whether callers with this profile are known to see other lists.
    pub fn has_set(&self, profile: &Profile) -> bool {
        self.sets.contains_key(profile)
    }

    /// Collects the names of all lists.
    fn with_all_names(mut self) -> Self {
        let mut all = Cow::Borrowed(&**self.offering());
        for set in self.sets.values() {
            if !set.has_names_of_no_other_than(&all) {
                all = Cow::Owned(all.extended_by(&set.offering));
            }
        }
        self.listed = match all {
            Cow::Borrowed(_) => self.common.clone(),
            Cow::Owned(all) => Arc::new(Listed::new(Arc::new(all))),
        };
        self
    }

    /// The lists for callers with this profile, if they differ from the common ones.
    fn set_for(&self, profile: &Profile) -> Option<&Arc<Listed>> {
        if self.sets.is_empty() {
            return None;
        }
        self.sets.get(&self.upstream.as_ref()?.list_profile(profile)?)
    }

    /// The entry with these lists only.
    fn showing(&self, listed: Arc<Listed>) -> Self {
        Self { common: listed.clone(), listed, sets: Arc::default(), ..self.clone() }
    }

    /// The entry as somebody sees it to whom rules show only a part of what it offers.
    pub fn cut_to(&self, part: Offering, rules: &AllowList) -> Self {
        Self { cut_by: Some(rules.clone()), ..self.showing(Arc::new(Listed::new(Arc::new(part)))) }
    }

    /// The rules by which parts of the lists were left out, if any were.
    pub fn cut_by(&self) -> Option<&AllowList> {
        self.cut_by.as_ref()
    }

    pub fn with_flags(&self, change: impl FnOnce(&mut Flags), now_ms: i64) -> Self {
        let mut registration = (*self.registration).clone();
        change(&mut registration.flags);
        Self { registration: Arc::new(registration), updated_at_ms: now_ms, ..self.clone() }
    }

    pub fn name(&self) -> &ServerName {
        &self.registration.config.name
    }

    /// Notes in the log of the server that it is being enabled or disabled, unless it is so already.
    pub fn note_switch(&self, enabled: bool) {
        if self.is_enabled() != enabled {
            self.journal.note(if enabled { "enabled" } else { "disabled" });
        }
    }

    /// What the server offers to callers without capabilities.
    pub fn offering(&self) -> &Arc<Offering> {
        &self.common.offering
    }

    /// Everything that the server lists to anybody.
    pub fn everything(&self) -> &Arc<Offering> {
        &self.listed.offering
    }

    pub fn is_enabled(&self) -> bool {
        self.registration.flags.enabled
    }

    /// Whether the tool is visible: both the tool and its server are enabled.
    pub fn shows_tool(&self, tool: &str) -> bool {
        self.is_enabled() && !self.disables_tool(tool)
    }

    /// Whether the tool itself is disabled.
    pub fn disables_tool(&self, tool: &str) -> bool {
        self.registration.flags.disabled_tools.contains(tool)
    }

    /// Whether the prompt is visible: both the prompt and its server are enabled.
    pub fn shows_prompt(&self, prompt: &str) -> bool {
        self.is_enabled() && !self.registration.flags.disabled_prompts.contains(prompt)
    }

    pub fn tool(&self, name: &str) -> Option<&Tool> {
        self.listed.tools.find(&self.everything().tools, name)
    }

    pub fn tool_position(&self, name: &str) -> Option<ToolPosition> {
        self.listed.tools.position(&self.everything().tools, name).map(ToolPosition)
    }

    pub fn tool_at(&self, position: ToolPosition) -> &Tool {
        &self.everything().tools[position.0]
    }

    /// Whether the server declares that running the tool twice is safe.
    pub fn is_repeatable(&self, tool: ToolPosition) -> bool {
        *self.listed.tool_uses[tool.0].is_repeatable.get_or_init(|| self.tool_at(tool).is_repeatable())
    }

    /// The meter for calls of a tool.
    pub fn tool_meter(&self, tool: ToolPosition, metrics: &Metrics) -> &ToolMeter {
        let make = || Box::new(metrics.tool_meter(self.name().as_str(), &self.tool_at(tool).name));
        self.listed.tool_uses[tool.0].meter.get_or_init(make)
    }

    /// The arguments of a tool that modern clients repeat in headers.
    pub fn header_params(&self, tool: &str) -> &[HeaderParam] {
        self.listed.header_params.get(tool).map_or(&[], Vec::as_slice)
    }

    pub fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.listed.prompts.find(&self.everything().prompts, name)
    }

    pub fn prompt_position(&self, name: &str) -> Option<usize> {
        self.listed.prompts.position(&self.everything().prompts, name)
    }

    pub fn resource_position(&self, uri: &str) -> Option<usize> {
        self.listed.resources.position(&self.everything().resources, uri)
    }

    pub fn resource(&self, uri: &str) -> Option<&Resource> {
        self.listed.resources.find(&self.everything().resources, uri)
    }

    /// Whether the server declares tools, but lists none.
    pub fn keeps_tools_to_itself(&self) -> bool {
        self.cut_by.is_none() && self.everything().tools.is_empty() && self.offering().declares("tools")
    }

    /// Writes the definition of a tool under its full name; every other byte is as the server sent it.
    pub fn write_tool(&self, tool: &Tool, out: &mut Vec<u8>) {
        self.write_named(&tool.definition, &tool.name, out);
    }

    /// Writes the definition of a prompt in the same way.
    pub fn write_prompt(&self, prompt: &Prompt, out: &mut Vec<u8>) {
        self.write_named(&prompt.definition, &prompt.name, out);
    }

    fn write_named(&self, definition: &RawValue, name: &str, out: &mut Vec<u8>) {
        let definition = definition.get().as_bytes();
        // There is exactly one name: other definitions are not taken in.
        let Some(span) = walk::member(definition, &(0..definition.len()), "name") else {
            return out.extend_from_slice(definition);
        };
        out.extend_from_slice(&definition[..span.start]);
        out.extend_from_slice(&text::quote(&self.name().qualify(name)));
        out.extend_from_slice(&definition[span.end..]);
    }

    /// All tools, sorted by name.
    pub fn tools(&self) -> impl Iterator<Item = &Tool> {
        self.listed.tools.sorted(&self.everything().tools)
    }

    /// All prompts, sorted by name.
    pub fn prompts(&self) -> impl Iterator<Item = &Prompt> {
        self.listed.prompts.sorted(&self.everything().prompts)
    }

    /// All resources, sorted by URI.
    pub fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.listed.resources.sorted(&self.everything().resources)
    }

    /// All templates, in the server's order.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.everything().templates.iter().map(|template| &**template)
    }
}

impl Listed {
    pub fn new(offering: Arc<Offering>) -> Self {
        Self {
            tools: Index::new(&offering.tools, Tool::key),
            prompts: Index::new(&offering.prompts, Prompt::key),
            resources: Index::new(&offering.resources, Resource::key),
            header_params: offering.tools.iter().filter_map(|tool| header_params(tool)).collect(),
            tool_uses: offering.tools.iter().map(|_| ToolUse::default()).collect(),
            offering,
        }
    }

    pub fn offering(&self) -> &Arc<Offering> {
        &self.offering
    }

    /// Whether `other` has all names that these lists have.
    fn has_names_of_no_other_than(&self, other: &Offering) -> bool {
        fn covers<T>(items: &[Arc<T>], others: &[Arc<T>], key: fn(&T) -> &str) -> bool {
            let known: HashSet<_> = others.iter().map(|other| key(other)).collect();
            items.iter().all(|item| known.contains(key(item)))
        }
        covers(&self.offering.tools, &other.tools, Tool::key)
            && covers(&self.offering.prompts, &other.prompts, Prompt::key)
            && covers(&self.offering.resources, &other.resources, Resource::key)
            && covers(&self.offering.templates, &other.templates, Template::key)
    }
}
