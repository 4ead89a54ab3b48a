//! Converts one server from the format of programs with an `mcpServers` or `servers` file (Claude Desktop and Code,
//! Cursor, VS Code, Windsurf, Gemini CLI and similar ones) into our registration input.

use serde_json::{Map, Value, json};

use crate::ServerName;

/// A converted server; `refusal` says why it cannot be used.
pub struct Own {
    pub name: String,
    pub input: Map<String, Value>,
    pub ignored: Vec<String>,
    pub refusal: Option<String>,
}

/// Whether the value is an object that says how to reach a server, as in such a file.
pub fn looks_like_server(value: &Value) -> bool {
    let keys = ["command", "url", "serverUrl", "httpUrl"];
    value.as_object().is_some_and(|object| keys.iter().any(|key| object.contains_key(*key)))
}

pub fn to_own(name: &str, value: Value) -> Own {
    let own_name = to_server_name(name);
    let mut own = Own {
        name: own_name.clone().unwrap_or_else(|| name.to_owned()),
        input: Map::new(),
        ignored: Vec::new(),
        refusal: None,
    };
    let Value::Object(mut object) = value else {
        own.refusal = Some("its settings are not an object".into());
        return own;
    };
    let endpoint = take_endpoint(&mut object);
    match transport(object.remove("type").or_else(|| object.remove("transport")), &object, &endpoint) {
        Ok(transport) => own.input.insert("transport".into(), transport.into()),
        Err(refusal) => own.refusal.replace(refusal).map(Value::from),
    };
    own.input.insert("name".into(), own.name.clone().into());
    if let Some((_, url)) = endpoint {
        own.input.insert("url".into(), url);
    }
    for (key, value) in object {
        match (key.as_str(), value) {
            (_, Value::Null) => {}
            ("command" | "args" | "cwd" | "description" | "enabled", value) => {
                own.input.insert(key, value);
            }
            ("disabled", Value::Bool(disabled)) => {
                own.input.insert("enabled".into(), json!(!disabled));
            }
            ("env" | "headers", value) => {
                own.input.insert(key, as_texts(value));
            }
            ("auth", Value::Object(auth)) => own.input.extend(oauth(auth)),
            (_, _) => own.ignored.push(key),
        }
    }
    if own_name.is_none() {
        own.refusal = Some("its name has no characters that a server name may have; rename it".into());
    }
    own
}

/// Removes the address from the object, and returns it with the key that it was under.
fn take_endpoint(object: &mut Map<String, Value>) -> Option<(&'static str, Value)> {
    let keys = ["httpUrl", "serverUrl", "url"];
    keys.into_iter().find_map(|key| object.remove(key).map(|value| (key, value)))
}

fn transport(
    named: Option<Value>,
    object: &Map<String, Value>,
    endpoint: &Option<(&str, Value)>,
) -> Result<&'static str, String> {
    if let Some(named) = named {
        let known = named.as_str().unwrap_or_default().to_ascii_lowercase().replace(['-', '_'], "");
        return match known.as_str() {
            "stdio" | "local" => Ok("stdio"),
            "http" | "streamablehttp" | "remote" => Ok("streamable_http"),
            "sse" => Ok("sse"),
            _ => Err(format!("its transport {named} is not supported; use stdio, http or sse")),
        };
    }
    match endpoint {
        None if object.contains_key("command") => Ok("stdio"),
        None => Err("it has neither \"command\" nor \"url\"".into()),
        // Without an explicit transport, the old one is recognized by the path that its servers usually have.
        Some(("url" | "serverUrl", Value::String(url))) if path(url).ends_with("/sse") => Ok("sse"),
        Some(_) => Ok("streamable_http"),
    }
}

fn path(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url).trim_end_matches('/')
}

/// Turns a name into a server name, which allows fewer characters: `GitHub (work)` becomes `GitHub-work`.
fn to_server_name(name: &str) -> Option<String> {
    if ServerName::parse(name).is_ok() {
        return Some(name.to_owned());
    }
    let mut kept = String::new();
    for next in name.chars() {
        let fits = next.is_ascii_alphanumeric() || next == '_';
        let next = if fits { next } else { '-' };
        if !(kept.ends_with(next) && matches!(next, '-' | '_')) {
            kept.push(next);
        }
    }
    let kept: String = kept.trim_matches(['-', '_']).chars().take(64).collect();
    ServerName::parse(kept.trim_end_matches(['-', '_'])).ok().map(|name| name.as_str().to_owned())
}

/// Turns numbers and booleans into text, as those programs do. An entry with `null` is dropped: there it removes a
/// variable, which is not set here.
fn as_texts(value: Value) -> Value {
    let Value::Object(entries) = value else { return value };
    let texts = entries.into_iter().filter_map(|(key, value)| match value {
        Value::Null => None,
        Value::Bool(flag) => Some((key, flag.to_string().into())),
        Value::Number(number) => Some((key, number.to_string().into())),
        other => Some((key, other)),
    });
    Value::Object(texts.collect())
}

/// Converts the OAuth client settings of Cursor.
fn oauth(mut auth: Map<String, Value>) -> Map<String, Value> {
    let keys = [
        ("CLIENT_ID", "oauth_client_id"),
        ("CLIENT_SECRET", "oauth_client_secret"),
        ("scopes", "oauth_scopes"),
    ];
    keys.into_iter().filter_map(|(from, to)| auth.remove(from).map(|value| (to.to_owned(), value))).collect()
}
