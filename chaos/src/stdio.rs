//! A small MCP server over stdio, of the legacy era, whose tools are given by the harness that starts itself as one.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

/// Serves until standard input ends. `call` is given the parameters of a call and returns the text of its result.
pub fn serve(tools: &[&str], call: impl Fn(&Value) -> Value) {
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = line.map(|line| serde_json::from_str::<Value>(&line).unwrap_or_default()) else {
            return;
        };
        if let Some(answer) = answer(&message, tools, &call)
            && writeln!(std::io::stdout(), "{answer}").is_err()
        {
            return;
        }
    }
}

/// The response to a request; `None` for a notification.
fn answer(message: &Value, tools: &[&str], call: impl Fn(&Value) -> Value) -> Option<Value> {
    let id = message.get("id").filter(|id| !id.is_null())?;
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "child", "version": "1" },
        }),
        "ping" => json!({}),
        "tools/list" => {
            let tool = |name: &&str| json!({ "name": name, "inputSchema": { "type": "object" } });
            json!({ "tools": tools.iter().map(tool).collect::<Vec<_>>() })
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": call(params) }] }),
        method => {
            let error = json!({ "code": -32601, "message": format!("unknown method {method}") });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}
