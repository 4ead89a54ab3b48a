//! Says whether a user or client may use something, and by which rules. The answer comes from the same checks that decide
//! lists and calls; this file only names the rules that apply.

use super::caller::{Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::principals::Principal;
use super::rights::{contains, decide};
use super::{Error, Gateway};
use model::{AllowList, Item, QualifiedName, Rule};

/// Whether somebody may use something.
#[derive(Debug)]
pub struct Explanation {
    pub allowed: bool,
    /// One sentence.
    pub reason: String,
    /// The rules that are about it, in the order of their lists.
    pub rules: Vec<AppliedRule>,
}

/// A rule that is about what was asked.
#[derive(Debug, PartialEq, Eq)]
pub struct AppliedRule {
    /// Whose rule it is, such as `client ci`.
    pub from: String,
    pub entry: String,
}

/// The reason for those who may not hear more.
const NOT_TOLD: &str = "unknown or not allowed";

impl Gateway {
    /// Finds a user or client by `user:<name>` or `client:<name>`.
    pub fn subject(&self, text: &str) -> Result<Principal, Error> {
        self.require_enterprise()?;
        let catalog = self.catalog();
        let principals = catalog.principals();
        let found = match text.split_once(':') {
            Some(("user", name)) => principals.user(name).and_then(|user| principals.by_id(user.id)),
            Some(("client", name)) => principals.client(name).and_then(|client| principals.by_id(client.id)),
            Some(_) | None => {
                return Err(Error::invalid(format!(
                    "field \"subject\" must be user:<name> or client:<name>, not {text:?}"
                )));
            }
        };
        found.cloned().ok_or_else(|| {
            let (kind, name) = text.split_once(':').unwrap_or_default();
            Error::not_found(format!("{kind} {name:?} does not exist"))
        })
    }

    /// Explains whether a user or client may use the tool, prompt or server of this name.
    pub fn explain(&self, subject: &Principal, name: &str) -> Explanation {
        explain(&self.catalog(), subject, name)
    }

    /// The same in the words for the subject itself, which must not learn what exists.
    pub fn explain_to_self(&self, subject: &Principal, name: &str) -> Explanation {
        let Explanation { allowed, .. } = self.explain(subject, name);
        let reason = if allowed { "allowed" } else { NOT_TOLD };
        Explanation { allowed, reason: reason.to_owned(), rules: Vec::new() }
    }
}

fn explain(catalog: &Catalog, subject: &Principal, name: &str) -> Explanation {
    let verdict = verdict(catalog, subject, name);
    let rules = applied(catalog, subject, name);
    let (allowed, reason) = match verdict {
        _ if subject.is_disabled() => {
            (false, format!("{} is disabled, so everything is refused", title(subject)))
        }
        Ok(()) => (true, format!("allowed by {}", quoted(rules.iter().find(|rule| !denies(rule))))),
        Err(Hidden::Unknown(what)) => (false, what),
        Err(Hidden::Disabled(what)) => (false, what),
        Err(Hidden::ByRule(what)) => match rules.iter().find(|rule| denies(rule)) {
            Some(rule) => (false, format!("{what} is hidden by the rule {}", quoted(Some(rule)))),
            None => (false, format!("{what} is hidden, since no rule of {} allows it", title(subject))),
        },
    };
    Explanation { allowed, reason, rules }
}

/// What hides a name from somebody.
enum Hidden {
    Unknown(String),
    Disabled(String),
    ByRule(String),
}

fn verdict(catalog: &Catalog, subject: &Principal, name: &str) -> Result<(), Hidden> {
    let (server, item) = split(name);
    let Some(entry) = catalog.get(server) else {
        return Err(Hidden::Unknown(format!("there is no server {server:?}")));
    };
    let viewer = Viewer { scope: Scope::Everything, principal: Some(subject.id()) };
    let Some(lens) = catalog.lens(&viewer) else {
        return Err(Hidden::Unknown(format!("{} does not exist", title(subject))));
    };
    let Some(item) = item else {
        let is_allowed = |item: Item<'_>| decide(catalog, lens.allowed, server, item);
        return match (entry.is_enabled(), lens.may_see(entry)) {
            (true, true) => Ok(()),
            (_, false) if !has_any(entry, is_allowed) => {
                Err(Hidden::ByRule(format!("the server {server:?}")))
            }
            (true, false) => {
                Err(Hidden::Disabled(format!("all that is allowed of the server {server:?} is disabled")))
            }
            (false, _) => Err(Hidden::Disabled(format!("the server {server:?} is disabled"))),
        };
    };
    // A tool and a prompt may have the same name.
    let (is_tool, is_prompt) = (entry.tool(item).is_some(), entry.prompt(item).is_some());
    if !is_tool && !is_prompt && !entry.keeps_tools_to_itself() {
        return Err(Hidden::Unknown(format!("the server {server:?} has no tool or prompt {item:?}")));
    }
    if (is_tool || !is_prompt) && lens.shows_tool(entry, item) || is_prompt && lens.shows_prompt(entry, item)
    {
        return Ok(());
    }
    let (kind, item) = match is_tool || !is_prompt {
        true => ("tool", Item::Tool(item)),
        false => ("prompt", Item::Prompt(item)),
    };
    Err(match (decide(catalog, lens.allowed, server, item), entry.is_enabled()) {
        (false, _) => Hidden::ByRule(format!("the {kind} {name:?}")),
        (true, false) => Hidden::Disabled(format!("the server {server:?} is disabled")),
        (true, true) => Hidden::Disabled(format!("the {kind} {name:?} is disabled")),
    })
}

/// The server of a name, and the name of a tool or prompt there.
fn split(name: &str) -> (&str, Option<&str>) {
    match QualifiedName::parse(name) {
        Some(name) => (name.server, Some(name.item)),
        None => (name, None),
    }
}

/// The rules that are about a name, with those whose they are.
fn applied(catalog: &Catalog, subject: &Principal, name: &str) -> Vec<AppliedRule> {
    let (server, item) = split(name);
    let entry = catalog.get(server);
    let is_prompt =
        |item: &str| entry.is_some_and(|entry| entry.tool(item).is_none() && entry.prompt(item).is_some());
    let applies = |rule: &Rule| match item {
        Some(item) => {
            let item = if is_prompt(item) { Item::Prompt(item) } else { Item::Tool(item) };
            rule.matches(server, item, |group| contains(catalog, group, server, item))
        }
        None => is_about(catalog, rule, server, entry.map(|entry| &**entry)),
    };
    let mut found = Vec::new();
    for (from, list) in sources(catalog, subject) {
        let parsed = list.entries().iter().filter_map(|entry| Some((entry, Rule::parse(entry).ok()?)));
        let parsed = parsed.filter(|(_, rule)| applies(rule));
        found.extend(parsed.map(|(entry, _)| AppliedRule { from: from.clone(), entry: entry.clone() }));
    }
    found
}

/// Whether a rule is about a server or anything of it.
fn is_about(catalog: &Catalog, rule: &Rule, server: &str, entry: Option<&Entry>) -> bool {
    let none = |_: &str| false;
    if rule.matches(server, Item::Templates, none) {
        return true;
    }
    let matches = |item: Item<'_>| rule.matches(server, item, |group| contains(catalog, group, server, item));
    entry.is_some_and(|entry| has_any(entry, matches) || matches(Item::Templates))
}

/// Whether something is true of anything that a server has.
fn has_any(entry: &Entry, is_true: impl Fn(Item<'_>) -> bool) -> bool {
    let offering = entry.everything();
    offering.tools.iter().any(|tool| is_true(Item::Tool(&tool.name)))
        || offering.prompts.iter().any(|prompt| is_true(Item::Prompt(&prompt.name)))
        || offering.resources.iter().any(|resource| is_true(Item::Resource(&resource.uri)))
        || !offering.templates.is_empty() && is_true(Item::Templates)
}

/// The lists that count for somebody, with those whose they are.
fn sources<'a>(catalog: &'a Catalog, subject: &'a Principal) -> Vec<(String, &'a AllowList)> {
    match subject {
        Principal::Client(client) => vec![(title(subject), &client.holder.allow_list)],
        Principal::User(user) => {
            let own = (title(subject), &user.holder.allow_list);
            let groups =
                user.holder.idp.iter().flat_map(|account| catalog.principals().idp_groups_of(account));
            let groups = groups.map(|group| (format!("IdP group {}", group.name), &group.allow_list));
            std::iter::once(own).chain(groups).collect()
        }
    }
}

fn title(subject: &Principal) -> String {
    match subject {
        Principal::User(user) => format!("user {}", user.holder.username),
        Principal::Client(client) => format!("client {}", client.holder.name),
    }
}

fn denies(rule: &AppliedRule) -> bool {
    Rule::parse(&rule.entry).is_ok_and(|rule| rule.denies)
}

fn quoted(rule: Option<&AppliedRule>) -> String {
    rule.map_or_else(|| "the rules".to_owned(), |rule| format!("{:?} of {}", rule.entry, rule.from))
}
