//! Servers and what they offer as people read them: the JSON records, without a single secret.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::catalog::Entry;
use model::offering::PromptArgument;
use model::redact::MASK;
use model::{Prompt, Resource, Status, Template, Tool, Transport, uri};

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ServerRecord {
    pub name: String,
    pub transport: &'static str,
    pub enabled: bool,
    pub description: String,
    pub url: String,
    pub command: String,
    pub args: Vec<String>,
    /// Names of the variables; the values are masked.
    pub env: BTreeMap<String, &'static str>,
    pub session_mode: &'static str,
    pub status: &'static str,
    pub status_reason: String,
    pub protocol_version: String,
    #[schema(value_type = HashMap<String, Value>)]
    pub server_info: Box<RawValue>,
    pub instructions: String,
    pub tool_count: usize,
    pub prompt_count: usize,
    pub resource_count: usize,
}

impl ServerRecord {
    /// The record for people who must not know what else arguments may carry.
    pub fn without_arguments(mut self) -> Self {
        self.args.fill(MASK.to_owned());
        self
    }

    pub fn of(entry: &Entry) -> Self {
        let config = &entry.registration.config;
        let offering = entry.offering();
        let (url, command, args, env) = match &config.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => {
                (endpoint.masked_url(), String::new(), Vec::new(), BTreeMap::new())
            }
            Transport::Stdio(process) => {
                let env = process.env.keys().map(|name| (name.clone(), MASK)).collect();
                (String::new(), process.command.clone(), process.args.clone(), env)
            }
        };
        let (status, status_reason) = state_of(entry);
        Self {
            name: config.name.to_string(),
            transport: config.transport.as_str(),
            enabled: entry.is_enabled(),
            description: config.description.clone(),
            url,
            command,
            args,
            env,
            session_mode: config.session_mode.as_str(),
            status: status.as_str(),
            status_reason,
            protocol_version: offering.protocol_version.clone(),
            server_info: offering.server_info.clone().unwrap_or_else(|| raw("{}").to_owned()),
            instructions: offering.instructions.clone().unwrap_or_default(),
            tool_count: offering.tools.len(),
            prompt_count: offering.prompts.len(),
            resource_count: offering.resources.len(),
        }
    }
}

/// How a server is doing and why.
pub fn state_of(entry: &Entry) -> (Status, String) {
    match &entry.upstream {
        Some(upstream) => {
            let state = upstream.state();
            (state.status, state.reason)
        }
        None => (Status::Disabled, String::new()),
    }
}

/// A tool; what the upstream wrote is passed on as it wrote it.
#[derive(Serialize, ToSchema)]
pub struct ToolRecord<'a> {
    pub name: String,
    pub enabled: bool,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    #[schema(value_type = HashMap<String, Value>)]
    pub input_schema: &'a RawValue,
    #[schema(value_type = HashMap<String, Value>)]
    pub annotations: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub title: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HashMap<String, Value>>)]
    pub output_schema: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Value>>)]
    pub icons: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<HashMap<String, Value>>)]
    pub meta: Option<&'a RawValue>,
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

#[derive(Serialize, ToSchema)]
pub struct PromptRecord<'a> {
    pub name: String,
    pub enabled: bool,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    pub arguments: Vec<PromptArgument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub title: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Value>>)]
    pub icons: Option<&'a RawValue>,
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
            arguments: prompt.arguments(),
            title: fields.title,
            icons: fields.icons,
            meta: fields.meta,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ResourceRecord<'a> {
    pub uri: &'a str,
    pub qualified_uri: String,
    #[schema(value_type = String)]
    pub name: &'a RawValue,
    #[schema(value_type = String)]
    pub title: &'a RawValue,
    pub enabled: bool,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    #[schema(value_type = String)]
    pub mime_type: &'a RawValue,
    #[schema(value_type = HashMap<String, Value>)]
    pub annotations: &'a RawValue,
    #[schema(value_type = HashMap<String, Value>)]
    pub meta: &'a RawValue,
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

#[derive(Serialize, ToSchema)]
pub struct TemplateRecord<'a> {
    pub uri_template: &'a str,
    #[schema(value_type = String)]
    pub name: &'a RawValue,
    #[schema(value_type = String)]
    pub description: &'a RawValue,
    #[schema(value_type = String)]
    pub mime_type: &'a RawValue,
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

/// Stands in for what an upstream left out but a record always has.
fn raw(json: &'static str) -> &'static RawValue {
    serde_json::from_str(json).expect("the stand-ins are JSON")
}
