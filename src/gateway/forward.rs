//! The way of an agent's request to a server and of everything that comes back, as bytes: the name loses its server,
//! id and progress token become the link's own, and on the way back the caller's again. Nothing else is touched
//! where both sides are of the same era. No SQL, one copy.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::Gateway;
use super::caller::{Caller, Scope};
use super::catalog::{Catalog, Entry};
use super::invoke::said_in;
use super::view::Lens;
use crate::model::{QualifiedName, Redactor};
use crate::telemetry::{CallMeasure, Outcome};
use crate::upstream::{CallError, Exchange, Inbound, Link, OnBehalf};
use crate::wire::{Head, Patch, RpcError, Span, find_answer_id, text};

pub use crate::upstream::Replier;

/// Why a request does not reach a server, or its answer not the caller.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("method {0:?} is not known here")]
    UnknownMethod(String),
    #[error("{0}")]
    Invalid(String),
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    #[error("unknown prompt: {0}")]
    UnknownPrompt(String),
    #[error("resource not found: {0}")]
    UnknownResource(String),
    #[error("{0}")]
    Upstream(String),
    /// The upstream's own error, passed on.
    #[error("{message}")]
    Rpc { code: i64, message: String, data: Option<Bytes> },
}

/// A message for the caller.
pub enum Outbound {
    /// Progress or a log line, ready to be sent.
    Notice(Bytes),
    /// The server asks the caller for something; the answer goes back through the replier.
    Request { message: Bytes, replier: Replier },
    /// The answer, ready to be sent. Nothing comes after it.
    Answer(Bytes),
}

/// A request under way.
pub struct Forward {
    caller: Arc<Caller>,
    message: Bytes,
    route: Route,
    exchange: Exchange,
    link: Arc<Link>,
    deadline: Option<Instant>,
    /// The caller's own id and progress token, as it wrote them.
    id: Vec<u8>,
    token: Option<Vec<u8>>,
    has_retried: bool,
    measure: Option<CallMeasure>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Where a request goes, and what must change in it.
struct Route {
    entry: Arc<Entry>,
    /// The part of the message that names the thing, and how the server calls it.
    rename: Option<(Span, Vec<u8>)>,
    tool: Option<String>,
    is_repeatable: bool,
}

impl Gateway {
    /// Sends the request of a caller to the server it is meant for.
    pub async fn forward(
        &self,
        caller: Arc<Caller>,
        head: &Head<'_>,
        message: &Bytes,
    ) -> Result<Forward, Refusal> {
        let catalog = self.catalog();
        let route = find_route(&catalog, &caller, head)?;
        let id = head.id.as_ref().map(|id| id.raw().to_vec()).unwrap_or_default();
        let token =
            head.meta().and_then(|meta| meta.progress_token.as_ref()).map(|token| token.raw().to_vec());
        let measure =
            route.tool.as_deref().map(|tool| self.metrics.call_begins(route.entry.name().as_str(), tool));
        let deadline = route.entry.registration.config.timeout().map(|limit| Instant::now() + limit);
        let upstream =
            route.entry.upstream.clone().ok_or_else(|| Refusal::Upstream("the server is disabled".into()))?;
        let sent = {
            // Pinned here: moving a future costs as much as it is large.
            let sending = pin!(async {
                let permit = upstream.permit().await;
                let mut has_retried = false;
                loop {
                    let link = upstream.link_for(caller.capabilities, caller.session).await?;
                    match send(&link, head, &route, &caller).await {
                        Ok(exchange) => return Ok((permit, link, exchange, has_retried)),
                        Err(error) if error.did_not_run() && !has_retried => {
                            upstream.report(&link, &error);
                            has_retried = true;
                        }
                        Err(error) => return Err(error),
                    }
                }
            });
            within(deadline, sending, &route.entry).await
        };
        let (permit, link, exchange, has_retried) = sent.map_err(|error| explain(&route.entry, &error))?;
        Ok(Forward {
            caller,
            message: message.clone(),
            route,
            exchange,
            link,
            deadline,
            id,
            token,
            has_retried,
            measure,
            _permit: permit,
        })
    }
}

impl Forward {
    pub async fn next(&mut self) -> Result<Outbound, Refusal> {
        loop {
            match within(self.deadline, self.exchange.next(), &self.route.entry).await {
                Ok(Inbound::Answer(answer)) => return self.finish(answer).map(Outbound::Answer),
                Ok(Inbound::Notice(notice)) => {
                    if let Some(notice) = self.for_caller(notice) {
                        return Ok(Outbound::Notice(notice));
                    }
                }
                Ok(Inbound::Request(message)) => {
                    let replier = self.exchange.replier();
                    return Ok(Outbound::Request { message, replier });
                }
                // In a box, since it is large and rarely needed.
                Err(error) => Box::pin(self.send_again(error)).await?,
            }
        }
    }

    /// A link that died is no reason to fail a call that may safely be made again.
    async fn send_again(&mut self, error: CallError) -> Result<(), Refusal> {
        let entry = self.route.entry.clone();
        let Some(upstream) = &entry.upstream else { return Err(self.fail(&error)) };
        if error.did_not_run() {
            upstream.report(&self.link, &error);
        }
        let may_repeat = matches!(error, CallError::Lost(_)) && self.route.is_repeatable;
        if self.has_retried || !(error.did_not_run() || may_repeat) {
            return Err(self.fail(&error));
        }
        self.has_retried = true;
        let head = Head::parse(&self.message).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let sending = async {
            let link = upstream.link_for(self.caller.capabilities, self.caller.session).await?;
            let exchange = send(&link, &head, &self.route, &self.caller).await?;
            Ok((link, exchange))
        };
        match within(self.deadline, sending, &entry).await {
            Ok((link, exchange)) => {
                (self.link, self.exchange) = (link, exchange);
                Ok(())
            }
            Err(error) => Err(self.fail(&error)),
        }
    }

    fn fail(&mut self, error: &CallError) -> Refusal {
        self.end(match error {
            CallError::TimedOut(_) => Outcome::TimedOut,
            _ => Outcome::Failed,
        });
        let refusal = explain(&self.route.entry, error);
        self.note(&refusal.to_string());
        refusal
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(measure) = &mut self.measure {
            measure.ends(outcome);
        }
    }

    /// The answer under the caller's own id.
    fn finish(&mut self, answer: Bytes) -> Result<Bytes, Refusal> {
        let Some(span) = find_answer_id(&answer) else {
            self.end(Outcome::Failed);
            return Err(Refusal::Upstream("the server's answer is not understood".into()));
        };
        if self.link.is_modern() && asks_for_input(&answer) {
            self.end(Outcome::Failed);
            return Err(Refusal::Upstream(
                "the server asks for input in the way of revision 2026-07-28, which cannot be passed on to this client yet"
                    .into(),
            ));
        }
        let outcome = outcome_of(&answer);
        if outcome != Outcome::Ok {
            self.note(&said_by(&answer));
        }
        self.end(outcome);
        let mut patch = Patch::new(&answer);
        patch.replace(span, self.id.as_slice());
        Ok(patch.apply())
    }

    /// Remembers why a tool failed, for people.
    fn note(&self, reason: &str) {
        if let (Some(tool), Some(upstream)) = (&self.route.tool, &self.route.entry.upstream) {
            upstream.note_failure(tool, reason);
        }
    }

    /// A notice with the caller's own progress token; `None` when it is not for this caller.
    fn for_caller(&self, notice: Bytes) -> Option<Bytes> {
        let head = Head::parse(&notice).ok()?;
        let token = head.params.as_ref().and_then(|params| params.progress_token.as_ref());
        let Some(token) = token else {
            drop(head);
            return Some(notice);
        };
        let mut patch = Patch::new(&notice);
        patch.replace(token.span.clone(), self.token.as_deref()?);
        Some(patch.apply())
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, CallError>>,
    entry: &Entry,
) -> Result<T, CallError> {
    let Some(deadline) = deadline else { return work.await };
    let late = || CallError::TimedOut(entry.registration.config.timeout().unwrap_or_default());
    timeout_at(deadline, work).await.unwrap_or_else(|_| Err(late()))
}

fn explain(entry: &Entry, error: &CallError) -> Refusal {
    let sentence = format!("server {:?} failed: {error}", entry.name().as_str());
    Refusal::Upstream(Redactor::of(&entry.registration.config).redact(&sentence))
}

async fn send(
    link: &Arc<Link>,
    head: &Head<'_>,
    route: &Route,
    caller: &Caller,
) -> Result<Exchange, CallError> {
    let rename = route.rename.as_ref().map(|(span, name)| (span.clone(), name.as_slice()));
    let behalf = OnBehalf {
        capabilities: caller.capabilities,
        client_name: &caller.client_name,
        client_version: &caller.client_version,
        log_level: caller.log_level.as_deref(),
    };
    link.forward(head, rename, &behalf).await
}

/// Found by marks, without reading the answer: it may be large, and nothing but a count depends on this.
fn outcome_of(answer: &[u8]) -> Outcome {
    match memmem::find(answer, br#""isError""#) {
        Some(at) if answer[at + 9..].iter().find(|byte| !b": ".contains(byte)) == Some(&b't') => {
            Outcome::ToolError
        }
        Some(_) => Outcome::Ok,
        None if memmem::find(answer, br#""result""#).is_none() => Outcome::Failed,
        None => Outcome::Ok,
    }
}

/// The words of an answer that tells of a failure.
fn said_by(answer: &Bytes) -> String {
    let head = Head::parse(answer).ok();
    let error = head.as_ref().and_then(|head| head.error.clone());
    if let Some(error) = error.and_then(|span| RpcError::parse(&answer[span])) {
        return format!("{} (code {})", error.message, error.code);
    }
    let result = head.and_then(|head| head.result).map(|span| &answer[span]);
    said_in(result.unwrap_or_default())
}

fn asks_for_input(answer: &[u8]) -> bool {
    memmem::find(answer, br#""input_required""#).is_some()
        && Head::parse(answer).ok().and_then(|head| head.result).is_some_and(|result| {
            let kind = crate::wire::scan::member(answer, &result, "resultType");
            kind.is_some_and(|kind| &answer[kind] == br#""input_required""#)
        })
}

fn find_route(catalog: &Catalog, caller: &Caller, head: &Head<'_>) -> Result<Route, Refusal> {
    let lens = catalog
        .lens(&caller.scope)
        .ok_or_else(|| Refusal::Invalid("this endpoint no longer exists".into()))?;
    let method = head.method.as_deref().unwrap_or_default();
    match method {
        "tools/call" => tool_route(catalog, caller, head, &lens),
        "prompts/get" => {
            let name = name_of(head)?;
            let unknown = || Refusal::UnknownPrompt(name.value.to_string());
            let (entry, item) = owner(catalog, &caller.scope, &name.value).ok_or_else(unknown)?;
            entry.prompt(item).filter(|prompt| lens.shows_prompt(entry, &prompt.name)).ok_or_else(unknown)?;
            Ok(Route::to(entry).renaming(name, item).repeatable())
        }
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            let uri = head.params.as_ref().and_then(|params| params.uri.as_ref());
            let uri = uri.ok_or_else(|| Refusal::Invalid("params.uri must be a string".into()))?;
            let (entry, item) = catalog.reader_in(&lens, &uri.value)?;
            Ok(Route::to(entry).renaming(uri, &item).repeatable())
        }
        "completion/complete" => completion_route(catalog, caller, head, &lens),
        // One server's own endpoint passes on what the gateway does not know.
        _ => match &caller.scope {
            Scope::Server(name) => {
                let entry = catalog.get(name).ok_or_else(|| Refusal::UnknownMethod(method.to_owned()))?;
                Ok(Route::to(entry))
            }
            Scope::Everything | Scope::Group(_) => Err(Refusal::UnknownMethod(method.to_owned())),
        },
    }
}

fn tool_route(
    catalog: &Catalog,
    caller: &Caller,
    head: &Head<'_>,
    lens: &Lens<'_>,
) -> Result<Route, Refusal> {
    let name = name_of(head)?;
    let unknown = || Refusal::UnknownTool(name.value.to_string());
    let (entry, item) = owner(catalog, &caller.scope, &name.value).ok_or_else(unknown)?;
    let mut route = Route::to(entry).renaming(name, item);
    match entry.tool(item) {
        Some(tool) if lens.shows_tool(entry, item) => {
            route.is_repeatable = tool.is_repeatable();
            route.tool = Some(tool.name.clone());
            Ok(route)
        }
        // A server that has tools but lists none knows itself which ones it has.
        None if entry.keeps_tools_to_itself() && lens.shows_tool(entry, item) => Ok(route),
        Some(_) | None => Err(unknown()),
    }
}

fn completion_route(
    catalog: &Catalog,
    caller: &Caller,
    head: &Head<'_>,
    lens: &Lens<'_>,
) -> Result<Route, Refusal> {
    let reference = head.params.as_ref().and_then(|params| params.reference.as_ref());
    let reference = reference.ok_or_else(|| Refusal::Invalid("params.ref must be an object".into()))?;
    match (&reference.name, &reference.uri) {
        (Some(name), _) => {
            let unknown = || Refusal::UnknownPrompt(name.value.to_string());
            let (entry, item) = owner(catalog, &caller.scope, &name.value).ok_or_else(unknown)?;
            entry.prompt(item).filter(|prompt| lens.shows_prompt(entry, &prompt.name)).ok_or_else(unknown)?;
            Ok(Route::to(entry).renaming(name, item).repeatable())
        }
        (None, Some(uri)) => {
            let has_template = |entry: &&Arc<Entry>| {
                let mut templates = entry.offering().templates.iter();
                lens.shows_templates(entry) && templates.any(|template| template.uri_template == uri.value)
            };
            if let Some(entry) = catalog.entries().find(has_template) {
                return Ok(Route::to(entry).repeatable());
            }
            let (entry, item) = catalog.reader_in(lens, &uri.value)?;
            Ok(Route::to(entry).renaming(uri, &item).repeatable())
        }
        (None, None) => Err(Refusal::Invalid("params.ref must have a name or a uri".into())),
    }
}

impl Route {
    fn to(entry: &Arc<Entry>) -> Self {
        Self { entry: entry.clone(), rename: None, tool: None, is_repeatable: false }
    }

    fn renaming(mut self, from: &text::Text<'_>, to: &str) -> Self {
        if from.value != to {
            self.rename = Some((from.span.clone(), text::quote(to)));
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

/// The server that a name belongs to, and the name there.
fn owner<'a, 'b>(catalog: &'a Catalog, scope: &Scope, name: &'b str) -> Option<(&'a Arc<Entry>, &'b str)> {
    match scope {
        Scope::Server(server) => Some((catalog.get(server)?, name)),
        Scope::Everything | Scope::Group(_) => {
            let name = QualifiedName::parse(name)?;
            Some((catalog.get(name.server)?, name.item))
        }
    }
}
