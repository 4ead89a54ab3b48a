//! Tasks of the fake upstream in both eras. The tool `job` starts one, with the `id` that the test gives; `ask` makes it
//! need input. A task exists only in the session that started it, like those of SDK servers.

use std::sync::Arc;

use serde_json::{Value, json, value::RawValue};
use tokio::sync::{oneshot, watch};

use super::behaviour::Behaviour;
use super::core::{Incoming, Object, Refusal, error, is_modern, object, raw};
use super::modern;
use super::state::{Out, Sender, State};
use super::tools::{Call, text};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub const RELATED: &str = "io.modelcontextprotocol/related-task";

pub struct Task {
    pub is_modern: bool,
    pub asks: bool,
    status: String,
    /// The text of the result, once it is there.
    said: watch::Sender<Option<String>>,
}

impl Task {
    fn status_json(&self, id: &str) -> Value {
        let ttl = if self.is_modern { "ttlMs" } else { "ttl" };
        json!({"taskId": id, "status": self.status, ttl: 60_000, "createdAt": "2026-01-01T00:00:00Z",
            "lastUpdatedAt": "2026-01-01T00:00:00Z"})
    }

    /// With what belongs to the status, as the modern era has it.
    fn detailed_json(&self, id: &str) -> Value {
        let mut whole = self.status_json(id);
        if let Some(said) = &*self.said.borrow() {
            whole["result"] = json!({"content": [{"type": "text", "text": said}], "isError": false});
        }
        if self.status == "input_required" {
            whole["inputRequests"] =
                json!({"colour": {"method": "elicitation/create", "params": question()}});
        }
        whole
    }

    fn end(&mut self, status: &str, said: &str) {
        self.status = status.to_owned();
        self.said.send_replace(Some(said.to_owned()));
    }
}

fn question() -> Value {
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
    json!({"mode": "form", "message": "Which colour?", "requestedSchema": schema})
}

/// The tool `job`: a task if the client asked for one (legacy) or can use one (modern; `force` makes one anyway).
pub fn start(call: &Call<'_>) -> Result<Object, Refusal> {
    let params = call.incoming.params();
    let is_modern = is_modern(call.behaviour, call.incoming);
    let declared = &params["_meta"][modern::CAPABILITIES_KEY]["extensions"][EXTENSION];
    let is_task = match is_modern {
        true => declared.is_object() || call.arguments["force"] == true,
        false => params["task"].is_object(),
    };
    if !is_task {
        return Ok(text("done at once"));
    }
    let id = call.arguments["id"].as_str().unwrap_or("job").to_owned();
    let asks = call.arguments["ask"] == true;
    let status = if asks { "input_required" } else { "working" };
    let task = Task { is_modern, asks, status: status.into(), said: watch::Sender::new(None) };
    let mut result = match is_modern {
        true => task.status_json(&id),
        false => json!({"task": task.status_json(&id)}),
    };
    if is_modern {
        result["resultType"] = json!("task");
    }
    if call.arguments["notice"] == true {
        notify_call(call, &id);
    }
    call.state.memory().tasks.insert((call.incoming.session.clone(), id), task);
    Ok(object(result))
}

/// Sends a status and a log message about the task before the response.
fn notify_call(call: &Call<'_>, id: &str) {
    let log = json!({"level": "info", "data": "started", "_meta": {RELATED: {"taskId": id}}});
    for (method, params) in [
        ("notifications/tasks/status", json!({"taskId": id, "status": "working"})),
        ("notifications/message", log),
    ] {
        let _ = call.out.send(Out::Note(json!({"jsonrpc": "2.0", "method": method, "params": params})));
    }
}

pub fn list(state: &State, behaviour: &Behaviour, incoming: &Incoming) -> Vec<Box<RawValue>> {
    let configured = behaviour.tasks.iter().map(|id| raw(&plain(id)));
    let memory = state.memory();
    let started = memory.tasks.iter().filter(|((session, _), task)| {
        *session == incoming.session && task.is_modern == is_modern(behaviour, incoming)
    });
    configured.chain(started.map(|((_, id), task)| raw(&task.status_json(id)))).collect()
}

pub async fn answer(
    state: &Arc<State>,
    behaviour: &Behaviour,
    incoming: &Incoming,
    out: &Sender,
) -> Result<Object, Refusal> {
    let id = incoming.params()["taskId"].as_str().unwrap_or_default();
    if behaviour.tasks.iter().any(|known| known == id) {
        return Ok(object(plain(id)));
    }
    let is_modern = is_modern(behaviour, incoming);
    let key = (incoming.session.clone(), id.to_owned());
    let (asks, mut said) = match state.memory().tasks.get(&key) {
        Some(task) if task.is_modern == is_modern => (task.asks, task.said.subscribe()),
        _ => return Err(error(-32602, "Task not found")),
    };
    if is_modern {
        modern::require_extension(incoming, EXTENSION)?;
    }
    let change = |change: &dyn Fn(&mut Task)| {
        let mut memory = state.memory();
        let task = memory.tasks.get_mut(&key).expect("it was there");
        change(task);
        if is_modern { task.detailed_json(id) } else { task.status_json(id) }
    };
    match (incoming.method(), is_modern) {
        ("tasks/get", _) => Ok(object(change(&|_| {}))),
        ("tasks/cancel", _) => {
            let cancelled = change(&|task| task.end("cancelled", "cancelled"));
            Ok(if is_modern { Object::new() } else { object(cancelled) })
        }
        ("tasks/update", true) => {
            let given = incoming.params()["inputResponses"].to_string();
            change(&|task| task.end("completed", &given));
            Ok(Object::new())
        }
        ("tasks/result", false) => {
            if asks {
                let answer = ask(state, id, out).await?;
                change(&|task| task.end("completed", &answer));
            }
            let said = said.wait_for(Option::is_some).await.map_err(|_| error(-32603, "the task is gone"))?;
            let said = said.clone().unwrap_or_default();
            Ok(object(
                json!({"content": [{"type": "text", "text": said}], "structuredContent": {"taskId": id},
                "_meta": {RELATED: {"taskId": id}}}),
            ))
        }
        (method, _) => Err(error(-32601, format!("Method not found: {method}"))),
    }
}

/// Asks the client that waits for the result; returns its answer as text.
async fn ask(state: &Arc<State>, id: &str, out: &Sender) -> Result<String, Refusal> {
    let request_id = format!("ask-{}", state.next_serial());
    let (tell, told) = oneshot::channel();
    state.memory().asked.insert(request_id.clone(), tell);
    let mut params = question();
    params["_meta"] = json!({RELATED: {"taskId": id}});
    let request =
        json!({"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create", "params": params});
    let _ = out.send(Out::Note(request));
    let answer = told.await.map_err(|_| error(-32603, "nobody answered"))?;
    Ok(answer.get("result").or_else(|| answer.get("error")).cloned().unwrap_or_default().to_string())
}

/// Completes the tasks with this id and announces that to all who listen.
pub fn finish(state: &State, id: &str, said: &str) {
    let mut notices = Vec::new();
    for ((_, known), task) in &mut state.memory().tasks {
        if known == id {
            task.end("completed", said);
            notices.push(match task.is_modern {
                true => ("notifications/tasks", task.detailed_json(id)),
                false => ("notifications/tasks/status", task.status_json(id)),
            });
        }
    }
    for (method, params) in notices {
        state.notify(method, &params);
    }
}

/// Leaves in a filter only tasks that exist.
pub fn grant(state: &State, incoming: &Incoming, filter: &mut Value) -> Result<(), Refusal> {
    if let Some(ids) = filter["taskIds"].as_array_mut() {
        modern::require_extension(incoming, EXTENSION)?;
        let memory = state.memory();
        ids.retain(|id| memory.tasks.keys().any(|(_, known)| id == known));
    }
    if filter["taskIds"].is_null() {
        filter.as_object_mut().map(|filter| filter.remove("taskIds"));
    }
    Ok(())
}

fn plain(id: &str) -> Value {
    json!({"taskId": id, "status": "working"})
}
