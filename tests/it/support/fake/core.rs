//! The methods of the fake upstream, the same for every transport: one request in, its frames out.
//! The strict rules of the modern era are in `modern`, the tools in `tools`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::Notify;

use super::behaviour::{Behaviour, Era, LEGACY_VERSIONS, Probe, named};
use super::state::{Audience, Out, Running, Sender, State};
use super::{catalog, modern, tasks, tools};

/// A result whose members are kept as text, so that definitions come out byte for byte.
pub type Object = BTreeMap<String, Box<RawValue>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Stdio,
    Http,
    Sse,
}

/// One message with what its transport knows about it.
pub struct Incoming {
    pub transport: Transport,
    /// The text as it arrived, for tools that return it unchanged.
    pub text: String,
    pub message: Value,
    pub headers: BTreeMap<String, String>,
    /// Empty where there are no sessions.
    pub session: String,
}

impl Incoming {
    pub fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    pub fn params(&self) -> &Value {
        &self.message["params"]
    }

    pub fn is_request(&self) -> bool {
        self.message.get("id").is_some() && self.message.get("method").is_some()
    }
}

/// The reason why a request has no result.
pub enum Refusal {
    Error {
        status: u16,
        code: i64,
        message: String,
        data: Option<Value>,
    },
    Status(u16),
    HangUp,
    Exit(i32),
    /// It was already answered.
    Answered,
}

pub fn error(code: i64, message: impl Into<String>) -> Refusal {
    Refusal::Error { status: 200, code, message: message.into(), data: None }
}

/// The era whose rules apply to a message, given the eras of this server.
pub fn is_modern(behaviour: &Behaviour, incoming: &Incoming) -> bool {
    let header = incoming.headers.get("mcp-protocol-version");
    match behaviour.era {
        Era::Legacy => false,
        Era::Modern => true,
        Era::Both if incoming.transport == Transport::Sse => false,
        Era::Both => {
            incoming.params()["_meta"].get(modern::VERSION_KEY).is_some()
                || header.is_some_and(|version| !LEGACY_VERSIONS.contains(&version.as_str()))
        }
    }
}

/// Handles a notification, or a client's response to our request.
pub fn accept(state: &State, incoming: &Incoming) {
    if incoming.method() == "notifications/cancelled" {
        let key = (incoming.session.clone(), incoming.params()["requestId"].to_string());
        if let Some(running) = state.memory().running.get(&key) {
            running.cancel.notify_one();
        }
    }
    if incoming.method() == "notifications/initialized" {
        state.memory().initialized.insert(incoming.session.clone());
    }
    if incoming.message.get("method").is_none()
        && let Some(id) = incoming.message["id"].as_str()
        && let Some(asked) = state.memory().asked.remove(id)
    {
        // The call that asked may have been cancelled meanwhile.
        let _ = asked.send(incoming.message.clone());
    }
}

/// Serves a request until it is answered or cancelled.
pub async fn answer(state: Arc<State>, incoming: Incoming, out: Sender) {
    let id = incoming.message["id"].clone();
    let key = (incoming.session.clone(), id.to_string());
    let cancel = Arc::new(Notify::new());
    let running = Running { method: incoming.method().to_owned(), cancel: cancel.clone() };
    state.memory().running.insert(key.clone(), running);
    // Disconnecting cancels a modern call; the legacy revisions say that it does not.
    let leaving_cancels = incoming.transport == Transport::Http && is_modern(&state.behaviour(), &incoming);
    let outcome = tokio::select! {
        outcome = serve(&state, &incoming, &out) => Some(outcome),
        () = cancel.notified() => None,
        () = out.closed(), if leaving_cancels => None,
    };
    // A call that is cancelled, and only then gets the answer to its question, does not go on.
    let outcome = tokio::select! {
        biased;
        () = cancel.notified() => None,
        () = std::future::ready(()) => outcome,
    };
    state.memory().running.remove(&key);
    match outcome {
        Some(outcome) => finish(&state, &incoming, &out, &id, outcome),
        None if incoming.method() == "subscriptions/listen" => {
            // Another connection may listen under the same id.
            state.memory().listeners.retain(|listener| {
                !matches!(&listener.audience, Audience::Filter { id: listening, .. } if *listening == id)
                    || !listener.out.same_channel(&out)
            });
        }
        None => {
            state.record("cancelled", &incoming.params()["arguments"]["mark"]);
            state.memory().cancelled.push(id);
        }
    }
}

fn finish(state: &State, incoming: &Incoming, out: &Sender, id: &Value, outcome: Result<Object, Refusal>) {
    let frame = match outcome {
        Ok(result) => {
            let result = serde_json::to_string(&result).expect("a result of texts is JSON");
            Out::Answer { status: 200, text: format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#) }
        }
        Err(Refusal::Error { status, code, message, data }) => {
            let mut body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
            if let Some(data) = data {
                body["error"]["data"] = data;
            }
            Out::Answer { status, text: body.to_string() }
        }
        Err(Refusal::Status(status)) if incoming.transport == Transport::Http => Out::Status(status),
        Err(Refusal::Status(status)) => {
            let error = json!({"code": -32603, "message": format!("status {status}")});
            Out::Answer { status, text: json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string() }
        }
        Err(Refusal::Answered) => return,
        Err(Refusal::HangUp) => Out::HangUp,
        Err(Refusal::Exit(code)) => {
            state.die(code);
            Out::HangUp
        }
    };
    // The client may be gone; a legacy call still runs to its end.
    let _ = out.send(frame);
}

async fn serve(state: &Arc<State>, incoming: &Incoming, out: &Sender) -> Result<Object, Refusal> {
    let behaviour = state.behaviour();
    let method = incoming.method();
    if let Some(ms) = behaviour.delay_ms.get(method) {
        tokio::time::sleep(Duration::from_millis(*ms)).await;
    }
    if behaviour.stall.iter().any(|stalled| stalled == method) {
        return std::future::pending().await;
    }
    if let Some(failure) = behaviour.fail.get(method) {
        return Err(configured(failure));
    }
    if is_modern(&behaviour, incoming) {
        modern::check(&behaviour, incoming)?;
        let result = dispatch_modern(state, &behaviour, incoming, out).await;
        return modern::finish(&behaviour, method, result);
    }
    if method == "server/discover" && behaviour.era == Era::Legacy {
        return probed(behaviour.probe).await;
    }
    // As strict as the SDK servers; without a session the server cannot remember it.
    let has_session = incoming.transport != Transport::Http || !incoming.session.is_empty();
    let is_early = has_session && !state.memory().initialized.contains(&incoming.session);
    if is_early && !["initialize", "ping"].contains(&method) {
        return Err(error(-32602, "Received request before initialization was complete"));
    }
    match method {
        "initialize" if behaviour.max_sessions.is_some_and(|most| state.memory().sessions.len() > most) => {
            Err(error(-32000, "too many sessions"))
        }
        "initialize" => Ok(initialize(state, &behaviour, incoming, out)),
        "ping" | "logging/setLevel" => Ok(Object::new()),
        "resources/subscribe" | "resources/unsubscribe" => {
            let uri = incoming.params()["uri"].as_str().unwrap_or_default();
            let subscription = (incoming.session.clone(), uri.to_owned());
            let mut memory = state.memory();
            match method {
                "resources/subscribe" => memory.subscribed.insert(subscription),
                _ => memory.subscribed.remove(&subscription),
            };
            Ok(Object::new())
        }
        _ => dispatch(state, &behaviour, incoming, out).await,
    }
}

async fn dispatch_modern(
    state: &Arc<State>,
    behaviour: &Behaviour,
    incoming: &Incoming,
    out: &Sender,
) -> Result<Object, Refusal> {
    match incoming.method() {
        "server/discover" => Ok(modern::discover(behaviour, capabilities(behaviour))),
        "subscriptions/listen" => {
            let (wanted, id) = (incoming.params()["notifications"].clone(), incoming.message["id"].clone());
            let tag = json!({"io.modelcontextprotocol/subscriptionId": id});
            let mut granted = wanted.clone();
            tasks::grant(state, incoming, &mut granted)?;
            if let (Some(grants), Some(uris)) =
                (&behaviour.grants, granted["resourceSubscriptions"].as_array_mut())
            {
                uris.retain(|uri| grants.iter().any(|granted| uri == granted));
            }
            let acknowledged = json!({
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {"_meta": tag, "notifications": granted},
            });
            state.listen("", Audience::Filter { wanted, id }, out, Some(Out::Note(acknowledged)));
            std::future::pending().await
        }
        _ => dispatch(state, behaviour, incoming, out).await,
    }
}

/// The methods that both eras have.
async fn dispatch(
    state: &Arc<State>,
    behaviour: &Behaviour,
    incoming: &Incoming,
    out: &Sender,
) -> Result<Object, Refusal> {
    let method = incoming.method();
    let offered = capabilities(behaviour);
    let family = method.split('/').next().unwrap_or_default();
    if ["prompts", "resources"].contains(&family) && offered.get(family).is_none() {
        return Err(error(-32601, format!("Method not found: {method}")));
    }
    match method {
        "tools/list" => page(behaviour, incoming, "tools", tools_of(state, behaviour, incoming)),
        "prompts/list" => page(behaviour, incoming, "prompts", behaviour.prompts()),
        "resources/list" => page(behaviour, incoming, "resources", behaviour.resources()),
        "resources/templates/list" => page(behaviour, incoming, "resourceTemplates", behaviour.templates()),
        "tools/call" => tools::call(state, behaviour, incoming, out).await,
        "prompts/get" => prompt(behaviour, incoming.params()),
        "resources/read" => read(behaviour, incoming),
        "completion/complete" => {
            let typed = incoming.params()["argument"]["value"].as_str().unwrap_or_default();
            Ok(object(json!({"completion": {"values": [format!("{typed}-completed")], "hasMore": false}})))
        }
        "tasks/list" => page(behaviour, incoming, "tasks", tasks::list(state, behaviour, incoming)),
        "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => {
            tasks::answer(state, behaviour, incoming, out).await
        }
        _ => Err(error(-32601, format!("Method not found: {method}"))),
    }
}

/// The tools that the client of this request sees.
pub fn tools_of(state: &State, behaviour: &Behaviour, incoming: &Incoming) -> Vec<Box<RawValue>> {
    let memory = state.memory();
    let declared = match is_modern(behaviour, incoming) {
        true => incoming.params()["_meta"][modern::CAPABILITIES_KEY].clone(),
        false => memory.declared.get(&incoming.session).cloned().unwrap_or_default(),
    };
    let mut tools = behaviour.tools_seen_with(&declared);
    let learned = memory.learned.iter().filter(|(session, _)| *session == incoming.session);
    tools.extend(learned.map(|(_, name)| catalog::plain_tool(name)));
    tools
}

fn initialize(state: &State, behaviour: &Behaviour, incoming: &Incoming, out: &Sender) -> Object {
    if incoming.transport == Transport::Stdio {
        state.listen("", Audience::All, out, None);
    }
    let declared = incoming.params()["capabilities"].clone();
    state.memory().declared.insert(incoming.session.clone(), declared);
    let asked = incoming.params()["protocolVersion"].as_str().unwrap_or_default();
    let agreed = if behaviour.legacy_versions().contains(&asked) { asked } else { &behaviour.max_version };
    let mut result = json!({
        "protocolVersion": agreed,
        "capabilities": capabilities(behaviour),
        "serverInfo": behaviour.server_info,
    });
    if let Some(instructions) = &behaviour.instructions {
        result["instructions"] = json!(instructions);
    }
    if let Some(meta) = behaviour.meta.get("initialize") {
        result["_meta"] = meta.clone();
    }
    object(result)
}

fn capabilities(behaviour: &Behaviour) -> Value {
    let mut offered = json!({"tools": {"listChanged": true}, "logging": {}, "completions": {}});
    if !behaviour.prompts().is_empty() {
        offered["prompts"] = json!({"listChanged": true});
    }
    if !behaviour.resources().is_empty() || !behaviour.templates().is_empty() {
        offered["resources"] = json!({"listChanged": true, "subscribe": true});
    }
    for (name, settings) in behaviour.capabilities.as_object().into_iter().flatten() {
        offered[name] = settings.clone();
    }
    offered
}

async fn probed(probe: Probe) -> Result<Object, Refusal> {
    match probe {
        Probe::MethodNotFound => Err(error(-32601, "Method not found")),
        Probe::Http400 => Err(Refusal::Status(400)),
        Probe::Http404 => Err(Refusal::Status(404)),
        Probe::Http500 => Err(Refusal::Status(500)),
        Probe::EmptyResult => Ok(Object::new()),
        Probe::Close => Err(Refusal::HangUp),
        Probe::Silence => std::future::pending().await,
        Probe::Exit => Err(Refusal::Exit(1)),
    }
}

fn configured(failure: &Value) -> Refusal {
    match failure.as_u64().and_then(|status| u16::try_from(status).ok()) {
        Some(status) => Refusal::Status(status),
        None => Refusal::Error {
            status: 200,
            code: failure["code"].as_i64().unwrap_or(-32603),
            message: failure["message"].as_str().unwrap_or("failed as configured").to_owned(),
            data: failure.get("data").cloned(),
        },
    }
}

fn page(
    behaviour: &Behaviour,
    incoming: &Incoming,
    key: &str,
    all: Vec<Box<RawValue>>,
) -> Result<Object, Refusal> {
    let start = match incoming.params().get("cursor") {
        None => 0,
        Some(cursor) => place(cursor, key).ok_or_else(|| error(-32602, "Invalid cursor"))?,
    };
    let size = behaviour.page_size.unwrap_or(usize::MAX).max(1);
    let items: Vec<_> = all.iter().skip(start).take(size).collect();
    let circular = behaviour.circular.as_deref() == Some(key);
    let next = if circular { start } else { start + items.len() };
    let mut result = Object::from([(key.to_owned(), raw(&items))]);
    if let Some(meta) = behaviour.meta.get(incoming.method()) {
        let mut meta = meta.clone();
        meta["start"] = json!(start);
        result.insert("_meta".into(), raw(&meta));
    }
    if circular || next < all.len() {
        result.insert("nextCursor".into(), raw(&BASE64_STANDARD.encode(format!("{key}:{next}"))));
    }
    Ok(result)
}

/// Cursors are opaque to the client and valid for one list only.
fn place(cursor: &Value, key: &str) -> Option<usize> {
    let text = String::from_utf8(BASE64_STANDARD.decode(cursor.as_str()?).ok()?).ok()?;
    text.strip_prefix(key)?.strip_prefix(':')?.parse().ok()
}

fn prompt(behaviour: &Behaviour, params: &Value) -> Result<Object, Refusal> {
    let name = params["name"].as_str().unwrap_or_default();
    if !behaviour.prompts().iter().any(|prompt| named(prompt, "name") == name) {
        return Err(error(-32602, format!("Unknown prompt: {name}")));
    }
    if let Some(result) = behaviour.results.get(name) {
        return Ok(members(result));
    }
    let content = match name {
        "greet" => {
            let who = params["arguments"]["who"].as_str();
            let who = who.ok_or_else(|| error(-32602, "Missing required argument: who"))?;
            json!({"type": "text", "text": format!("Hello, {who}!")})
        }
        "picture" => json!({"type": "image", "data": tools::PNG, "mimeType": "image/png"}),
        other => json!({"type": "text", "text": format!("{other} {}", params["arguments"])}),
    };
    Ok(object(json!({"description": "Rendered", "messages": [{"role": "user", "content": content}]})))
}

fn read(behaviour: &Behaviour, incoming: &Incoming) -> Result<Object, Refusal> {
    let uri = incoming.params()["uri"].as_str().unwrap_or_default();
    if let Some(result) = behaviour.results.get(uri) {
        return Ok(members(result));
    }
    let known = behaviour.resources().iter().any(|resource| named(resource, "uri") == uri);
    let matched = uri.starts_with("fake://item/") || uri.starts_with("fake://pair/");
    if !known && !matched {
        let code = if is_modern(behaviour, incoming) { -32602 } else { -32002 };
        let (message, data) = ("Resource not found".into(), Some(json!({"uri": uri})));
        return Err(Refusal::Error { status: 200, code, message, data });
    }
    let contents = match uri {
        "fake://blob" => {
            let blob = BASE64_STANDARD.encode([0, 1, 254, 255]);
            json!({"uri": uri, "mimeType": "application/octet-stream", "blob": blob})
        }
        _ => json!({"uri": uri, "mimeType": "text/plain", "text": format!("content of {uri}")}),
    };
    Ok(object(json!({"contents": [contents]})))
}

pub fn object(value: Value) -> Object {
    match value {
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, raw(&value))).collect(),
        _ => Object::new(),
    }
}

fn members(text: &RawValue) -> Object {
    serde_json::from_str(text.get()).expect("a test gave a result that is no object")
}

pub fn raw<T: serde::Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("plain data is JSON")
}
