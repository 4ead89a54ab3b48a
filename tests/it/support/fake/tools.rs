//! What the standard tools of the fake upstream do. Those that change the server itself are in `control`.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json, value::RawValue};
use tokio::sync::oneshot;

use super::behaviour::{Behaviour, named};
use super::core::{Incoming, Object, Refusal, error, is_modern, object, tools_of};
use super::state::{Out, Sender, State};
use super::{control, interview, modern, tasks};

/// One red pixel.
pub const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// One call with everything that a tool may need.
pub struct Call<'a> {
    pub state: &'a Arc<State>,
    pub behaviour: &'a Behaviour,
    pub incoming: &'a Incoming,
    pub arguments: &'a Value,
    pub out: &'a Sender,
}

pub async fn call(
    state: &Arc<State>,
    behaviour: &Behaviour,
    incoming: &Incoming,
    out: &Sender,
) -> Result<Object, Refusal> {
    let name = incoming.params()["name"].as_str().unwrap_or_default();
    let is_listed = tools_of(state, behaviour, incoming).iter().any(|tool| named(tool, "name") == name);
    if !is_listed && !control::NAMES.contains(&name) {
        return Err(error(-32602, format!("Unknown tool: {name}")));
    }
    *state.memory().ran.entry(name.to_owned()).or_default() += 1;
    let arguments = &incoming.params()["arguments"];
    state.record("ran", &arguments["mark"]);
    // This many calls with this mark are lost after they ran.
    let lost = arguments["lose"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
    if lost > 0 && state.recorded("ran", &arguments["mark"]) <= lost {
        if arguments["forget"] == true {
            state.drop_sessions();
        }
        return Err(Refusal::HangUp);
    }
    let call = Call { state, behaviour, incoming, arguments, out };
    if control::NAMES.contains(&name) { control::call(&call, name).await } else { run(&call, name).await }
}

async fn run(call: &Call<'_>, name: &str) -> Result<Object, Refusal> {
    let arguments = call.arguments;
    match name {
        "add" => {
            let sum =
                arguments["a"].as_f64().unwrap_or_default() + arguments["b"].as_f64().unwrap_or_default();
            Ok(text(sum.to_string()))
        }
        "structured" => {
            let value = json!({"city": arguments["city"].as_str().unwrap_or("Oslo"), "degrees": 21.5});
            let content = json!([{"type": "text", "text": value.to_string()}]);
            Ok(object(json!({"content": content, "structuredContent": value, "_meta": {"example.com/k": 1}})))
        }
        "image" => Ok(object(json!({"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}))),
        "fail" => {
            Ok(object(json!({"content": [{"type": "text", "text": "it went wrong"}], "isError": true})))
        }
        "rpc_error" => Err(Refusal::Error {
            status: 200,
            code: -32050,
            message: "the tool refused".into(),
            data: Some(json!({"hint": "ask again", "retry": false})),
        }),
        "slow" => {
            pause(&arguments["ms"], 1000).await;
            Ok(text("done"))
        }
        "progress" => progress(call).await,
        "echo_args" => Ok(text(exact_arguments(&call.incoming.text))),
        "message" => Ok(text(call.incoming.text.clone())),
        "verbatim" => verbatim(call),
        "counter" => Ok(text(call.state.memory().ran["counter"].to_string())),
        "env" => {
            let name = arguments["name"].as_str().unwrap_or_default();
            Ok(text(std::env::var(name).unwrap_or_default()))
        }
        "cwd" => Ok(text(std::env::current_dir().unwrap_or_default().display().to_string())),
        "pid" => Ok(text(std::process::id().to_string())),
        "spawn_grandchild" => grandchild(arguments),
        "headers" => Ok(text(json!(call.incoming.headers).to_string())),
        "ask" if arguments.get("rounds").is_some() => interview::hold(call).await,
        "ask" => ask(call).await,
        "job" => tasks::start(call),
        "log" => {
            log(call);
            Ok(text("logged"))
        }
        "cancelled" => Ok(text(json!(call.state.memory().cancelled).to_string())),
        "garbage" => {
            let _ = call.out.send(Out::Verbatim("this is not JSON {".into()));
            Ok(text("after the garbage"))
        }
        "huge" => {
            // Progress on another stream than the response, if the transport has one.
            if let Some(token) = call.incoming.params()["_meta"].get("progressToken").cloned() {
                let (state, count) = (call.state.clone(), arguments["notices"].as_u64().unwrap_or_default());
                tokio::spawn(async move {
                    for step in 1..=count {
                        let params = json!({"progressToken": token, "progress": step});
                        state.notify("notifications/progress", &params);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                });
            }
            let bytes = arguments["bytes"].as_u64().unwrap_or(1 << 20);
            Ok(text("x".repeat(usize::try_from(bytes).unwrap_or_default())))
        }
        "cut" => {
            let _ = call.out.send(Out::Cut);
            pause(&arguments["ms"], 0).await;
            Ok(text("resumed"))
        }
        "hang_up" => Err(Refusal::HangUp),
        // `echo`, fillers and every tool that a test defined.
        _ => Ok(text(match &arguments["text"] {
            Value::String(said) => said.clone(),
            _ => arguments.to_string(),
        })),
    }
}

pub fn text(text: impl Into<String>) -> Object {
    object(json!({"content": [{"type": "text", "text": text.into()}]}))
}

pub async fn pause(ms: &Value, default: u64) {
    tokio::time::sleep(Duration::from_millis(ms.as_u64().unwrap_or(default))).await;
}

async fn progress(call: &Call<'_>) -> Result<Object, Refusal> {
    let steps = call.arguments["steps"].as_u64().unwrap_or(3);
    let token = call.incoming.params()["_meta"].get("progressToken");
    for step in 1..=steps {
        pause(&call.arguments["ms"], 1).await;
        if let Some(token) = token {
            let padding = call.arguments["padding"].as_u64().and_then(|bytes| usize::try_from(bytes).ok());
            let said = format!("step {step}{}", "x".repeat(padding.unwrap_or_default()));
            let params = json!({"progressToken": token, "progress": step, "total": steps, "message": said});
            notice(call, "notifications/progress", &params);
        }
    }
    Ok(text(format!("{steps} steps")))
}

/// Modern servers send logs only to a request that asked for them.
fn log(call: &Call<'_>) {
    let wanted = call.incoming.params()["_meta"].get("io.modelcontextprotocol/logLevel").is_some();
    if is_modern(call.behaviour, call.incoming) && !wanted {
        return;
    }
    let level = call.arguments["level"].as_str().unwrap_or("info");
    let data = call.arguments.get("data").cloned().unwrap_or_else(|| json!("a log line"));
    notice(call, "notifications/message", &json!({"level": level, "logger": "fake", "data": data}));
}

pub fn notice(call: &Call<'_>, method: &str, params: &Value) {
    // The client may be gone; the tool runs on.
    let _ = call.out.send(Out::Note(json!({"jsonrpc": "2.0", "method": method, "params": params})));
}

/// Legacy: a request to the client during the call. Modern: a response that asks for input, and a second call.
async fn ask(call: &Call<'_>) -> Result<Object, Refusal> {
    let schema =
        json!({"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]});
    let params = json!({"mode": "form", "message": "Which colour do you like?", "requestedSchema": schema});
    if is_modern(call.behaviour, call.incoming) {
        if let Some(given) = call.incoming.params().get("inputResponses") {
            return Ok(text(given.to_string()));
        }
        modern::require_capability(call.incoming, "elicitation")?;
        return Ok(object(json!({
            "resultType": "input_required",
            "inputRequests": {"colour": {"method": "elicitation/create", "params": params}},
            "requestState": "fake-state",
        })));
    }
    let method = call.arguments["method"].as_str().unwrap_or("elicitation/create");
    let id = format!("ask-{}", call.state.next_serial());
    let (tell, told) = oneshot::channel();
    call.state.memory().asked.insert(id.clone(), tell);
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let _ = call.out.send(Out::Note(request));
    let reply = told.await.map_err(|_| error(-32603, "nobody answered"))?;
    let reply = reply.get("result").or_else(|| reply.get("error")).cloned().unwrap_or_default();
    Ok(text(reply.to_string()))
}

/// Sends the text of the test `before` the response and as the `answer`, with this call's own id and token, and over
/// HTTP with its `status`.
fn verbatim(call: &Call<'_>) -> Result<Object, Refusal> {
    let token = call.incoming.params()["_meta"]["progressToken"].to_string();
    let id = call.incoming.message["id"].to_string();
    let written =
        |text: &Value| text.as_str().unwrap_or_default().replace("$TOKEN", &token).replace("$ID", &id);
    for message in call.arguments["before"].as_array().into_iter().flatten() {
        let _ = call.out.send(Out::Verbatim(written(message)));
    }
    let status = call.arguments["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let text = written(&call.arguments["answer"]);
    let _ = call.out.send(Out::Answer { status: status.unwrap_or(200), text });
    Err(Refusal::Answered)
}

/// The arguments as they were written, including digits, order and blanks.
pub fn exact_arguments(message: &str) -> String {
    type Members = BTreeMap<String, Box<RawValue>>;
    let member = |text: &str, key: &str| {
        serde_json::from_str::<Members>(text).ok()?.get(key).map(|value| value.get().to_owned())
    };
    member(message, "params").and_then(|params| member(&params, "arguments")).unwrap_or_default()
}

/// Starts a process that survives this one unless it is killed too; `setsid` also leaves the process group, `inherit`
/// keeps our pipes open.
fn grandchild(arguments: &Value) -> Result<Object, Refusal> {
    let mut command = if arguments["setsid"] == true {
        let mut command = Command::new("setsid");
        command.arg("sleep");
        command
    } else {
        Command::new("sleep")
    };
    command.arg("1000");
    if arguments["inherit"] != true {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    }
    let child = command.spawn().map_err(|failure| error(-32603, failure.to_string()))?;
    Ok(text(child.id().to_string()))
}
