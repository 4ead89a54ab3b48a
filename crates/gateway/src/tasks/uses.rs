//! What a request of an agent has to do with tasks: whether it may be made, and how the ids of tasks are shown in what
//! comes back for it.

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;

use super::eras;
use super::ids::{is_qualified, is_status, not_an_id, task_id};
use crate::Gateway;
use crate::caller::{Caller, Owner};
use crate::refusal::Refusal;
use crate::shared_uris::ServerLinks;
use crate::usage::Usage;
use model::{QualifiedName, ServerName};
use upstream::RelatedTask;
use wire::{Era, Head, Patch, Response, Span, meta, text, walk};

/// What one request has to do with tasks, and which tasks its caller may use.
pub struct TaskUse {
    kind: TaskRequest,
    /// Where tasks of the caller are remembered; `None` if none of them need to be.
    usage: Option<Arc<Usage>>,
    /// Whether the caller may use only tasks that are remembered.
    is_restricted: bool,
    /// Whether the caller sees ids that carry the name of the server.
    is_qualified: bool,
    era: Era,
    session: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskRequest {
    /// It has nothing to do with tasks, but a modern server may start one.
    Plain,
    /// It asks for one, as legacy clients do.
    Starts,
    List,
    /// It is about one task.
    About,
    /// It waits for the result of a task, which is that of the request that started it.
    Result,
}

impl Gateway {
    /// Checks that a request names no task of anybody else. Adds to `edits` what its server must see instead.
    pub(crate) fn task_use(
        &self,
        caller: &Caller,
        server: &ServerName,
        head: &Head<'_>,
        edits: &mut Vec<(Span, Vec<u8>)>,
    ) -> Result<TaskUse, Refusal> {
        let kind = TaskRequest::of(head);
        let is_restricted = caller.viewer.principal.is_some();
        let needs_usage = is_restricted || kind == TaskRequest::Starts;
        let uses = TaskUse {
            kind,
            usage: needs_usage.then(|| self.usage(caller.viewer.principal)),
            is_restricted,
            is_qualified: is_qualified(&caller.viewer.scope),
            era: caller.profile.era,
            session: match caller.profile.owner {
                Some(Owner::Session(serial)) => Some(serial),
                Some(Owner::Principal(_) | Owner::Anybody | Owner::Link(_)) | None => None,
            },
        };
        uses.check(server, head)?;
        if let Some(related) = head.related_task() {
            let known_as = uses.known_as(server, &related.value).filter(|id| uses.may_use(server, id));
            let known_as = known_as.ok_or_else(|| Refusal::UnknownTask(related.value.to_string()))?;
            if uses.is_qualified {
                edits.push((related.span.clone(), text::quote(known_as)));
            }
        }
        Ok(uses)
    }
}

impl TaskRequest {
    fn of(head: &Head<'_>) -> Self {
        let params = head.params.as_ref();
        let asks_for_task =
            |params: &wire::Params<'_>| params.task.is_some() || params.mistyped.contains(&"task");
        match head.method.as_deref().unwrap_or_default() {
            "tasks/list" => Self::List,
            "tasks/result" => Self::Result,
            method if method.starts_with("tasks/") => Self::About,
            _ if params.is_some_and(|params| asks_for_task(params)) => Self::Starts,
            _ => Self::Plain,
        }
    }
}

impl TaskUse {
    fn check(&self, server: &ServerName, head: &Head<'_>) -> Result<(), Refusal> {
        let params = head.params.as_ref().filter(|_| self.is_restricted);
        let is_odd = params.is_some_and(|params| params.mistyped.contains(&"taskId"));
        match params.and_then(|params| params.task_id.as_ref()) {
            Some(id) => {
                let known_as = match self.kind {
                    TaskRequest::About | TaskRequest::Result => self.known_as(server, &id.value),
                    // Whatever else it is, the server sees it as it is.
                    TaskRequest::Plain | TaskRequest::Starts | TaskRequest::List => Some(&*id.value),
                };
                match known_as.is_some_and(|id| self.may_use(server, id)) {
                    true => Ok(()),
                    false => Err(Refusal::UnknownTask(id.value.to_string())),
                }
            }
            // A lenient server might read a number as the id.
            None if is_odd || self.is_restricted && self.is_about_one() => Err(not_an_id()),
            None => Ok(()),
        }
    }

    fn is_about_one(&self) -> bool {
        matches!(self.kind, TaskRequest::About | TaskRequest::Result)
    }

    /// Whether server and caller must be of the same era.
    pub fn needs_same_era(&self) -> bool {
        self.kind != TaskRequest::Plain
    }

    /// Whether the request only waits for a task.
    pub fn only_waits(&self) -> bool {
        self.kind == TaskRequest::Result
    }

    fn may_use(&self, server: &ServerName, id: &str) -> bool {
        let usage = self.usage.as_ref().filter(|_| self.is_restricted);
        usage.is_none_or(|usage| usage.tasks.has(server.as_str(), id))
    }

    /// The id of a task at its server; `None` if the caller's id is that of another server.
    fn known_as<'a>(&self, server: &ServerName, id: &'a str) -> Option<&'a str> {
        match self.is_qualified {
            true => {
                QualifiedName::parse(id).filter(|name| name.server == server.as_str()).map(|name| name.item)
            }
            false => Some(id),
        }
    }

    /// Whether a response has to be adapted: all that a plain call costs is this check.
    pub fn concerns(&self, response: &Response, server_era: Era) -> bool {
        self.kind != TaskRequest::Plain || is_modern_task(response, server_era)
    }

    /// Remembers the task that a response hands out, gives tasks the ids that the caller sees, and leaves out those of
    /// others.
    pub fn adapt(
        &self,
        server: &ServerName,
        links: Option<&ServerLinks>,
        response: Response,
        server_era: Era,
    ) -> Result<Response, Refusal> {
        let Some(result) = response.result_span().cloned() else { return Ok(response) };
        let message = response.message();
        let mut patch = Patch::new(message);
        match self.kind {
            TaskRequest::Plain | TaskRequest::Starts => {
                let is_modern = is_modern_task(&response, server_era);
                if is_modern && self.era == Era::Legacy {
                    return Err(Refusal::Upstream(eras::unusable(server, Era::Modern)));
                }
                let task = walk::member(message, &result, "task").filter(|_| !is_modern);
                let task = task.unwrap_or_else(|| result.clone());
                if let (Some(id), Some(usage)) = (task_id(message, &task), &self.usage) {
                    usage.tasks.add(server.as_str(), &id, self.session);
                }
                self.qualify(&mut patch, server, message, walk::member(message, &task, "taskId"));
            }
            TaskRequest::List => {
                if let Some((tasks, own)) = self.own_of(server, message, &result) {
                    patch.replace(tasks, own);
                }
            }
            TaskRequest::About => {
                self.qualify(&mut patch, server, message, walk::member(message, &result, "taskId"));
                let nested = links.and_then(|links| Some((links, walk::member(message, &result, "result")?)));
                if let Some((links, nested)) = nested {
                    links.in_result(&mut patch, message, &nested);
                }
            }
            TaskRequest::Result => {}
        }
        self.qualify(&mut patch, server, message, meta::related_task_id(message, &result));
        if patch.is_empty() {
            drop(patch);
            return Ok(response);
        }
        let unreadable = |_| Refusal::Upstream("the server's response about a task cannot be read".into());
        Response::read(patch.apply()).map_err(unreadable)
    }

    /// Gives the id at `id` the form that the caller sees.
    fn qualify(&self, patch: &mut Patch<'_>, server: &ServerName, message: &[u8], id: Option<Span>) {
        let Some(id) = id.filter(|_| self.is_qualified) else { return };
        if let Some(known_as) = text::unescape(&message[id.clone()]) {
            patch.replace(id, text::quote(&server.qualify(&known_as)));
        }
    }

    /// Whether a message that a server sends during a call may be passed on: one about a task only to its owner, and only
    /// to a client that knows such messages.
    fn admits(&self, server: &ServerName, head: &Head<'_>, server_era: Era) -> bool {
        let is_status = is_status(head);
        let id = head.params.as_ref().and_then(|params| params.task_id.as_ref());
        let is_own = || id.is_some_and(|id| self.may_use(server, &id.value));
        let related = head.related_task();
        let is_related = related.is_none_or(|related| self.may_use(server, &related.value));
        is_related && (!is_status || server_era == self.era && is_own())
    }

    /// Adapts a notice for the caller; false if it is not for the caller.
    pub fn adapt_notice(
        &self,
        patch: &mut Patch<'_>,
        server: &ServerName,
        head: &Head<'_>,
        server_era: Era,
    ) -> bool {
        if !self.admits(server, head, server_era) {
            return false;
        }
        if is_status(head) {
            let id = head.params.as_ref().and_then(|params| params.task_id.as_ref());
            self.qualify(patch, server, head.body, id.map(|id| id.span.clone()));
        }
        self.qualify(patch, server, head.body, head.related_task().map(|related| related.span));
        true
    }

    /// Adapts a server's request to the caller. `Err` if it is about a task of somebody else; the task that it is related
    /// to, if the caller knows that under another id.
    pub fn adapt_question(
        &self,
        server: &ServerName,
        question: Bytes,
    ) -> Result<(Bytes, Option<RelatedTask>), Bytes> {
        // A search for the text is faster than reading the message, which almost never has it.
        if memmem::find(&question, meta::RELATED_TASK.as_bytes()).is_none() {
            return Ok((question, None));
        }
        let Ok(head) = Head::parse(&question) else { return Ok((question, None)) };
        let Some(related) = head.related_task() else {
            drop(head);
            return Ok((question, None));
        };
        if !self.may_use(server, &related.value) {
            drop((related, head));
            return Err(question);
        }
        if !self.is_qualified {
            drop((related, head));
            return Ok((question, None));
        }
        let task =
            RelatedTask { shown_as: server.qualify(&related.value), known_as: related.value.into_owned() };
        let mut patch = Patch::new(&question);
        patch.replace(related.span, text::quote(&task.shown_as));
        Ok((patch.apply(), Some(task)))
    }

    fn own_of(&self, server: &ServerName, message: &Bytes, result: &Span) -> Option<(Span, Vec<u8>)> {
        let tasks = walk::member(message, result, "tasks").filter(|_| self.is_restricted)?;
        let is_own = |task: &Span| task_id(message, task).is_some_and(|id| self.may_use(server, &id));
        let own: Vec<_> = walk::elements(message, &tasks).filter(is_own).map(|task| &message[task]).collect();
        let own = [b"[", own.join(&b","[..]).as_slice(), b"]"].concat();
        Some((tasks, own))
    }
}

fn is_modern_task(response: &Response, server_era: Era) -> bool {
    server_era == Era::Modern && response.is_task()
}
