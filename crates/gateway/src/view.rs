//! Decides what can be seen and used through one endpoint. Lists and calls use the same checks, so a group's
//! `effective-tools`, what its endpoint lists and what it lets callers use can never differ.

use std::sync::Arc;

use super::caller::{LinkScope, Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::members::GroupMembers;
use super::rights::Rights;
use model::{AllowList, Prompt, Resource, Template, Tool};

/// A viewer, resolved in a catalog: decides what exists for it.
#[derive(Clone)]
pub struct Lens<'a> {
    pub part: Part<'a>,
    pub allowed: &'a AllowList,
    /// What the list means, if it has rules about more than whole servers.
    rights: Option<Arc<Rights>>,
    catalog: &'a Catalog,
}

/// A scope, resolved in a catalog: decides what is inside.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    Everything,
    Group(&'a GroupMembers),
    Server(&'a str),
}

/// What hides a server or something of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    OtherServer,
    ServerDisabled,
    NotAllowed,
    /// The server is there, and a rule hides the tool.
    HiddenByRule,
    Disabled,
    NotInGroup,
}

/// What hides something if it is true.
type VisibilityCheck = (Obstacle, bool);

fn passes(checks: &[VisibilityCheck]) -> bool {
    checks.iter().all(|(_, hides)| !hides)
}

fn failed(checks: impl IntoIterator<Item = VisibilityCheck>) -> Vec<Obstacle> {
    checks.into_iter().filter(|(_, hides)| *hides).map(|(obstacle, _)| obstacle).collect()
}

impl Lens<'_> {
    /// Whether anything of the server can be visible at all.
    pub fn admits(&self, entry: &Entry) -> bool {
        passes(&self.server_checks(entry))
    }

    /// What hides a tool; nothing if [`Self::shows_tool`].
    pub fn tool_obstacles(&self, entry: &Entry, tool: &str) -> Vec<Obstacle> {
        let is_hidden = !self.may_see(entry);
        let of_tool = self.tool_checks(entry, tool).into_iter();
        // A server that is not allowed says all about its tools.
        let of_tool = of_tool.filter(|(obstacle, _)| !is_hidden || *obstacle != Obstacle::HiddenByRule);
        failed(self.server_checks(entry).into_iter().chain(of_tool))
    }

    /// What hides all tools of a server.
    pub fn server_obstacles(&self, entry: &Entry) -> Vec<Obstacle> {
        let is_outside = (Obstacle::NotInGroup, !self.has_tools_of(entry));
        failed(self.server_checks(entry).into_iter().chain([is_outside]))
    }

    #[inline]
    fn server_checks(&self, entry: &Entry) -> [VisibilityCheck; 3] {
        let is_inside = match self.part {
            Part::Server(name) => entry.name().as_str() == name,
            Part::Everything | Part::Group(_) => true,
        };
        [
            (Obstacle::OtherServer, !is_inside),
            (Obstacle::ServerDisabled, !entry.is_enabled()),
            (Obstacle::NotAllowed, !self.may_see(entry)),
        ]
    }

    #[inline]
    pub fn may_see(&self, entry: &Entry) -> bool {
        match &self.rights {
            None => self.allowed.allows(entry.name().as_str()),
            Some(rights) => rights.shows_server(entry.name().as_str()),
        }
    }

    /// This and the next three ask the rules about single names, if there are any.
    #[inline]
    pub fn may_use_tool(&self, entry: &Entry, tool: &str) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.allows_tool(self.catalog, entry, tool))
    }

    pub fn may_use_prompt(&self, entry: &Entry, prompt: &str) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.allows_prompt(entry, prompt))
    }

    pub fn may_use_resource(&self, entry: &Entry, uri: &str) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.allows_resource(self.catalog, entry, uri))
    }

    fn may_use_templates(&self, entry: &Entry) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.allows_templates(entry))
    }

    #[inline]
    fn tool_checks(&self, entry: &Entry, tool: &str) -> [VisibilityCheck; 3] {
        let is_member = match self.part {
            Part::Everything | Part::Server(_) => true,
            Part::Group(members) => members.has_tool(entry.name().as_str(), tool),
        };
        [
            (Obstacle::HiddenByRule, !self.may_use_tool(entry, tool)),
            (Obstacle::Disabled, entry.disables_tool(tool)),
            (Obstacle::NotInGroup, !is_member),
        ]
    }

    pub fn shows_tool(&self, entry: &Entry, tool: &str) -> bool {
        self.admits(entry) && self.has_tool(entry, tool)
    }

    pub fn shows_prompt(&self, entry: &Entry, prompt: &str) -> bool {
        self.admits(entry) && self.has_prompt(entry, prompt)
    }

    pub fn shows_resource(&self, entry: &Entry, uri: &str) -> bool {
        self.admits(entry) && self.has_resource(entry, uri)
    }

    /// Whether the templates of a server are visible; in a group, only if all resources of the server are.
    pub fn shows_templates(&self, entry: &Entry) -> bool {
        self.admits(entry) && self.has_templates(entry)
    }

    /// Whether a resource that a template makes is visible, listed or not.
    pub fn shows_made(&self, entry: &Entry, uri: &str) -> bool {
        self.shows_templates(entry) && self.may_use_resource(entry, uri)
    }

    /// Whether the endpoint of a server passes on methods that the gateway does not know: only if all of the server is
    /// allowed, since nobody can tell what they do.
    pub fn passes_unknown_methods(&self, server: &str) -> bool {
        self.rights.as_ref().is_none_or(|rights| rights.has_whole_server(server))
    }

    /// Whether the tasks of a server are visible; in a group, only if it has tools of the server, which start tasks.
    pub fn shows_tasks(&self, entry: &Entry) -> bool {
        self.admits(entry) && self.has_tools_of(entry)
    }

    fn has_tools_of(&self, entry: &Entry) -> bool {
        match self.part {
            Part::Everything | Part::Server(_) => true,
            Part::Group(members) => members.has_tools_of(entry.name().as_str()),
        }
    }

    /// A list of a server in the order in which this part shows it.
    fn ordered<'a, T>(
        &self,
        own: &'a [Arc<T>],
        sorted: impl Iterator<Item = &'a T>,
    ) -> impl Iterator<Item = &'a T> {
        let (own, sorted) = match self.part {
            Part::Server(_) => (own, None),
            Part::Everything | Part::Group(_) => (&own[..0], Some(sorted)),
        };
        own.iter().map(|item| &**item).chain(sorted.into_iter().flatten())
    }

    /// This and the next three are for a server that is already admitted.
    fn has_tool(&self, entry: &Entry, tool: &str) -> bool {
        passes(&self.tool_checks(entry, tool))
    }

    fn has_prompt(&self, entry: &Entry, prompt: &str) -> bool {
        entry.shows_prompt(prompt)
            && self.may_use_prompt(entry, prompt)
            && match self.part {
                Part::Everything | Part::Server(_) => true,
                Part::Group(members) => members.has_prompt(entry.name().as_str(), prompt),
            }
    }

    fn has_resource(&self, entry: &Entry, uri: &str) -> bool {
        self.may_use_resource(entry, uri)
            && match self.part {
                Part::Everything | Part::Server(_) => true,
                Part::Group(members) => members.has_resource(entry.name().as_str(), uri),
            }
    }

    fn has_templates(&self, entry: &Entry) -> bool {
        self.may_use_templates(entry)
            && match self.part {
                Part::Everything | Part::Server(_) => true,
                Part::Group(members) => members.has_templates(entry.name().as_str()),
            }
    }
}

/// What a viewer sees: only what is enabled, sorted by full name, or in the own order of the only server.
#[derive(Default)]
pub struct View<'a> {
    pub tools: Vec<(&'a Arc<Entry>, &'a Tool)>,
    pub prompts: Vec<(&'a Arc<Entry>, &'a Prompt)>,
    pub resources: Vec<(&'a Arc<Entry>, &'a Resource)>,
    pub templates: Vec<(&'a Arc<Entry>, &'a Template)>,
}

impl Catalog {
    /// Resolves a viewer; `None` if there is no such group for this viewer, no such enabled server for this viewer, or no
    /// such client.
    pub fn lens<'a>(&'a self, viewer: &'a Viewer) -> Option<Lens<'a>> {
        self.lens_for(&viewer.scope, self.principals().allow_list(viewer.principal)?)
    }

    /// Resolves a viewer even if the group or server of its endpoint does not exist for it: to find out why.
    pub fn lens_unchecked<'a>(&'a self, viewer: &'a Viewer) -> Option<Lens<'a>> {
        let allowed = self.principals().allow_list(viewer.principal)?;
        let part = match &viewer.scope {
            Scope::Everything => Part::Everything,
            Scope::Group(name) => Part::Group(self.members(name)?),
            Scope::Server(name) | Scope::Link(LinkScope { server: name, .. }) => Part::Server(name),
        };
        Some(self.lens_of(part, allowed))
    }

    fn lens_of<'a>(&'a self, part: Part<'a>, allowed: &'a AllowList) -> Lens<'a> {
        let rights = (!allowed.is_plain()).then(|| self.rights_of(allowed));
        Lens { part, allowed, rights, catalog: self }
    }

    fn lens_for<'a>(&'a self, scope: &'a Scope, allowed: &'a AllowList) -> Option<Lens<'a>> {
        match scope {
            Scope::Everything => Some(self.lens_of(Part::Everything, allowed)),
            Scope::Group(name) => {
                let members = self.members(name)?;
                let lens = self.lens_of(Part::Group(members), allowed);
                self.may_enter(name, members, &lens).then_some(lens)
            }
            Scope::Server(name) | Scope::Link(LinkScope { server: name, .. }) => {
                let lens = self.lens_of(Part::Server(name), allowed);
                self.get(name).filter(|entry| entry.is_enabled() && lens.may_see(entry))?;
                Some(lens)
            }
        }
    }

    /// Whether a group exists for a viewer: not if it has members and the viewer may use none of them, since its name and
    /// description would tell about servers that do not exist for the viewer.
    fn may_enter(&self, name: &str, members: &GroupMembers, lens: &Lens<'_>) -> bool {
        let allowed = lens.allowed;
        if allowed.allows_everything() || members.is_empty() {
            return true;
        }
        if members.named_servers().any(|server| match &lens.rights {
            None => allowed.allows(server),
            Some(rights) => rights.has_whole_server(server),
        }) {
            return true;
        }
        match &lens.rights {
            None => {
                let has_resource = |entry: &Arc<Entry>| {
                    members.any_server_resources().iter().any(|uri| entry.resource(uri).is_some())
                };
                self.entries().any(|entry| allowed.allows(entry.name().as_str()) && has_resource(entry))
            }
            Some(rights) => rights
                .shows_group(name, || self.entries().any(|entry| has_allowed_member(entry, members, lens))),
        }
    }

    pub fn view(&self, lens: &Lens<'_>) -> View<'_> {
        let mut view = View::default();
        for entry in self.entries_by_full_name().into_iter().filter(|entry| lens.admits(entry)) {
            let offering = entry.offering();
            let tools = lens.ordered(&offering.tools, entry.tools());
            let tools = tools.filter(|tool| lens.has_tool(entry, &tool.name));
            view.tools.extend(tools.map(|tool| (entry, tool)));
            let prompts = lens.ordered(&offering.prompts, entry.prompts());
            let prompts = prompts.filter(|prompt| lens.has_prompt(entry, &prompt.name));
            view.prompts.extend(prompts.map(|prompt| (entry, prompt)));
            let resources = lens.ordered(&offering.resources, entry.resources());
            let resources = resources.filter(|resource| lens.has_resource(entry, &resource.uri));
            view.resources.extend(resources.map(|resource| (entry, resource)));
            if lens.has_templates(entry) {
                view.templates.extend(entry.templates().map(|template| (entry, template)));
            }
        }
        view
    }

    /// The full names of the tools that a group's endpoints show to a viewer who may use all servers.
    pub fn effective_tools(&self, group: &str) -> Vec<String> {
        self.tools_in(group).iter().map(|(entry, tool)| entry.name().qualify(&tool.name)).collect()
    }

    /// The tools that a group's endpoints show to a viewer who may use all servers.
    pub fn tools_in(&self, group: &str) -> Vec<(&Arc<Entry>, &Tool)> {
        let everybody = Viewer { scope: Scope::Group(group.to_owned()), principal: None };
        self.lens(&everybody).map(|lens| self.view(&lens).tools).unwrap_or_default()
    }
}

/// Whether the rules allow any member of a group that a server has, enabled or not.
fn has_allowed_member(entry: &Entry, members: &GroupMembers, lens: &Lens<'_>) -> bool {
    let (server, all) = (entry.name().as_str(), entry.everything());
    let has_tool = |name: &str| members.has_tool(server, name) && lens.may_use_tool(entry, name);
    let has_prompt = |name: &str| members.has_prompt(server, name) && lens.may_use_prompt(entry, name);
    let has_resource = |uri: &str| members.has_resource(server, uri) && lens.may_use_resource(entry, uri);
    all.tools.iter().any(|tool| has_tool(&tool.name))
        || all.prompts.iter().any(|prompt| has_prompt(&prompt.name))
        || all.resources.iter().any(|resource| has_resource(&resource.uri))
        || !all.templates.is_empty() && members.has_templates(server) && lens.may_use_templates(entry)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use model::{Group, Offering, Registration, uri};
    use upstream::Journal;

    /// A server with the tool `t`, the prompts `p` and `q`, the resources `x://1` and `x://2`, and a template.
    fn entry(name: &str, more: Value) -> Entry {
        let mut input = json!({"name": name, "transport": "stdio", "command": "true"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let raw = |value: Value| serde_json::value::to_raw_value(&value).unwrap();
        let offering = Offering {
            tools: vec![Arc::new(Tool::parse(raw(json!({"name": "t"}))).unwrap())],
            prompts: ["p", "q"]
                .map(|name| Arc::new(Prompt::parse(raw(json!({"name": name}))).unwrap()))
                .into(),
            resources: ["x://1", "x://2"]
                .map(|uri| Arc::new(Resource::parse(raw(json!({"uri": uri}))).unwrap()))
                .into(),
            templates: vec![Arc::new(Template::parse(raw(json!({"uriTemplate": "x://{n}"}))).unwrap())],
            ..Offering::default()
        };
        let registration = Registration::parse(input.as_object().unwrap().clone()).unwrap();
        Entry::new(registration, Arc::new(offering), None, Journal::default(), 0, None)
    }

    /// Everything in the view, as `<server> <key>`.
    fn seen(catalog: &Catalog, scope: Scope, allowed: &[&str]) -> Vec<String> {
        fn tell<T>(items: &[(&Arc<Entry>, &T)], key: fn(&T) -> &str) -> Vec<String> {
            items.iter().map(|(entry, item)| format!("{} {}", entry.name(), key(item))).collect()
        }
        let allowed = AllowList::new(allowed.iter().map(|name| name.to_string()).collect());
        let Some(lens) = catalog.lens_for(&scope, &allowed) else { return Vec::new() };
        let view = catalog.view(&lens);
        let (tools, prompts) = (tell(&view.tools, Tool::key), tell(&view.prompts, Prompt::key));
        let (resources, templates) =
            (tell(&view.resources, Resource::key), tell(&view.templates, Template::key));
        [tools, prompts, resources, templates].concat()
    }

    fn catalog() -> Catalog {
        let entries = [
            entry("a", json!({"disabled_prompts": ["q"]})),
            entry("b", json!({})),
            entry("off", json!({"enabled": false})),
        ];
        Catalog::new(entries, [])
    }

    fn seen_in_group(group: Value) -> Vec<String> {
        let mut object = group.as_object().unwrap().clone();
        object.insert("name".into(), json!("g"));
        let catalog = catalog().with_group(Group::parse(object).unwrap());
        seen(&catalog, Scope::Group("g".into()), &["*"])
    }

    #[test]
    fn a_group_has_prompts_and_resources_only_as_configured() {
        let group = json!({"included_servers": ["a", "off"]});
        assert_eq!(seen_in_group(group), ["a t"]);
        let every = json!({"included_servers": ["a", "off"], "included_tools": ["b__t"],
            "included_prompts": ["*"], "included_resources": ["*"]});
        assert_eq!(seen_in_group(every), ["a t", "b t", "a p", "a x://1", "a x://2", "a x://{n}"]);
        let qualified = uri::qualify(entry("b", json!({})).name(), "x://2");
        let named = json!({"included_servers": ["a"], "excluded_tools": ["a__t"],
            "included_prompts": ["b__q", "a__q", "off__p"], "included_resources": ["x://1", qualified]});
        assert_eq!(seen_in_group(named), ["b q", "a x://1", "b x://1", "b x://2"]);
        let both = json!({"included_servers": ["a"], "included_prompts": ["*", "b__q"]});
        assert_eq!(seen_in_group(both), ["a t", "a p", "b q"]);
    }

    #[test]
    fn a_group_exists_for_viewers_who_may_use_one_of_its_members() {
        let exists = |group: Value, allowed: &[&str]| {
            let mut object = group.as_object().unwrap().clone();
            object.insert("name".into(), json!("g"));
            let catalog = catalog().with_group(Group::parse(object).unwrap());
            let allowed = AllowList::new(allowed.iter().map(|name| name.to_string()).collect());
            catalog.lens_for(&Scope::Group("g".into()), &allowed).is_some()
        };
        let qualified = uri::qualify(entry("b", json!({})).name(), "x://2");
        for group in [
            json!({"included_servers": ["b"]}),
            json!({"included_tools": ["b__t"]}),
            json!({"included_tools": ["gone__t"], "included_prompts": ["b__p"]}),
            json!({"included_tools": ["gone__t"], "included_resources": [qualified]}),
        ] {
            for (allowed, expected) in
                [(&["*"][..], true), (&["b"], true), (&["a", "b"], true), (&["a"], false), (&[], false)]
            {
                assert_eq!(exists(group.clone(), allowed), expected, "{group} {allowed:?}");
            }
        }
        // A server that is gone or disabled may be allowed all the same.
        assert!(exists(json!({"included_servers": ["off"]}), &["off"]));
        assert!(exists(json!({"included_servers": ["gone"]}), &["gone"]));
        // A URI without a server is a member wherever it is listed.
        let anywhere = json!({"included_tools": ["gone__t"], "included_resources": ["x://1"]});
        assert!(exists(anywhere.clone(), &["a"]) && !exists(anywhere, &[]));
        // Names that cannot be members are none.
        assert!(exists(json!({"included_tools": ["nothing"]}), &[]));
    }

    #[test]
    fn a_view_has_what_is_enabled_of_the_servers_that_the_caller_may_reach() {
        let catalog = catalog();
        let of_a = ["a t", "a p", "a x://1", "a x://2", "a x://{n}"];
        assert_eq!(seen(&catalog, Scope::Server("a".into()), &["a"]), of_a);
        assert_eq!(seen(&catalog, Scope::Everything, &["off", "gone", "a"]), of_a);
        assert_eq!(seen(&catalog, Scope::Everything, &["*"]).len(), 11);
        for nothing in ["off", "gone"] {
            assert!(seen(&catalog, Scope::Server(nothing.into()), &["*"]).is_empty());
        }
        assert!(seen(&catalog, Scope::Server("a".into()), &["b"]).is_empty());
    }
}
