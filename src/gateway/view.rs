//! What can be seen and reached through one endpoint, computed from the catalog in one place: a group's
//! `effective-tools` and what its proxy shows can never differ.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::catalog::{Catalog, Entry};
use crate::model::group::EVERYTHING;
use crate::model::{Group, Prompt, QualifiedName, Resource, ResourceUri, Template, Tool};

/// Which part of the catalog an endpoint is about.
#[derive(Clone, Copy)]
pub enum Scope<'a> {
    Everything,
    Group(&'a Group),
    Server(&'a str),
}

/// The content of a scope for one caller: enabled things only, in the order of their full names.
#[derive(Default)]
pub struct View<'a> {
    pub tools: Vec<(&'a Arc<Entry>, &'a Tool)>,
    pub prompts: Vec<(&'a Arc<Entry>, &'a Prompt)>,
    pub resources: Vec<(&'a Arc<Entry>, &'a Resource)>,
    pub templates: Vec<(&'a Arc<Entry>, &'a Template)>,
}

impl Catalog {
    /// `admits` says which servers the caller may reach at all.
    pub fn view(&self, scope: Scope<'_>, admits: impl Fn(&Entry) -> bool) -> View<'_> {
        let mut view = View::default();
        let reachable = |entry: &&Arc<Entry>| entry.is_enabled() && admits(entry);
        match scope {
            Scope::Everything => {
                for entry in self.entries_by_full_name().into_iter().filter(reachable) {
                    view.add_server(entry);
                }
            }
            Scope::Server(name) => {
                if let Some(entry) = self.get(name).filter(reachable) {
                    view.add_server(entry);
                }
            }
            Scope::Group(group) => {
                let members = Members::of(group);
                for entry in self.entries_by_full_name().into_iter().filter(reachable) {
                    view.add_members(entry, &members);
                }
            }
        }
        view
    }

    /// The full names of the tools that a group's endpoints show to everybody.
    pub fn effective_tools(&self, group: &Group) -> Vec<String> {
        let view = self.view(Scope::Group(group), |_| true);
        view.tools.iter().map(|(entry, tool)| entry.name().qualify(&tool.name)).collect()
    }
}

impl<'a> View<'a> {
    fn add_server(&mut self, entry: &'a Arc<Entry>) {
        self.tools
            .extend(entry.tools().filter(|tool| entry.shows_tool(&tool.name)).map(|tool| (entry, tool)));
        self.add_prompts(entry, |_| true);
        self.add_resources(entry, |_| true);
        self.templates.extend(entry.offering().templates.iter().map(|template| (entry, template)));
    }

    fn add_members(&mut self, entry: &'a Arc<Entry>, members: &Members<'_>) {
        let server = entry.name().as_str();
        let whole_server = members.servers.contains(server);
        let is_in = |tool: &&Tool| {
            let name = (server, tool.name.as_str());
            (whole_server || members.tools.contains(&name)) && !members.excluded.contains(&name)
        };
        let tools = entry.tools().filter(|tool| entry.shows_tool(&tool.name)).filter(is_in);
        self.tools.extend(tools.map(|tool| (entry, tool)));
        let every_prompt = members.every_prompt && whole_server;
        self.add_prompts(entry, |prompt| every_prompt || members.prompts.contains(&(server, prompt)));
        let every_resource = members.every_resource && whole_server;
        self.add_resources(entry, |uri| every_resource || members.names_resource(entry, uri));
        if every_resource {
            self.templates.extend(entry.offering().templates.iter().map(|template| (entry, template)));
        }
    }

    fn add_prompts(&mut self, entry: &'a Arc<Entry>, is_in: impl Fn(&str) -> bool) {
        let prompts =
            entry.prompts().filter(|prompt| entry.shows_prompt(&prompt.name) && is_in(&prompt.name));
        self.prompts.extend(prompts.map(|prompt| (entry, prompt)));
    }

    fn add_resources(&mut self, entry: &'a Arc<Entry>, is_in: impl Fn(&str) -> bool) {
        let resources = entry.resources().filter(|resource| is_in(&resource.uri));
        self.resources.extend(resources.map(|resource| (entry, resource)));
    }
}

/// A group's members, taken apart for looking up.
struct Members<'a> {
    servers: HashSet<&'a str>,
    tools: HashSet<(&'a str, &'a str)>,
    excluded: HashSet<(&'a str, &'a str)>,
    prompts: HashSet<(&'a str, &'a str)>,
    every_prompt: bool,
    resources: BTreeSet<ResourceKey>,
    every_resource: bool,
}

/// A server (none: whichever has it) and an upstream URI.
type ResourceKey = (Option<String>, String);

impl<'a> Members<'a> {
    fn of(group: &'a Group) -> Self {
        let resources = group.included_resources.iter().filter_map(|uri| match ResourceUri::parse(uri) {
            Ok(ResourceUri::Upstream(uri)) => Some((None, uri)),
            Ok(ResourceUri::Qualified { server, uri }) => Some((Some(server.to_string()), uri)),
            Err(_) => None,
        });
        Self {
            servers: group.included_servers.iter().map(String::as_str).collect(),
            tools: pairs(&group.included_tools),
            excluded: pairs(&group.excluded_tools),
            prompts: pairs(&group.included_prompts),
            every_prompt: group.included_prompts.iter().any(|name| name == EVERYTHING),
            resources: resources.collect(),
            every_resource: group.included_resources.iter().any(|uri| uri == EVERYTHING),
        }
    }

    fn names_resource(&self, entry: &Entry, uri: &str) -> bool {
        !self.resources.is_empty()
            && (self.resources.contains(&(None, uri.to_owned()))
                || self.resources.contains(&(Some(entry.name().to_string()), uri.to_owned())))
    }
}

fn pairs(names: &[String]) -> HashSet<(&str, &str)> {
    names.iter().filter_map(|name| QualifiedName::parse(name)).map(|name| (name.server, name.item)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Offering, Registration, uri};

    /// A server with the tool `t`, the prompts `p` and `q`, the resources `x://1` and `x://2`, and a template.
    fn entry(name: &str, more: Value) -> Entry {
        let mut input = json!({"name": name, "transport": "stdio", "command": "true"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let raw = |value: Value| serde_json::value::to_raw_value(&value).unwrap();
        let offering = Offering {
            tools: vec![Tool::parse(raw(json!({"name": "t"}))).unwrap()],
            prompts: ["p", "q"].map(|name| Prompt::parse(raw(json!({"name": name}))).unwrap()).into(),
            resources: ["x://1", "x://2"]
                .map(|uri| Resource::parse(raw(json!({"uri": uri}))).unwrap())
                .into(),
            templates: vec![Template::parse(raw(json!({"uriTemplate": "x://{n}"}))).unwrap()],
            ..Offering::default()
        };
        let registration = Registration::parse(input.as_object().unwrap().clone()).unwrap();
        Entry::new(registration, Arc::new(offering), None, 0, None)
    }

    /// Everything in the view, as `<server> <key>`.
    fn seen(catalog: &Catalog, scope: Scope<'_>, admits: impl Fn(&Entry) -> bool) -> Vec<String> {
        fn tell<T>(items: &[(&Arc<Entry>, &T)], key: fn(&T) -> &str) -> Vec<String> {
            items.iter().map(|(entry, item)| format!("{} {}", entry.name(), key(item))).collect()
        }
        let view = catalog.view(scope, admits);
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
        seen(&catalog(), Scope::Group(&Group::parse(object).unwrap()), |_| true)
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
    fn a_view_has_what_is_enabled_of_the_servers_that_the_caller_may_reach() {
        let catalog = catalog();
        let of_a = ["a t", "a p", "a x://1", "a x://2", "a x://{n}"];
        assert_eq!(seen(&catalog, Scope::Server("a"), |_| true), of_a);
        assert_eq!(seen(&catalog, Scope::Everything, |entry| entry.name().as_str() == "a"), of_a);
        assert_eq!(seen(&catalog, Scope::Everything, |_| true).len(), 11);
        for nothing in ["off", "gone"] {
            assert!(seen(&catalog, Scope::Server(nothing), |_| true).is_empty());
        }
        assert!(seen(&catalog, Scope::Server("a"), |_| false).is_empty());
    }
}
