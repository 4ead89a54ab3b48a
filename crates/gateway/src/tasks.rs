//! Tasks of servers belong to the principal that started them: the server knows only the gateway, so it would let one
//! client read or cancel the task of another. In development mode nothing is checked.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::refusal::Refusal;
use super::usage::Usage;
use wire::{Head, Patch, Response, Span, text, walk};

/// How many tasks of one principal are remembered; beyond it, the oldest one is forgotten and counts as unknown.
const REMEMBERED: usize = 1000;
/// A task whose id is longer is not remembered.
const LONGEST_ID: usize = 512;

/// The tasks that one principal started, as server and id. They are kept in memory only.
#[derive(Debug, Default)]
pub struct OwnTasks(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    tasks: HashSet<Arc<(String, String)>>,
    order: VecDeque<Arc<(String, String)>>,
}

impl OwnTasks {
    fn add(&self, server: &str, id: &str) {
        if id.len() > LONGEST_ID {
            return;
        }
        let task = Arc::new((server.to_owned(), id.to_owned()));
        let mut known = self.0.lock().expect("no code panics while it holds the tasks");
        if known.tasks.insert(task.clone()) {
            known.order.push_back(task);
        }
        if known.order.len() > REMEMBERED
            && let Some(oldest) = known.order.pop_front()
        {
            known.tasks.remove(&oldest);
        }
    }

    fn has(&self, server: &str, id: &str) -> bool {
        let known = self.0.lock().expect("no code panics while it holds the tasks");
        known.tasks.contains(&(server.to_owned(), id.to_owned()))
    }
}

/// The ownership of tasks that one request has to respect.
pub struct TaskAccess {
    usage: Arc<Usage>,
    kind: TaskRequest,
}

/// What a request has to do with tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskRequest {
    /// It may start one.
    MayStart,
    /// It asked for one, as legacy clients do.
    Starts,
    List,
    /// It is about a task of its caller.
    Own,
}

impl TaskAccess {
    /// Checks that a request names no task of anybody else.
    pub fn check(usage: Arc<Usage>, server: &str, head: &Head<'_>) -> Result<Self, Refusal> {
        let method = head.method.as_deref().unwrap_or_default();
        let params = head.params.as_ref();
        let id = params.and_then(|params| params.task_id.as_ref());
        let is_odd = params.is_some_and(|params| params.mistyped.contains(&"taskId"));
        let kind = match (method, id) {
            ("tasks/list", None) if !is_odd => TaskRequest::List,
            (_, Some(id)) if usage.tasks.has(server, &id.value) => TaskRequest::Own,
            (_, Some(id)) => return Err(Refusal::UnknownTask(id.value.to_string())),
            // A lenient server might read a number as the id.
            (_, None) if is_odd || method.starts_with("tasks/") => {
                return Err(Refusal::Invalid("params.taskId must be a string".into()));
            }
            (_, None) if params.is_some_and(|params| params.task.is_some()) => TaskRequest::Starts,
            (_, None) => TaskRequest::MayStart,
        };
        Ok(Self { usage, kind })
    }

    /// Remembers the task that a response hands out; returns the list of tasks without those of others, to be put in
    /// place of the list in the response.
    pub fn respond(&self, server: &str, response: &Response) -> Option<(Span, Vec<u8>)> {
        let result = response.result_span()?;
        let message = response.message();
        match self.kind {
            TaskRequest::Own => None,
            TaskRequest::List => self.own_of(server, message, result),
            TaskRequest::Starts | TaskRequest::MayStart => {
                let is_task = response.result_type() == Some(br#""task""#);
                if is_task || self.kind == TaskRequest::Starts {
                    let object = walk::member(message, result, "task").unwrap_or_else(|| result.clone());
                    if let Some(id) = task_id(message, &object) {
                        self.usage.tasks.add(server, &id);
                    }
                }
                None
            }
        }
    }

    /// Whether a notice of the server may be passed on: one about a task only to its owner.
    pub fn admits(&self, server: &str, head: &Head<'_>) -> bool {
        let is_about_task =
            head.method.as_deref().is_some_and(|method| method.starts_with("notifications/tasks/"));
        let id = head.params.as_ref().and_then(|params| params.task_id.as_ref());
        !is_about_task || id.is_some_and(|id| self.usage.tasks.has(server, &id.value))
    }

    fn own_of(&self, server: &str, message: &Bytes, result: &Span) -> Option<(Span, Vec<u8>)> {
        let tasks = walk::member(message, result, "tasks")?;
        let is_own = |task: &Span| task_id(message, task).is_some_and(|id| self.usage.tasks.has(server, &id));
        let own: Vec<_> = walk::elements(message, &tasks).filter(is_own).map(|task| &message[task]).collect();
        let own = [b"[", own.join(&b","[..]).as_slice(), b"]"].concat();
        Some((tasks, own))
    }
}

fn task_id<'a>(message: &'a [u8], task: &Span) -> Option<Cow<'a, str>> {
    text::unescape(&message[walk::member(message, task, "taskId")?])
}

/// A response with the list of tasks that its caller may see.
pub fn replaced(response: &Response, (span, with): (Span, Vec<u8>)) -> Option<Response> {
    let mut patch = Patch::new(response.message());
    patch.replace(span, with);
    Response::read(patch.apply()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_tasks_are_forgotten_first() {
        let tasks = OwnTasks::default();
        for number in 0..=REMEMBERED {
            tasks.add("s", &number.to_string());
            tasks.add("s", &number.to_string());
        }
        assert!(!tasks.has("s", "0") && tasks.has("s", "1") && tasks.has("s", &REMEMBERED.to_string()));
        assert!(!tasks.has("t", "1"));
        tasks.add("s", &"x".repeat(LONGEST_ID + 1));
        assert!(!tasks.has("s", &"x".repeat(LONGEST_ID + 1)) && tasks.has("s", "1"));
    }
}
