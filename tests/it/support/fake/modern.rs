//! The rules of revision 2026-07-28 for requests and results, checked strictly: a gateway that forgets a header must
//! fail here. Legacy rules are in `core`.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::behaviour::{Behaviour, MODERN_VERSION, named};
use super::core::{Incoming, Object, Refusal, Transport, object, raw};

pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// Checks in the order of the revision: metadata, headers, version.
pub fn check(behaviour: &Behaviour, incoming: &Incoming) -> Result<(), Refusal> {
    let meta = &incoming.params()["_meta"];
    let version = meta[VERSION_KEY].as_str();
    let version = version.ok_or_else(|| bad_request(-32602, "_meta lacks the protocol version"))?;
    if !meta[CAPABILITIES_KEY].is_object() {
        return Err(bad_request(-32602, "_meta lacks the client capabilities"));
    }
    if incoming.transport == Transport::Http {
        check_headers(behaviour, incoming, version).map_err(|reason| bad_request(-32020, reason))?;
    }
    if version != MODERN_VERSION {
        let data = json!({"supported": [MODERN_VERSION], "requested": version});
        let message = "Unsupported protocol version".into();
        return Err(Refusal::Error { status: 400, code: -32022, message, data: Some(data) });
    }
    Ok(())
}

/// The result with the members of every modern result, or the error with its HTTP status.
pub fn finish(
    behaviour: &Behaviour,
    method: &str,
    outcome: Result<Object, Refusal>,
) -> Result<Object, Refusal> {
    let mut result = match outcome {
        Err(Refusal::Error { code: -32601, message, data, .. }) => {
            return Err(Refusal::Error { status: 404, code: -32601, message, data });
        }
        Err(other) => return Err(other),
        Ok(result) => result,
    };
    result.entry("resultType".into()).or_insert_with(|| raw("complete"));
    if method.ends_with("/list") || ["server/discover", "resources/read"].contains(&method) {
        result.insert("ttlMs".into(), raw(&behaviour.ttl_ms));
        result.insert("cacheScope".into(), raw(&behaviour.cache_scope));
    }
    Ok(result)
}

pub fn discover(behaviour: &Behaviour, capabilities: Value) -> Object {
    let mut result = json!({
        "supportedVersions": [MODERN_VERSION],
        "capabilities": capabilities,
        "_meta": behaviour.meta.get("server/discover").cloned().unwrap_or_else(|| json!({})),
    });
    result["_meta"][SERVER_INFO_KEY] = behaviour.server_info.clone();
    if let Some(instructions) = &behaviour.instructions {
        result["instructions"] = json!(instructions);
    }
    object(result)
}

/// Refuses a call whose client did not declare the capabilities that the tool needs.
pub fn require_capability(incoming: &Incoming, name: &str) -> Result<(), Refusal> {
    if incoming.params()["_meta"][CAPABILITIES_KEY].get(name).is_some() {
        return Ok(());
    }
    let data = Some(json!({"requiredCapabilities": {name: {}}}));
    let message = format!("Missing required client capability: {name}");
    Err(Refusal::Error { status: 400, code: -32021, message, data })
}

/// The same for an extension.
pub fn require_extension(incoming: &Incoming, name: &str) -> Result<(), Refusal> {
    if incoming.params()["_meta"][CAPABILITIES_KEY]["extensions"].get(name).is_some() {
        return Ok(());
    }
    let data = Some(json!({"requiredCapabilities": {"extensions": {name: {}}}}));
    let message = format!("Missing required client capability: {name}");
    Err(Refusal::Error { status: 400, code: -32021, message, data })
}

fn bad_request(code: i64, message: impl Into<String>) -> Refusal {
    Refusal::Error { status: 400, code, message: message.into(), data: None }
}

fn check_headers(behaviour: &Behaviour, incoming: &Incoming, version: &str) -> Result<(), String> {
    let (headers, method, params) = (&incoming.headers, incoming.method(), incoming.params());
    must_equal(headers, "mcp-protocol-version", version)?;
    must_equal(headers, "mcp-method", method)?;
    let name = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => None,
    };
    match name {
        Some(name) => must_equal(headers, "mcp-name", name)?,
        None if headers.contains_key("mcp-name") => return Err(format!("{method} has no mcp-name")),
        None => {}
    }
    if method == "tools/call" {
        check_parameters(behaviour, headers, params)?;
    }
    Ok(())
}

fn check_parameters(
    behaviour: &Behaviour,
    headers: &BTreeMap<String, String>,
    params: &Value,
) -> Result<(), String> {
    let name = params["name"].as_str().unwrap_or_default();
    let mut expected = BTreeMap::new();
    if let Some(tool) = behaviour.tools().iter().find(|tool| named(tool, "name") == name) {
        let tool = model::deep_json::parse(tool.get()).unwrap_or_default();
        collect(&tool["inputSchema"], &params["arguments"], &mut expected);
    }
    for (header, value) in &expected {
        must_equal(headers, header, value)?;
    }
    match headers.keys().find(|name| name.starts_with("mcp-param-") && !expected.contains_key(*name)) {
        Some(extra) => Err(format!("{extra} has no argument in the body")),
        None => Ok(()),
    }
}

/// Annotated properties count at any depth, but only along `properties`.
fn collect(schema: &Value, arguments: &Value, expected: &mut BTreeMap<String, String>) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let value = match &arguments[key] {
            Value::String(text) => Some(text.clone()),
            Value::Bool(flag) => Some(flag.to_string()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        };
        if let (Some(header), Some(value)) = (property["x-mcp-header"].as_str(), value) {
            expected.insert(format!("mcp-param-{}", header.to_ascii_lowercase()), value);
        }
        collect(property, &arguments[key], expected);
    }
}

fn must_equal(headers: &BTreeMap<String, String>, name: &str, expected: &str) -> Result<(), String> {
    let sent = headers.get(name).ok_or_else(|| format!("missing header {name}"))?;
    let decoded = decode(sent).ok_or_else(|| format!("{name} is not valid base64"))?;
    if decoded == expected { Ok(()) } else { Err(format!("{name} is {decoded}, the body says {expected}")) }
}

/// Values that a header cannot carry arrive as `=?base64?...?=`.
fn decode(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}
