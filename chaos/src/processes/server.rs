//! `chaos __server BEHAVIOUR MARK DELAY`: a small MCP server over stdio with badly behaved child processes.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::offspring::Family;

/// Serves until standard input ends, or for ever if the behaviour ignores that.
pub fn serve(words: &[String]) -> ExitCode {
    let [behaviour, mark, delay] = words else { return ExitCode::from(2) };
    let delay = Duration::from_millis(delay.parse().unwrap_or_default());
    let family = Family { behaviour, mark, delay };
    family.unleash();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = line.map(|line| serde_json::from_str::<Value>(&line).unwrap_or_default()) else {
            break;
        };
        if let Some(answer) = answer(&message)
            && writeln!(std::io::stdout(), "{answer}").is_err()
        {
            break;
        }
    }
    while family.is_stubborn() {
        std::thread::sleep(Duration::from_secs(1));
    }
    ExitCode::SUCCESS
}

/// The response to a request; `None` for a notification.
fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "nasty", "version": "1" },
        }),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": params["arguments"]["value"] }] }),
        method => {
            let error = json!({ "code": -32601, "message": format!("unknown method {method}") });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}
