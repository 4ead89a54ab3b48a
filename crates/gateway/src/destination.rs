//! Finds the server to which an agent's request goes, if the caller may see what the request names, and the edits that
//! the message needs for that server.

use std::sync::Arc;

use super::Gateway;
use super::caller::{Caller, LinkScope, Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::ending::CalledTool;
use super::refusal::Refusal;
use super::tasks;
use super::view::Lens;
use model::QualifiedName;
use upstream::Profile;
use wire::{Era, Head, HeaderParam, Span, text};

pub struct Destination {
    pub entry: Arc<Entry>,
    /// Parts of the message to be replaced by the server's own names.
    pub edits: Vec<(Span, Vec<u8>)>,
    pub tool: Option<CalledTool>,
    pub reads: Option<Reading>,
    pub is_repeatable: bool,
}

/// The URI of a resource that is read.
pub struct Reading {
    /// As the caller wrote it.
    pub asked: String,
    /// As the server knows it.
    pub known_as: String,
}

/// The state that a server gave to a caller and expects back with the caller's next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedState {
    pub server: String,
    pub state: String,
}

pub fn find(catalog: &Catalog, caller: &Caller, head: &Head<'_>) -> Result<Destination, Refusal> {
    let lens = catalog
        .lens(&caller.viewer)
        .ok_or_else(|| Refusal::Invalid("this endpoint no longer exists".into()))?;
    let method = head.method.as_deref().unwrap_or_default();
    if let Scope::Link(link) = &caller.viewer.scope {
        return link_destination(catalog, link, head);
    }
    match method {
        "tools/call" => tool_destination(catalog, caller, head, &lens),
        "prompts/get" => {
            let name = name_of(head)?;
            let unknown = || Refusal::UnknownPrompt(name.value.to_string());
            let (entry, item) = owner(catalog, &caller.viewer.scope, &name.value).ok_or_else(unknown)?;
            entry.prompt(item).filter(|prompt| lens.shows_prompt(entry, &prompt.name)).ok_or_else(unknown)?;
            Ok(Destination::to(entry).renaming(name, item).repeatable())
        }
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            let uri = head.params.as_ref().and_then(|params| params.uri.as_ref());
            let uri = uri.ok_or_else(|| Refusal::Invalid("params.uri must be a string".into()))?;
            let (entry, item) = catalog.reader_in(&lens, &uri.value)?;
            let destination = Destination::to(entry).renaming(uri, &item).repeatable();
            let reading = || Reading { asked: uri.value.to_string(), known_as: item };
            Ok(Destination { reads: (method == "resources/read").then(reading), ..destination })
        }
        "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => {
            task_destination(catalog, caller, head)
        }
        "completion/complete" => completion_destination(catalog, caller, head, &lens),
        // Methods of the modern era, which legacy clients cannot use.
        "server/discover" | "subscriptions/listen" if caller.profile.era == Era::Legacy => {
            Err(Refusal::UnknownMethod(method.to_owned()))
        }
        // The endpoint of one server passes on methods that the gateway does not know.
        _ => {
            let server = caller.viewer.scope.server().filter(|name| lens.passes_unknown_methods(name));
            let entry = server.and_then(|name| catalog.get(name));
            entry.map(Destination::to).ok_or_else(|| Refusal::UnknownMethod(method.to_owned()))
        }
    }
}

/// Everything that comes on a link of another gateway goes to its server: the other gateway has checked what its caller
/// may use, and counts the call.
fn link_destination(catalog: &Catalog, link: &LinkScope, head: &Head<'_>) -> Result<Destination, Refusal> {
    let gone = || Refusal::Invalid("this endpoint no longer exists".into());
    let mut destination = Destination::to(catalog.get(&link.server).ok_or_else(gone)?);
    destination.is_repeatable = match head.method.as_deref().unwrap_or_default() {
        "tools/call" => {
            let tool = head.params.as_ref().and_then(|params| params.name.as_ref());
            let tool = tool.and_then(|tool| destination.entry.tool_position(&tool.value));
            tool.is_some_and(|tool| destination.entry.is_repeatable(tool))
        }
        "prompts/get" | "resources/read" | "completion/complete" | "tasks/get" | "tasks/result" => true,
        method => is_list(method),
    };
    Ok(destination)
}

/// Whether a method reads one of the lists of a server.
pub fn is_list(method: &str) -> bool {
    matches!(method, "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list")
}

fn tool_destination(
    catalog: &Catalog,
    caller: &Caller,
    head: &Head<'_>,
    lens: &Lens<'_>,
) -> Result<Destination, Refusal> {
    let name = name_of(head)?;
    let unknown = || Refusal::UnknownTool(name.value.to_string());
    let (entry, item) = owner(catalog, &caller.viewer.scope, &name.value).ok_or_else(unknown)?;
    let mut destination = Destination::to(entry).renaming(name, item);
    match entry.tool_position(item) {
        Some(tool) if lens.shows_tool(entry, item) => {
            destination.tool = Some(CalledTool::Listed(tool));
            destination.is_repeatable = entry.is_repeatable(tool);
            Ok(destination)
        }
        // A server that declares tools but lists none decides itself which ones exist.
        None if entry.keeps_tools_to_itself() && lens.shows_tool(entry, item) => {
            destination.tool = Some(CalledTool::Unlisted(item.to_owned()));
            Ok(destination)
        }
        Some(_) | None => Err(unknown()),
    }
}

fn task_destination(catalog: &Catalog, caller: &Caller, head: &Head<'_>) -> Result<Destination, Refusal> {
    let id = head.params.as_ref().and_then(|params| params.task_id.as_ref());
    let (entry, id) = match (id, caller.viewer.scope.server()) {
        (Some(id), _) => (tasks::task_owner(catalog, &caller.viewer, &id.value)?, id),
        // The server decides what it makes of it.
        (None, Some(name)) => {
            let unknown = || Refusal::Invalid("this endpoint no longer exists".into());
            return Ok(Destination::to(catalog.get(name).ok_or_else(unknown)?));
        }
        (None, None) => return Err(tasks::not_an_id()),
    };
    let (entry, known_as) = entry;
    let destination = Destination::to(entry).renaming(id, known_as);
    Ok(match head.method.as_deref() {
        Some("tasks/get" | "tasks/result") => destination.repeatable(),
        Some(_) | None => destination,
    })
}

fn completion_destination(
    catalog: &Catalog,
    caller: &Caller,
    head: &Head<'_>,
    lens: &Lens<'_>,
) -> Result<Destination, Refusal> {
    let reference = head.params.as_ref().and_then(|params| params.reference.as_ref());
    let reference = reference.ok_or_else(|| Refusal::Invalid("params.ref must be an object".into()))?;
    match (&reference.name, &reference.uri) {
        (Some(name), _) => {
            let unknown = || Refusal::UnknownPrompt(name.value.to_string());
            let (entry, item) = owner(catalog, &caller.viewer.scope, &name.value).ok_or_else(unknown)?;
            entry.prompt(item).filter(|prompt| lens.shows_prompt(entry, &prompt.name)).ok_or_else(unknown)?;
            Ok(Destination::to(entry).renaming(name, item).repeatable())
        }
        (None, Some(uri)) => {
            let has_template = |entry: &&Arc<Entry>| {
                let mut templates = entry.templates();
                lens.shows_templates(entry) && templates.any(|template| template.uri_template == uri.value)
            };
            if let Some(entry) = catalog.entries().find(has_template) {
                return Ok(Destination::to(entry).repeatable());
            }
            let (entry, item) = catalog.reader_in(lens, &uri.value)?;
            Ok(Destination::to(entry).renaming(uri, &item).repeatable())
        }
        (None, None) => Err(Refusal::Invalid("params.ref must have a name or a uri".into())),
    }
}

impl Destination {
    /// Puts the state from the server's last response back into the message, as the server wrote it; refuses to send it
    /// to another server.
    pub fn returning(mut self, head: &Head<'_>, state: Option<ReturnedState>) -> Result<Self, Refusal> {
        let written = head.params.as_ref().and_then(|params| params.request_state.as_ref());
        let (Some(written), Some(state)) = (written, state) else { return Ok(self) };
        if state.server != self.entry.name().as_str() {
            return Err(Refusal::Invalid("params.requestState belongs to another server".into()));
        }
        self.edits.push((written.span.clone(), text::quote(&state.state)));
        Ok(self)
    }

    fn to(entry: &Arc<Entry>) -> Self {
        Self { entry: entry.clone(), edits: Vec::new(), tool: None, reads: None, is_repeatable: false }
    }

    fn renaming(mut self, from: &text::Text<'_>, to: &str) -> Self {
        if from.value != to {
            self.edits.push((from.span.clone(), text::quote(to)));
        }
        self
    }

    fn repeatable(mut self) -> Self {
        self.is_repeatable = true;
        self
    }
}

fn name_of<'a, 'b>(head: &'a Head<'b>) -> Result<&'a text::Text<'b>, Refusal> {
    let name = head.params.as_ref().and_then(|params| params.name.as_ref());
    name.ok_or_else(|| Refusal::Invalid("params.name must be a string".into()))
}

impl Gateway {
    /// The arguments of a tool that modern clients repeat in headers, if this viewer sees the tool.
    pub fn header_params(&self, viewer: &Viewer, profile: &Profile, tool: &str) -> Vec<HeaderParam> {
        let catalog = self.catalog_for(profile);
        let shown = catalog.lens(viewer).and_then(|lens| {
            let (entry, item) = owner(&catalog, &viewer.scope, tool)?;
            lens.shows_tool(entry, item).then(|| entry.header_params(item).to_vec())
        });
        shown.unwrap_or_default()
    }
}

/// The server that a request names, if it names one.
pub fn named_server(scope: &Scope, head: &Head<'_>) -> Option<String> {
    let params = head.params.as_ref()?;
    let name = params.name.as_ref().or(params.task_id.as_ref())?;
    match scope.server() {
        Some(server) => Some(server.to_owned()),
        None => Some(QualifiedName::parse(&name.value)?.server.to_owned()),
    }
}

/// The server that a name belongs to, and its name there.
fn owner<'a, 'b>(catalog: &'a Catalog, scope: &Scope, name: &'b str) -> Option<(&'a Arc<Entry>, &'b str)> {
    match scope.server() {
        Some(server) => Some((catalog.get(server)?, name)),
        None => {
            let name = QualifiedName::parse(name)?;
            Some((catalog.get(name.server)?, name.item))
        }
    }
}
