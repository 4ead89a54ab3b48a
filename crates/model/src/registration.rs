//! The JSON form of a server: registration input, configuration file and export are the same object. Reading checks
//! everything that can be checked without connecting; writing includes every secret in clear text.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};
use url::Url;

use super::arguments;
use super::redact::MASK;
use super::server::DEFAULT_TIMEOUT_MS;
use super::{
    Endpoint, FieldError, Fields, Flags, Issued, OAuthSettings, Placement, Process, RateLimit, Secret,
    ServerConfig, ServerName, SessionMode, ToolLimits, Transport,
};

/// Keys that apply only to servers reached over HTTP.
const HTTP_KEYS: [&str; 7] = [
    "url",
    "bearer_token",
    "headers",
    "oauth_redirect_uri",
    "oauth_client_id",
    "oauth_client_secret",
    "oauth_scopes",
];
/// Keys that apply only to servers run as a process.
const STDIO_KEYS: [&str; 4] = ["command", "args", "env", "cwd"];

/// Headers that the gateway sets itself on every request; a fixed value would break the protocol.
const RESERVED_HEADERS: [&str; 10] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    pub config: ServerConfig,
    pub flags: Flags,
}

impl Registration {
    pub fn parse(object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let name = fields.required_text("name")?;
        let name = ServerName::parse(&name).map_err(|problem| FieldError::new("name", problem))?;
        let transport = fields.required_text("transport")?;
        let transport = match transport.as_str() {
            "streamable_http" => {
                refuse_filled(&mut fields, &STDIO_KEYS, &transport)?;
                Transport::StreamableHttp(parse_endpoint(&mut fields)?)
            }
            "sse" => {
                refuse_filled(&mut fields, &STDIO_KEYS, &transport)?;
                Transport::Sse(parse_endpoint(&mut fields)?)
            }
            "stdio" => {
                refuse_filled(&mut fields, &HTTP_KEYS, &transport)?;
                Transport::Stdio(parse_process(&mut fields)?)
            }
            _ => {
                return Err(FieldError::new(
                    "transport",
                    "must be \"streamable_http\", \"stdio\" or \"sse\"",
                ));
            }
        };
        let session_mode = match fields.text("session_mode")?.as_deref() {
            None | Some("" | "stateless") => SessionMode::Stateless,
            Some("stateful") => SessionMode::Stateful,
            Some(_) => return Err(FieldError::new("session_mode", "must be \"stateless\" or \"stateful\"")),
        };
        let placement = parse_placement(&mut fields, &transport)?;
        let config = ServerConfig {
            name,
            description: fields.text("description")?.unwrap_or_default(),
            transport,
            session_mode,
            placement,
            timeout_ms: fields.count("timeout_ms")?.unwrap_or(DEFAULT_TIMEOUT_MS),
            max_concurrency: fields.count("max_concurrency")?.unwrap_or(0),
            rate_limit: RateLimit::take(&mut fields, "rate_limit")?,
            tool_limits: ToolLimits::take(&mut fields, "tool_limits")?,
        };
        let flags = Flags {
            enabled: fields.flag("enabled")?.unwrap_or(true),
            disabled_tools: fields.texts("disabled_tools")?.unwrap_or_default().into_iter().collect(),
            disabled_prompts: fields.texts("disabled_prompts")?.unwrap_or_default().into_iter().collect(),
        };
        // Of the request, not of the server: what to do if the server cannot be connected.
        fields.flag("keep_failed")?;
        fields.finish()?;
        Ok(Self { config, flags })
    }

    /// Returns this registration with the given keys replaced. Omitted keys stay, and `null` resets a key to its
    /// default. `env`, `headers` and `tool_limits` are merged entry by entry, and `null` removes an entry. A new transport
    /// starts without the settings specific to the old one.
    pub fn amended(&self, mut changes: Map<String, Value>) -> Result<Self, FieldError> {
        if changes.contains_key("name") {
            return Err(FieldError::new("name", "cannot be changed; register the server under its new name"));
        }
        let mut object = self.to_json();
        if changes.get("transport").is_some_and(|new| Some(new) != object.get("transport")) {
            for key in HTTP_KEYS.iter().chain(&STDIO_KEYS).chain(&["placement"]) {
                object.remove(*key);
            }
        }
        merge(&mut object, &mut changes, "env", str::to_owned);
        merge(&mut object, &mut changes, "headers", str::to_ascii_lowercase);
        merge(&mut object, &mut changes, "tool_limits", str::to_owned);
        object.extend(changes);
        Self::parse(object)
    }

    /// The registration input that would register this server again, with secrets in clear text.
    pub fn to_json(&self) -> Map<String, Value> {
        let config = &self.config;
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| {
            object.insert(key.to_owned(), value);
        };
        put("name", json!(config.name.as_str()));
        put("transport", json!(config.transport.as_str()));
        put("description", json!(config.description));
        put("session_mode", json!(config.session_mode.as_str()));
        // The default is omitted: older gateways on the same database do not know the key.
        if config.placement != Placement::default() {
            put("placement", json!(config.placement.as_str()));
        }
        put("timeout_ms", json!(config.timeout_ms));
        put("max_concurrency", json!(config.max_concurrency));
        if let Some(limit) = &config.rate_limit {
            put("rate_limit", json!(limit));
        }
        if !config.tool_limits.is_empty() {
            put("tool_limits", json!(config.tool_limits.by_key()));
        }
        put("enabled", json!(self.flags.enabled));
        put("disabled_tools", json!(self.flags.disabled_tools));
        put("disabled_prompts", json!(self.flags.disabled_prompts));
        match &config.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => {
                put("url", json!(endpoint.url.as_str()));
                put("headers", expose_map(&endpoint.headers));
                if let Some(token) = &endpoint.bearer_token {
                    put("bearer_token", json!(token.expose()));
                }
                if let Some(uri) = &endpoint.oauth.redirect_uri {
                    put("oauth_redirect_uri", json!(uri));
                }
                if let Some(id) = &endpoint.oauth.client_id {
                    put("oauth_client_id", json!(id));
                }
                if let Some(secret) = &endpoint.oauth.client_secret {
                    put("oauth_client_secret", json!(secret.expose()));
                }
                if !endpoint.oauth.scopes.is_empty() {
                    put("oauth_scopes", json!(endpoint.oauth.scopes));
                }
            }
            Transport::Stdio(process) => {
                put("command", json!(process.command));
                put("args", json!(process.args));
                put("env", expose_map(&process.env));
                if let Some(cwd) = &process.cwd {
                    put("cwd", json!(cwd));
                }
            }
        }
        object
    }

    /// The same without secrets, for people who may see the configuration of the server.
    pub fn masked_json(&self) -> Map<String, Value> {
        let mut object = self.to_json();
        for key in ["bearer_token", "oauth_client_secret"] {
            if let Some(value) = object.get_mut(key) {
                *value = MASK.into();
            }
        }
        for key in ["headers", "env"] {
            if let Some(Value::Object(values)) = object.get_mut(key) {
                values.values_mut().for_each(|value| *value = MASK.into());
            }
        }
        match &self.config.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => {
                object.insert("url".to_owned(), endpoint.masked_url().into());
            }
            Transport::Stdio(process) => {
                object.insert("args".to_owned(), json!(arguments::hidden(&process.args)));
            }
        }
        object
    }
}

/// Merges the entries under `field` of both objects, and leaves the result in `changes`. Names with the same `identity`
/// are the same entry. Removals come first, so that a change of spelling does not depend on the order of the entries.
fn merge(
    object: &mut Map<String, Value>,
    changes: &mut Map<String, Value>,
    field: &str,
    identity: fn(&str) -> String,
) {
    let Some(Value::Object(named)) = changes.get_mut(field) else { return };
    let named = std::mem::take(named);
    let mut entries = match object.remove(field) {
        Some(Value::Object(entries)) => entries,
        Some(_) | None => Map::new(),
    };
    let changed: HashSet<String> = named.keys().map(|name| identity(name)).collect();
    entries.retain(|name, _| !changed.contains(&identity(name)));
    entries.extend(named.into_iter().filter(|(_, value)| !value.is_null()));
    changes.insert(field.to_owned(), entries.into());
}

fn parse_endpoint(fields: &mut Fields) -> Result<Endpoint, FieldError> {
    let text = fields.text("url")?.filter(|url| !url.is_empty());
    let text = text.ok_or_else(|| FieldError::new("url", "is required for this transport"))?;
    let url = parse_url("url", &text)?;
    let headers = fields.text_map("headers")?.unwrap_or_default();
    for (name, value) in &headers {
        check_header(name, value)?;
    }
    let bearer_token = filled(fields.text("bearer_token")?);
    if bearer_token.as_deref().is_some_and(|token| !is_header_value(token)) {
        return Err(FieldError::new("bearer_token", "contains characters that are not allowed in a header"));
    }
    let redirect_uri = filled(fields.text("oauth_redirect_uri")?);
    if let Some(uri) = &redirect_uri {
        parse_url("oauth_redirect_uri", uri)?;
    }
    Ok(Endpoint {
        url,
        bearer_token: bearer_token.map(Secret::new),
        headers: headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect(),
        oauth: OAuthSettings {
            redirect_uri,
            client_id: filled(fields.text("oauth_client_id")?),
            client_secret: filled(fields.text("oauth_client_secret")?).map(Secret::new),
            scopes: fields.texts("oauth_scopes")?.unwrap_or_default(),
            issued: Issued::default(),
        },
    })
}

fn parse_process(fields: &mut Fields) -> Result<Process, FieldError> {
    let command = filled(fields.text("command")?);
    let command = command.ok_or_else(|| FieldError::new("command", "is required for this transport"))?;
    let args = fields.texts("args")?.unwrap_or_default();
    let env = fields.text_map("env")?.unwrap_or_default();
    let cwd = filled(fields.text("cwd")?);
    // The operating system ends strings at NUL, so a value that contains one would be cut off.
    let has_nul = |text: &String| text.contains('\0');
    if has_nul(&command) {
        return Err(FieldError::new("command", "must not contain a NUL character"));
    }
    if args.iter().any(has_nul) {
        return Err(FieldError::new("args", "must not contain a NUL character"));
    }
    if cwd.as_ref().is_some_and(has_nul) {
        return Err(FieldError::new("cwd", "must not contain a NUL character"));
    }
    for (name, value) in &env {
        if name.is_empty() || name.contains('=') || has_nul(name) || has_nul(value) {
            return Err(FieldError::new(
                format!("env.{name}"),
                "is invalid: a name must not be empty or contain '=', and neither name nor value may contain NUL",
            ));
        }
    }
    let env = env.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    Ok(Process { command, args, env, cwd })
}

fn parse_placement(fields: &mut Fields, transport: &Transport) -> Result<Placement, FieldError> {
    let placement = match fields.text("placement")?.as_deref() {
        None | Some("" | "each") => Placement::Each,
        Some("one") => Placement::One,
        Some(_) => return Err(FieldError::new("placement", "must be \"each\" or \"one\"")),
    };
    match (placement, transport) {
        (Placement::One, Transport::StreamableHttp(_) | Transport::Sse(_)) => Err(FieldError::new(
            "placement",
            format!("\"one\" does not apply to the transport \"{}\"", transport.as_str()),
        )),
        (Placement::One, Transport::Stdio(_)) | (Placement::Each, _) => Ok(placement),
    }
}

fn parse_url(field: &str, text: &str) -> Result<Url, FieldError> {
    let url = Url::parse(text).map_err(|error| FieldError::new(field, format!("is not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(FieldError::new(field, "must start with http:// or https://"));
    }
    // `Url` reads `x` as the host of `http:///x`, but in such a text the host was forgotten.
    let names_host = |text: &str| {
        let after_scheme =
            text.trim_start().get(url.scheme().len()..).and_then(|rest| rest.strip_prefix("://"));
        after_scheme.is_some_and(|rest| !rest.starts_with(['/', '\\', '?', '#', ':']))
    };
    // As it was written, and as it is stored and exported.
    if !names_host(text) || !names_host(url.as_str()) {
        return Err(FieldError::new(field, "must name a host, as in http://localhost:3000/mcp"));
    }
    Ok(url)
}

fn check_header(name: &str, value: &str) -> Result<(), FieldError> {
    let field = || format!("headers.{name}");
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(FieldError::new(field(), "is not a valid header name"));
    }
    if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err(FieldError::new(field(), "is set by the gateway itself"));
    }
    if !is_header_value(value) {
        return Err(FieldError::new(field(), "contains characters that are not allowed in a header"));
    }
    Ok(())
}

fn is_header_value(text: &str) -> bool {
    text.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f))
}

/// Fails if a key of another transport has a value; empty values are accepted.
fn refuse_filled(fields: &mut Fields, keys: &[&str], transport: &str) -> Result<(), FieldError> {
    for key in keys {
        let is_empty = match fields.take(key) {
            None => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(entries)) => entries.is_empty(),
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) => false,
        };
        if !is_empty {
            return Err(FieldError::new(*key, format!("does not apply to the transport \"{transport}\"")));
        }
    }
    Ok(())
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn expose_map(map: &BTreeMap<String, Secret>) -> Value {
    map.iter().map(|(key, value)| (key.clone(), Value::from(value.expose()))).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Result<Registration, FieldError> {
        let Value::Object(object) = value else { panic!("tests pass an object") };
        Registration::parse(object)
    }

    fn field_of(value: Value) -> String {
        parse(value).unwrap_err().field
    }

    #[test]
    fn every_mistake_names_its_field() {
        let http = |extra: Value| {
            let mut object = json!({"name": "a", "transport": "streamable_http", "url": "http://h/mcp"});
            object.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            object
        };
        assert_eq!(field_of(json!({})), "name");
        assert_eq!(field_of(json!({"name": 1})), "name");
        assert_eq!(field_of(json!({"name": "a__b"})), "name");
        assert_eq!(field_of(json!({"name": "a"})), "transport");
        assert_eq!(field_of(json!({"name": "a", "transport": "pigeon"})), "transport");
        assert_eq!(field_of(json!({"name": "a", "transport": "sse"})), "url");
        assert_eq!(field_of(json!({"name": "a", "transport": "stdio"})), "command");
        assert_eq!(field_of(http(json!({"colour": "red"}))), "colour");
        assert_eq!(field_of(http(json!({"command": "npx"}))), "command");
        assert_eq!(field_of(http(json!({"timeout_ms": -1}))), "timeout_ms");
        assert_eq!(field_of(http(json!({"timeout_ms": "5"}))), "timeout_ms");
        assert_eq!(field_of(http(json!({"enabled": "yes"}))), "enabled");
        assert_eq!(field_of(http(json!({"disabled_tools": ["a", 1]}))), "disabled_tools[1]");
        assert_eq!(field_of(http(json!({"headers": {"X": 1}}))), "headers.X");
        assert_eq!(field_of(http(json!({"headers": {"a b": "1"}}))), "headers.a b");
        assert_eq!(field_of(http(json!({"headers": {"Mcp-Session-Id": "1"}}))), "headers.Mcp-Session-Id");
        assert_eq!(field_of(http(json!({"bearer_token": "a\nb"}))), "bearer_token");
        assert_eq!(field_of(http(json!({"session_mode": "sticky"}))), "session_mode");
        assert_eq!(field_of(http(json!({"placement": "one"}))), "placement");
        assert_eq!(field_of(http(json!({"placement": "two"}))), "placement");
        for url in [
            "",
            "h/mcp",
            "ftp://h/",
            "http://",
            "http:///mcp",
            "http:h",
            "http://:80/",
            "https://?q",
            "https://\\:p@h/mcp",
            "https://\t:p@h/mcp",
        ] {
            assert_eq!(field_of(http(json!({"url": url}))), "url", "{url}");
        }
        assert!(parse(http(json!({"command": "", "args": [], "env": {}, "cwd": null}))).is_ok());
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let full = parse(json!({
            "name": "a", "transport": "sse", "url": "https://u:p@h:8443/mcp?key=v", "description": "d",
            "bearer_token": "t", "headers": {"X-Key": "k"}, "session_mode": "stateful", "timeout_ms": 0,
            "max_concurrency": 3, "enabled": false, "disabled_tools": ["x"], "disabled_prompts": ["y"],
            "oauth_redirect_uri": "http://localhost:1/cb", "oauth_client_id": "c", "oauth_client_secret": "s",
            "oauth_scopes": ["one"],
        }))
        .unwrap();
        assert_eq!(Registration::parse(full.to_json()).unwrap(), full);
        let stdio = parse(json!({
            "name": "b", "transport": "stdio", "command": "npx", "args": ["-y"], "env": {"K": "v"}, "cwd": "/",
            "placement": "one",
        }))
        .unwrap();
        assert_eq!(Registration::parse(stdio.to_json()).unwrap(), stdio);
    }

    #[test]
    fn an_amendment_keeps_what_it_does_not_name() {
        let old = parse(json!({
            "name": "a", "transport": "sse", "url": "http://h/sse", "bearer_token": "t", "timeout_ms": 7,
        }))
        .unwrap();
        let amended = |value: Value| old.amended(value.as_object().unwrap().clone());
        let new = amended(json!({"description": "d", "timeout_ms": null})).unwrap();
        assert_eq!(new.config.transport, old.config.transport);
        assert_eq!((new.config.description.as_str(), new.config.timeout_ms), ("d", DEFAULT_TIMEOUT_MS));
        let moved = amended(json!({"transport": "stdio", "command": "npx"})).unwrap();
        assert_eq!(moved.config.transport.as_str(), "stdio");
        assert_eq!(amended(json!({"name": "b"})).unwrap_err().field, "name");
    }

    #[test]
    fn an_amended_header_takes_the_place_of_every_spelling() {
        let old = parse(json!({
            "name": "a", "transport": "sse", "url": "http://h/sse", "headers": {"X-A": "1", "x-a": "2", "B": "3"},
        }))
        .unwrap();
        let amended = |value: Value| old.amended(value.as_object().unwrap().clone()).unwrap().to_json();
        assert_eq!(amended(json!({"headers": {"X-a": "4"}}))["headers"], json!({"X-a": "4", "B": "3"}));
        assert_eq!(amended(json!({"headers": {"X-a": null}}))["headers"], json!({"B": "3"}));
        assert_eq!(amended(json!({"headers": {}}))["headers"], old.to_json()["headers"]);
        assert_eq!(amended(json!({"headers": null}))["headers"], json!({}));
    }

    #[test]
    fn limits_are_read_written_and_amended_tool_by_tool() {
        let limit = |number: u32| json!({"calls_per_minute": number});
        let old = parse(json!({
            "name": "a", "transport": "stdio", "command": "npx", "rate_limit": {"calls_per_minute": 9, "burst": 2},
            "tool_limits": {"x": limit(1), "y*": limit(2)},
        }))
        .unwrap();
        assert_eq!(Registration::parse(old.to_json()).unwrap(), old);
        let amended = |value: Value| old.amended(value.as_object().unwrap().clone()).unwrap().to_json();
        let new = amended(json!({"tool_limits": {"x": null, "z": limit(3)}}));
        assert_eq!(new["tool_limits"], json!({"y*": limit(2), "z": limit(3)}));
        assert_eq!(new["rate_limit"], json!({"calls_per_minute": 9, "burst": 2}));
        let new = amended(json!({"tool_limits": null, "rate_limit": limit(1)}));
        assert_eq!((new.get("tool_limits"), &new["rate_limit"]), (None, &limit(1)));
        assert_eq!(amended(json!({"rate_limit": null})).get("rate_limit"), None);
    }

    #[test]
    fn a_masked_url_shows_no_credentials() {
        let shown = |url: &str| {
            let server = parse(json!({"name": "a", "transport": "sse", "url": url})).unwrap();
            server.config.target()
        };
        assert_eq!(shown("https://user:pass@h:8443/p?key=v&flag"), "https://***@h:8443/p?key=***&***");
        assert_eq!(shown("http://localhost/mcp"), "http://localhost/mcp");
    }
}
