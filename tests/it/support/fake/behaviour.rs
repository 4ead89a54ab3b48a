//! The behaviour of the fake upstream as one JSON document: every key is optional and may change while it runs.
//! Its state is in `state`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::catalog;

/// The revisions with an `initialize` handshake, oldest first.
pub const LEGACY_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub const MODERN_VERSION: &str = "2026-07-28";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    pub era: Era,
    /// How a server of the era `legacy` answers `server/discover`.
    pub probe: Probe,
    /// The newest revision that `initialize` agrees to.
    pub max_version: String,
    /// Complete definitions, kept as text so that they are sent unchanged; absent means the standard set.
    pub tools: Option<Vec<Box<RawValue>>>,
    /// Further tools for clients that declare a capability, by its name. One of them may replace a tool of all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools_for: BTreeMap<String, Vec<Box<RawValue>>>,
    /// The resources whose updates a modern server announces; absent means all.
    pub grants: Option<Vec<String>>,
    /// Streamable HTTP: refuses a handshake when it has this many sessions.
    pub max_sessions: Option<usize>,
    /// Adds that many tools `filler_0000`, `filler_0001`, ...
    pub tool_count: usize,
    /// An empty list means a server without that capability: its methods are unknown.
    pub prompts: Option<Vec<Box<RawValue>>>,
    pub resources: Option<Vec<Box<RawValue>>>,
    pub templates: Option<Vec<Box<RawValue>>>,
    /// Complete results of `prompts/get` by prompt and of `resources/read` by URI, in place of the standard ones.
    pub results: BTreeMap<String, Box<RawValue>>,
    pub page_size: Option<usize>,
    /// The list, by its member name, whose every page has the same next cursor.
    pub circular: Option<String>,
    pub answer: Style,
    /// Legacy streamable HTTP: issues `Mcp-Session-Id` and requires it.
    pub session: bool,
    /// How an unknown session is refused.
    pub unknown_session: Stranger,
    /// Legacy streamable HTTP: offers the GET stream; without it GET is 405.
    pub get_stream: bool,
    /// Events carry ids, and a cut stream can be resumed by a GET with `Last-Event-ID`.
    pub resume: bool,
    pub bearer: Option<String>,
    /// Names the resource metadata in the 401, like servers that require OAuth.
    pub oauth_metadata: bool,
    /// The authorization server in that metadata; absent means this server itself, which is not one.
    pub authorization_server: Option<String>,
    /// Repeats a refused token in the error.
    pub repeats_tokens: bool,
    /// Refuses tool calls with 403, because this scope is missing.
    pub wants_scope: Option<String>,
    /// Headers that every HTTP request must have with this value; otherwise 403.
    pub require_headers: BTreeMap<String, String>,
    /// Methods that are never answered.
    pub stall: Vec<String>,
    /// Method to HTTP status, or to the `code`, `message` and `data` of a JSON-RPC error. `POST`, `GET` and
    /// `DELETE` stand for every such HTTP request.
    pub fail: BTreeMap<String, Value>,
    pub delay_ms: BTreeMap<String, u64>,
    /// Lines printed to standard error at the start of the process.
    pub stderr: Vec<String>,
    pub exit_on_start: Option<i32>,
    /// stdio: keeps running after the end of its input and after SIGTERM.
    pub stubborn: bool,
    pub instructions: Option<String>,
    pub server_info: Value,
    /// Capabilities besides the standard ones.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub capabilities: Value,
    /// Method to the `_meta` of its results; that of a list also says where its page starts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, Value>,
    pub ttl_ms: u64,
    pub cache_scope: String,
    /// The target of the redirect `/away`; absent means this server under the other loopback name, another origin.
    pub redirect: Option<String>,
    /// Sent as the `endpoint` event of the legacy SSE transport instead of the real one.
    pub sse_endpoint: Option<String>,
    /// The ids of the tasks that it has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<String>,
    /// A file with one line for each call that has a `mark` among its arguments: `ran <mark>`, `cancelled <mark>`.
    /// It outlives the process.
    pub journal: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    Legacy,
    Modern,
    Both,
}

/// Responses to `server/discover` seen from legacy servers in practice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    MethodNotFound,
    Http400,
    Http404,
    Http500,
    EmptyResult,
    /// The connection (stdio: the process) ends without a response.
    Close,
    Silence,
    /// The process ends with code 1.
    Exit,
}

/// Responses to an unknown session id seen in practice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stranger {
    Json404,
    Json400,
    Text400,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    Json,
    Sse,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            era: Era::Both,
            probe: Probe::MethodNotFound,
            max_version: LEGACY_VERSIONS[3].into(),
            tools: None,
            tools_for: BTreeMap::new(),
            grants: None,
            max_sessions: None,
            tool_count: 0,
            prompts: None,
            resources: None,
            templates: None,
            results: BTreeMap::new(),
            page_size: None,
            circular: None,
            answer: Style::Json,
            session: true,
            unknown_session: Stranger::Json404,
            get_stream: true,
            resume: false,
            bearer: None,
            oauth_metadata: false,
            authorization_server: None,
            repeats_tokens: false,
            wants_scope: None,
            require_headers: BTreeMap::new(),
            stall: Vec::new(),
            fail: BTreeMap::new(),
            delay_ms: BTreeMap::new(),
            stderr: Vec::new(),
            exit_on_start: None,
            stubborn: false,
            instructions: Some("Fake instructions.".into()),
            server_info: json!({"name": "fake", "title": "Fake upstream", "version": "1.2.3"}),
            capabilities: Value::Null,
            meta: BTreeMap::new(),
            ttl_ms: 60_000,
            cache_scope: "public".into(),
            redirect: None,
            sse_endpoint: None,
            tasks: Vec::new(),
            journal: None,
        }
    }
}

impl Behaviour {
    /// The behaviour a test wrote as `json!({...})`; a key that does not exist is the test's mistake.
    pub fn of(config: Value) -> Self {
        serde_json::from_value(config).expect("a test wrote an unknown behaviour")
    }

    /// Merges the top-level keys of a JSON object, as text, so that definitions keep every digit.
    pub fn merge(&mut self, fragment: &str) -> serde_json::Result<()> {
        let mut whole: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&serde_json::to_string(self)?)?;
        whole.extend(serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(fragment)?);
        *self = serde_json::from_str(&serde_json::to_string(&whole)?)?;
        Ok(())
    }

    pub fn tools(&self) -> Vec<Box<RawValue>> {
        let mut tools = self.tools.clone().unwrap_or_else(catalog::tools);
        tools.extend((0..self.tool_count).map(|number| catalog::plain_tool(&format!("filler_{number:04}"))));
        tools
    }

    /// The tools that a client with these capabilities sees.
    pub fn tools_seen_with(&self, declared: &Value) -> Vec<Box<RawValue>> {
        let further = self.tools_for.iter().filter(|(capability, _)| declared.get(capability).is_some());
        let further: Vec<_> = further.flat_map(|(_, tools)| tools.clone()).collect();
        let is_replaced =
            |tool: &RawValue| further.iter().any(|new| named(new, "name") == named(tool, "name"));
        let mut tools = self.tools();
        tools.retain(|tool| !is_replaced(tool));
        tools.extend(further);
        tools
    }

    pub fn prompts(&self) -> Vec<Box<RawValue>> {
        self.prompts.clone().unwrap_or_else(catalog::prompts)
    }

    pub fn resources(&self) -> Vec<Box<RawValue>> {
        self.resources.clone().unwrap_or_else(catalog::resources)
    }

    pub fn templates(&self) -> Vec<Box<RawValue>> {
        self.templates.clone().unwrap_or_else(catalog::templates)
    }

    /// Shows exactly these tools; a name without a definition gets a plain one.
    pub fn show_tools(&mut self, names: &[String]) {
        let mut known = self.tools();
        known.extend(catalog::tools());
        let find =
            |name: &String| known.iter().find(|definition| named(definition, "name") == *name).cloned();
        self.tools = Some(names.iter().map(|n| find(n).unwrap_or_else(|| catalog::plain_tool(n))).collect());
        self.tool_count = 0;
    }

    pub fn tool_names(&self) -> Vec<String> {
        self.tools().iter().map(|definition| named(definition, "name")).collect()
    }

    pub fn legacy_versions(&self) -> Vec<&'static str> {
        LEGACY_VERSIONS.into_iter().filter(|version| *version <= self.max_version.as_str()).collect()
    }
}

/// The text member of a definition that names it: `name`, `uri` or `uriTemplate`.
pub fn named(definition: &RawValue, key: &str) -> String {
    let value = model::deep_json::parse(definition.get()).unwrap_or_default();
    value[key].as_str().unwrap_or_default().to_owned()
}
