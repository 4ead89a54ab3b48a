//! A server as people see it, without its secrets. The face that shows it decides how it is written as JSON.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::catalog::Entry;
use model::redact::MASK;
use model::{Placement, RateLimit, Status, ToolLimits, Transport};

/// A server as people see it.
#[derive(Clone, Debug)]
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
    pub placement: Placement,
    pub rate_limit: Option<RateLimit>,
    pub tool_limits: ToolLimits,
    pub status: Status,
    pub status_reason: String,
    pub protocol_version: String,
    /// The name and version that the server reports, as it wrote them.
    pub server_info: Option<Box<RawValue>>,
    pub instructions: String,
    pub tool_count: usize,
    pub prompt_count: usize,
    pub resource_count: usize,
}

impl ServerRecord {
    /// Masks the arguments, for people who must not see secrets that arguments may contain.
    pub fn without_arguments(mut self) -> Self {
        self.args.fill(MASK.to_owned());
        self
    }

    /// Replaces the reason of a failure by its kind, for people who must not see what the server said.
    pub fn with_kind_of_failure(mut self) -> Self {
        let unspecific = match self.status {
            Status::Degraded => "some of its tools, prompts or resources cannot be used",
            Status::Failed => "the connection failed",
            Status::Connecting => "",
            // A remark about names that everybody sees.
            Status::Connected | Status::Disabled => return self,
        };
        if !self.status_reason.is_empty() {
            self.status_reason = upstream::kind_of(&self.status_reason).unwrap_or_else(|| unspecific.into());
        }
        self
    }

    /// Shortens the URL to scheme, host and port: paths may contain secrets, too.
    pub fn without_url_path(mut self) -> Self {
        if let Some((scheme, rest)) = self.url.split_once("://") {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = authority.rsplit('@').next().unwrap_or_default();
            self.url = format!("{scheme}://{host}");
        }
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
            placement: config.placement,
            rate_limit: config.rate_limit,
            tool_limits: config.tool_limits.clone(),
            status,
            status_reason,
            protocol_version: offering.protocol_version.clone(),
            server_info: offering.server_info.clone(),
            instructions: offering.instructions.clone().unwrap_or_default(),
            tool_count: entry.everything().tools.len(),
            prompt_count: entry.everything().prompts.len(),
            resource_count: entry.everything().resources.len(),
        }
    }
}

/// The status of a server, and the reason for it.
pub fn state_of(entry: &Entry) -> (Status, String) {
    match &entry.upstream {
        Some(upstream) => {
            let state = upstream.state();
            (state.status, state.reason)
        }
        None => (Status::Disabled, String::new()),
    }
}
