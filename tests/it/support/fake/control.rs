//! Tools that change the fake upstream itself, so that a test can do it over any transport, stdio included.
//! They can be called even if the visible tools were replaced.

use serde_json::{Value, json};

use super::core::{Object, Refusal, error};
use super::state::Out;
use super::tasks;
use super::tools::{Call, exact_arguments, pause, text};

pub const NAMES: [&str; 12] = [
    "set_tools",
    "add_tool",
    "remove_tool",
    "touch",
    "learn",
    "die",
    "drop_session",
    "drop_connections",
    "set_behaviour",
    "seen",
    "sessions",
    "finish_task",
];

pub async fn call(call: &Call<'_>, name: &str) -> Result<Object, Refusal> {
    let (state, arguments) = (call.state, call.arguments);
    let named = || arguments["name"].as_str().unwrap_or_default().to_owned();
    match name {
        "set_tools" => show(call, |_| strings(&arguments["names"])),
        "add_tool" => show(call, |mut names| {
            names.push(named());
            names
        }),
        "remove_tool" => show(call, |mut names| {
            names.retain(|name| *name != named());
            names
        }),
        "learn" => {
            let session = &call.incoming.session;
            state.memory().learned.insert((session.clone(), named()));
            state.notify_session(session, "notifications/tools/list_changed");
        }
        "finish_task" => tasks::finish(state, arguments["id"].as_str().unwrap_or_default(), "done"),
        "touch" => state.notify("notifications/resources/updated", &json!({"uri": arguments["uri"]})),
        "die" => {
            let code = arguments["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
            // Without a delay the process would end before it responds.
            let Some(_) = arguments["after_ms"].as_u64() else { return Err(Refusal::Exit(code)) };
            let (state, ms) = (state.clone(), arguments["after_ms"].clone());
            tokio::spawn(async move {
                pause(&ms, 0).await;
                state.die(code);
            });
        }
        "drop_session" => state.drop_sessions(),
        "drop_connections" => {
            let (state, ms) = (state.clone(), arguments["after_ms"].clone());
            tokio::spawn(async move {
                pause(&ms, 20).await;
                drop(state.drop_connections());
            });
        }
        "set_behaviour" => {
            let merged = state.update(|behaviour| behaviour.merge(&exact_arguments(&call.incoming.text)));
            merged.map_err(|failure| error(-32602, failure.to_string()))?;
        }
        "seen" => {
            let methods: Vec<_> = state.memory().seen.iter().map(|seen| seen.method.clone()).collect();
            return Ok(text(json!(methods).to_string()));
        }
        "sessions" => {
            let memory = state.memory();
            return Ok(text(json!({"open": memory.sessions, "deleted": memory.deleted}).to_string()));
        }
        _ => return Err(error(-32602, format!("Unknown tool: {name}"))),
    }
    Ok(text("ok"))
}

fn show(call: &Call<'_>, choose: impl FnOnce(Vec<String>) -> Vec<String>) {
    call.state.update(|behaviour| {
        let names = choose(behaviour.tool_names());
        behaviour.show_tools(&names);
    });
    if call.arguments["own_stream"] == true {
        let notice = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let _ = call.out.send(Out::Note(notice));
    } else {
        call.state.notify("notifications/tools/list_changed", &json!({}));
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}
