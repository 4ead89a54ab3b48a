//! The JSON of servers, tools, prompts, resources and templates in the REST API, without secrets. Definitions are
//! borrowed from the catalog, since a list can have thousands of tools.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use gateway::Entry;
use gateway::record::ServerRecord;
use model::{Placement, Prompt, RateLimit, Resource, Template, Tool, ToolLimits, offering, uri};

/// A registered server, without secrets.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = ServerRecord)]
pub struct ServerBody {
    name: String,
    /// `stdio`, `streamable_http` or `sse`.
    transport: &'static str,
    enabled: bool,
    description: String,
    /// The URL with credentials masked, and without its path for the role `user`; empty for a process.
    url: String,
    /// The command of a process; empty for a server with a URL.
    command: String,
    /// The arguments of a process; masked for the role `user`.
    args: Vec<String>,
    /// The environment variables of a process, with masked values.
    env: BTreeMap<String, &'static str>,
    /// `stateless` or `stateful`.
    session_mode: &'static str,
    /// `one` if the processes of the server run on one of several gateways; omitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<&'static str>,
    /// The limit of all callers together, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<RateLimitBody>,
    /// Limits of single tools, by native name or pattern.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    tool_limits: BTreeMap<String, RateLimitBody>,
    /// `connecting`, `connected`, `degraded`, `failed` or `disabled`.
    status: &'static str,
    /// The reason for the status; empty if there is none.
    status_reason: String,
    /// The revision of MCP that the server uses; empty if it is not known yet.
    protocol_version: String,
    /// The name and version that the server reports, as it sent them.
    #[schema(value_type = HashMap<String, Value>)]
    server_info: Box<RawValue>,
    /// The instructions of the server for agents.
    instructions: String,
    /// The number of tools that the server lists, including disabled ones.
    tool_count: usize,
    /// The number of prompts that the server lists, including disabled ones.
    prompt_count: usize,
    /// The number of resources that the server lists.
    resource_count: usize,
}

impl From<ServerRecord> for ServerBody {
    fn from(server: ServerRecord) -> Self {
        Self {
            name: server.name,
            transport: server.transport,
            enabled: server.enabled,
            description: server.description,
            url: server.url,
            command: server.command,
            args: server.args,
            env: server.env,
            session_mode: server.session_mode,
            placement: shown_placement(server.placement),
            rate_limit: server.rate_limit.map(RateLimitBody::from),
            tool_limits: RateLimitBody::by_key(&server.tool_limits),
            status: server.status.as_str(),
            status_reason: server.status_reason,
            protocol_version: server.protocol_version,
            server_info: server.server_info.unwrap_or_else(|| raw(NO_OBJECT).to_owned()),
            instructions: server.instructions,
            tool_count: server.tool_count,
            prompt_count: server.prompt_count,
            resource_count: server.resource_count,
        }
    }
}

/// The placement of a server, if it is not the default, which means nothing to most servers.
pub fn shown_placement(placement: Placement) -> Option<&'static str> {
    (placement != Placement::default()).then(|| placement.as_str())
}

/// A rate limit for calls.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[schema(as = RateLimit)]
pub struct RateLimitBody {
    /// Calls per minute, at least 1.
    pub calls_per_minute: u32,
    /// Burst size, at least 1; `calls_per_minute` if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

impl RateLimitBody {
    pub fn by_key(limits: &ToolLimits) -> BTreeMap<String, Self> {
        limits.by_key().iter().map(|(key, limit)| (key.clone(), (*limit).into())).collect()
    }
}

impl From<RateLimit> for RateLimitBody {
    fn from(limit: RateLimit) -> Self {
        let RateLimit { calls_per_minute, burst } = limit;
        Self { calls_per_minute, burst }
    }
}

/// A tool. Fields of its definition are passed on as its server sent them.
#[derive(Serialize, ToSchema)]
pub struct ToolRecord<'a> {
    /// The full name, `<server>__<tool>`.
    pub name: String,
    /// Whether both the tool and its server are enabled.
    pub enabled: bool,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    /// The JSON Schema of the arguments.
    #[schema(value_type = HashMap<String, Value>)]
    pub input_schema: &'a RawValue,
    /// The server's hints about the behaviour of the tool.
    #[schema(value_type = HashMap<String, Value>)]
    pub annotations: &'a RawValue,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub title: Option<&'a RawValue>,
    /// The JSON Schema of the structured result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HashMap<String, Value>>)]
    pub output_schema: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Value>>)]
    pub icons: Option<&'a RawValue>,
    /// The `_meta` object of the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HashMap<String, Value>>)]
    pub meta: Option<&'a RawValue>,
    /// The `execution` object of the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HashMap<String, Value>>)]
    pub execution: Option<&'a RawValue>,
}

impl<'a> ToolRecord<'a> {
    pub fn of(entry: &Entry, tool: &'a Tool) -> Self {
        let fields = tool.fields();
        Self {
            name: entry.name().qualify(&tool.name),
            enabled: entry.shows_tool(&tool.name),
            description: fields.description.unwrap_or_else(|| raw(NO_TEXT)),
            input_schema: fields.input_schema.unwrap_or_else(|| raw(NO_OBJECT)),
            annotations: fields.annotations.unwrap_or_else(|| raw(NO_OBJECT)),
            title: fields.title,
            output_schema: fields.output_schema,
            icons: fields.icons,
            meta: fields.meta,
            execution: fields.execution,
        }
    }
}

/// A prompt. Fields of its definition are passed on as its server sent them.
#[derive(Serialize, ToSchema)]
pub struct PromptRecord<'a> {
    /// The full name, `<server>__<prompt>`.
    pub name: String,
    /// Whether both the prompt and its server are enabled.
    pub enabled: bool,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    pub arguments: Vec<PromptArgumentBody>,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub title: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Value>>)]
    pub icons: Option<&'a RawValue>,
    /// The `_meta` object of the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HashMap<String, Value>>)]
    pub meta: Option<&'a RawValue>,
}

impl<'a> PromptRecord<'a> {
    pub fn of(entry: &Entry, prompt: &'a Prompt) -> Self {
        let fields = prompt.fields();
        Self {
            name: entry.name().qualify(&prompt.name),
            enabled: entry.shows_prompt(&prompt.name),
            description: fields.description.unwrap_or_else(|| raw(NO_TEXT)),
            arguments: prompt.arguments().into_iter().map(PromptArgumentBody::from).collect(),
            title: fields.title,
            icons: fields.icons,
            meta: fields.meta,
        }
    }
}

/// An argument of a prompt.
#[derive(Serialize, ToSchema)]
#[schema(as = PromptArgument)]
pub struct PromptArgumentBody {
    pub name: String,
    #[schema(required = false)]
    pub description: String,
    /// Whether the prompt cannot be rendered without this argument.
    #[schema(required = false)]
    pub required: bool,
}

impl From<offering::PromptArgument> for PromptArgumentBody {
    fn from(argument: offering::PromptArgument) -> Self {
        let offering::PromptArgument { name, description, required } = argument;
        Self { name, description, required }
    }
}

/// A resource. Fields of its definition are passed on as its server sent them.
#[derive(Serialize, ToSchema)]
pub struct ResourceRecord<'a> {
    /// The server's own URI of the resource.
    pub uri: &'a str,
    /// The URI that is unique in the gateway; accepted wherever a URI is.
    pub qualified_uri: String,
    #[schema(value_type = String)]
    pub name: &'a RawValue,
    /// The display name.
    #[schema(value_type = String)]
    pub title: &'a RawValue,
    /// Whether the server is enabled.
    pub enabled: bool,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    #[schema(value_type = String)]
    pub mime_type: &'a RawValue,
    #[schema(value_type = HashMap<String, Value>)]
    pub annotations: &'a RawValue,
    /// The `_meta` object of the definition.
    #[schema(value_type = HashMap<String, Value>)]
    pub meta: &'a RawValue,
    /// The name of the server.
    pub server: &'a str,
}

impl<'a> ResourceRecord<'a> {
    pub fn of(entry: &'a Entry, resource: &'a Resource) -> Self {
        let fields = resource.fields();
        Self {
            uri: &resource.uri,
            qualified_uri: uri::qualify(entry.name(), &resource.uri),
            name: fields.name.unwrap_or_else(|| raw(NO_TEXT)),
            title: fields.title.unwrap_or_else(|| raw(NO_TEXT)),
            enabled: entry.is_enabled(),
            description: fields.description.unwrap_or_else(|| raw(NO_TEXT)),
            mime_type: fields.mime_type.unwrap_or_else(|| raw(NO_TEXT)),
            annotations: fields.annotations.unwrap_or_else(|| raw(NO_OBJECT)),
            meta: fields.meta.unwrap_or_else(|| raw(NO_OBJECT)),
            server: entry.name().as_str(),
        }
    }
}

/// A resource template. Fields of its definition are passed on as its server sent them.
#[derive(Serialize, ToSchema)]
pub struct TemplateRecord<'a> {
    /// The template of the URIs (RFC 6570).
    pub uri_template: &'a str,
    #[schema(value_type = String)]
    pub name: &'a RawValue,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    #[schema(value_type = String)]
    pub mime_type: &'a RawValue,
    /// The name of the server.
    pub server: &'a str,
}

impl<'a> TemplateRecord<'a> {
    pub fn of(entry: &'a Entry, template: &'a Template) -> Self {
        let fields = template.fields();
        Self {
            uri_template: &template.uri_template,
            name: fields.name.unwrap_or_else(|| raw(NO_TEXT)),
            description: fields.description.unwrap_or_else(|| raw(NO_TEXT)),
            mime_type: fields.mime_type.unwrap_or_else(|| raw(NO_TEXT)),
            server: entry.name().as_str(),
        }
    }
}

const NO_TEXT: &str = r#""""#;
const NO_OBJECT: &str = "{}";

/// Returns the default of a field that the server omitted but that every record has.
fn raw(json: &'static str) -> &'static RawValue {
    serde_json::from_str(json).expect("the stand-ins are JSON")
}
