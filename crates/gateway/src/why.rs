//! Answers why a caller cannot see a tool or a server, or that it can. Every verdict comes from the checks of `view`, which
//! decide what callers see; this file only names them.

use std::sync::Arc;

use super::caller::{Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::record::state_of;
use super::view::{Lens, Obstacle, Part};
use super::{Error, Gateway};
use model::{QualifiedName, Status, name};

/// Whether a caller sees a tool or a server, and why not.
#[derive(Debug)]
pub struct Visibility {
    pub visible: bool,
    /// Why it is not visible, all that apply; empty if it is.
    pub reasons: Vec<Remark>,
    /// What may still be in the way of a caller who sees it.
    pub warnings: Vec<Remark>,
    /// For a server: its tools.
    pub tools: Option<ToolsVisibility>,
}

/// The tools of a server: how many there are, and which of them a caller does not see.
#[derive(Debug)]
pub struct ToolsVisibility {
    pub total: usize,
    pub hidden: Vec<HiddenTool>,
}

/// A tool that a caller does not see.
#[derive(Debug)]
pub struct HiddenTool {
    /// The full name.
    pub name: String,
    pub reasons: Vec<Remark>,
}

/// One cause: a code for programs, and a sentence for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Remark {
    pub code: &'static str,
    pub message: String,
}

impl Remark {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The caller that is asked about: anybody, or an MCP client, at the endpoint of everything, of a group or of a server.
pub struct AskedViewer<'a> {
    pub group: Option<&'a str>,
    pub server: Option<&'a str>,
    pub client: Option<&'a str>,
}

impl Gateway {
    /// Explains whether a caller sees the tool or the server of this name. Unknown groups, servers of endpoints and
    /// clients are errors; an unknown name is an answer.
    pub fn why(&self, name: &str, asked: &AskedViewer<'_>) -> Result<Visibility, Error> {
        let catalog = self.catalog();
        let client = match asked.client {
            None => None,
            Some(name) => {
                self.require_enterprise()?;
                let found = catalog.principals().client(name);
                Some(found.ok_or_else(|| Error::not_found(format!("client {name:?} does not exist")))?.id)
            }
        };
        let scope = match (asked.group, asked.server) {
            (None, None) => Scope::Everything,
            (Some(name), None) => Scope::Group(catalog.group(name)?.name.to_string()),
            (None, Some(name)) => Scope::Server(catalog.require(name)?.name().to_string()),
            (Some(_), Some(_)) => {
                return Err(Error::invalid("an endpoint has a group or a server, not both"));
            }
        };
        Ok(explain(&catalog, &Viewer { scope, principal: client }, name))
    }
}

fn explain(catalog: &Catalog, viewer: &Viewer, name: &str) -> Visibility {
    let (server, tool) = match QualifiedName::parse(name) {
        Some(name) => (name.server, Some(name.item)),
        None => (name, None),
    };
    let Some(entry) = catalog.get(server) else {
        let message = format!("there is no server {server:?}");
        return hidden(vec![Remark::new("unknown_server", message)]);
    };
    let mut reasons = Vec::new();
    let lens = catalog.lens(viewer);
    if lens.is_none() && matches!(viewer.scope, Scope::Group(_)) {
        let message = "the group has only servers that are not on the allow list of the client, so for this client the \
                       group does not exist";
        reasons.push(Remark::new("group_hidden", message));
    }
    // The same viewer at an endpoint that it may not use, to name what else is in the way.
    let Some(lens) = lens.or_else(|| catalog.lens_unchecked(viewer)) else { return hidden(reasons) };
    let obstacles = match tool {
        Some(tool) => lens.tool_obstacles(entry, tool),
        None => lens.server_obstacles(entry),
    };
    reasons.extend(described(obstacles, &lens, entry, tool));
    if let Some(tool) = tool.filter(|tool| entry.tool(tool).is_none()) {
        reasons.push(unlisted(entry, tool));
    }
    let visible = reasons.is_empty();
    let warnings = if visible { warnings(&lens, entry, tool) } else { Vec::new() };
    let tools = tool.is_none().then(|| tools_of(&lens, entry));
    Visibility { visible, reasons, warnings, tools }
}

fn hidden(reasons: Vec<Remark>) -> Visibility {
    Visibility { visible: false, reasons, warnings: Vec::new(), tools: None }
}

fn tools_of(lens: &Lens<'_>, entry: &Entry) -> ToolsVisibility {
    let hidden = entry.tools().filter_map(|tool| {
        let obstacles = lens.tool_obstacles(entry, &tool.name);
        let reasons = described(obstacles, lens, entry, Some(&tool.name));
        (!reasons.is_empty()).then(|| HiddenTool { name: entry.name().qualify(&tool.name), reasons })
    });
    ToolsVisibility { total: entry.tools().count(), hidden: hidden.collect() }
}

fn described(obstacles: Vec<Obstacle>, lens: &Lens<'_>, entry: &Entry, tool: Option<&str>) -> Vec<Remark> {
    obstacles.into_iter().map(|obstacle| describe(obstacle, lens, entry, tool)).collect()
}

fn describe(obstacle: Obstacle, lens: &Lens<'_>, entry: &Entry, tool: Option<&str>) -> Remark {
    let server = entry.name().as_str();
    match obstacle {
        Obstacle::OtherServer => Remark::new("other_server", "this endpoint is that of another server"),
        Obstacle::ServerDisabled => {
            Remark::new("server_disabled", format!("the server {server:?} is disabled"))
        }
        Obstacle::NotAllowed => {
            let message = format!("the server {server:?} is not on the allow list of the client");
            Remark::new("not_allowed", message)
        }
        Obstacle::HiddenByRule => Remark::new("not_allowed", "a rule of the allow list hides the tool"),
        Obstacle::Disabled => Remark::new("tool_disabled", "the tool is disabled"),
        Obstacle::NotInGroup => match (lens.part, tool) {
            (Part::Group(members), Some(tool)) if members.excludes_tool(server, tool) => {
                Remark::new("excluded_from_group", "the group excludes the tool (excluded_tools)")
            }
            (_, Some(_)) => {
                let message = format!(
                    "the group includes neither the tool (included_tools) nor the server {server:?} (included_servers)"
                );
                Remark::new("not_in_group", message)
            }
            (_, None) => {
                Remark::new("not_in_group", format!("the group includes no tool of the server {server:?}"))
            }
        },
    }
}

/// Why a server does not list a tool.
fn unlisted(entry: &Entry, tool: &str) -> Remark {
    let server = entry.name().as_str();
    if entry.keeps_tools_to_itself() {
        let message = format!("the server {server:?} lists no tools; calls of {tool:?} are passed on to it");
        return Remark::new("not_listed", message);
    }
    match (state_of(entry), entry.discovered_at_ms) {
        ((Status::Failed, reason), None) => {
            let message = format!("the server {server:?} failed before it could list its tools: {reason}");
            Remark::new("server_failed", message)
        }
        ((Status::Connecting, _), None) => {
            Remark::new("server_connecting", format!("the server {server:?} has not listed its tools yet"))
        }
        (_, _) => Remark::new("unknown_tool", format!("the server {server:?} does not list a tool {tool:?}")),
    }
}

fn warnings(lens: &Lens<'_>, entry: &Arc<Entry>, tool: Option<&str>) -> Vec<Remark> {
    let mut warnings = Vec::new();
    let (status, reason) = state_of(entry);
    let state = |state: &str| match reason.is_empty() {
        true => format!("the server {:?} {state}", entry.name().as_str()),
        false => format!("the server {:?} {state}: {reason}", entry.name().as_str()),
    };
    match status {
        Status::Failed => warnings.push(Remark::new("server_failed", state("failed, so calls fail"))),
        Status::Connecting => {
            warnings.push(Remark::new("server_connecting", state("is connecting, so calls wait")));
        }
        Status::Degraded => warnings.push(Remark::new("server_degraded", state("is degraded"))),
        Status::Connected | Status::Disabled => {}
    }
    let Some(tool) = tool else { return warnings };
    let listed_name = match lens.part {
        Part::Server(_) => tool.to_owned(),
        Part::Everything | Part::Group(_) => entry.name().qualify(tool),
    };
    if !name::is_usual_tool_name(&listed_name) {
        let message = "some clients refuse this name: it has more than 64 characters, or unusual characters";
        warnings.push(Remark::new("refused_name", message));
    }
    if !entry.offering().tools.iter().any(|listed| listed.name == tool) {
        let message = "the server lists it only to clients with some capabilities or of some revisions";
        warnings.push(Remark::new("only_some_clients", message));
    }
    warnings
}
