//! A registered server: how it is reached, how its links are shared, and what is disabled. `registration` reads it from
//! JSON and writes it back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use url::Url;

use super::{Issued, RateLimit, Secret, ServerName, ToolLimits};

pub const DEFAULT_TIMEOUT_MS: u64 = 300_000;

#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    pub name: ServerName,
    pub description: String,
    pub transport: Transport,
    pub session_mode: SessionMode,
    /// Only for a server that is run as a process.
    pub placement: Placement,
    /// Timeout of one call in milliseconds; 0 = none.
    pub timeout_ms: u64,
    /// Maximum number of calls in flight; 0 = no limit.
    pub max_concurrency: u64,
    /// The limit of all callers together.
    pub rate_limit: Option<RateLimit>,
    pub tool_limits: ToolLimits,
}

impl ServerConfig {
    pub fn timeout(&self) -> Option<Duration> {
        (self.timeout_ms > 0).then(|| Duration::from_millis(self.timeout_ms))
    }

    /// The endpoint of a server that is reached over HTTP.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => Some(endpoint),
            Transport::Stdio(_) => None,
        }
    }

    pub fn endpoint_mut(&mut self) -> Option<&mut Endpoint> {
        match &mut self.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => Some(endpoint),
            Transport::Stdio(_) => None,
        }
    }

    /// The address of the server for error messages: masked URL or bare command, never arguments or secrets.
    pub fn target(&self) -> String {
        match &self.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => endpoint.masked_url(),
            Transport::Stdio(process) => process.command.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    StreamableHttp(Endpoint),
    Sse(Endpoint),
    Stdio(Process),
}

impl Transport {
    pub fn as_str(&self) -> &'static str {
        match self {
            Transport::StreamableHttp(_) => "streamable_http",
            Transport::Sse(_) => "sse",
            Transport::Stdio(_) => "stdio",
        }
    }
}

/// Where and how a server is reached over HTTP.
#[derive(Clone, PartialEq)]
pub struct Endpoint {
    /// May carry credentials; show it only through [`Endpoint::masked_url`].
    pub url: Url,
    pub bearer_token: Option<Secret>,
    pub headers: BTreeMap<String, Secret>,
    pub oauth: OAuthSettings,
}

impl Endpoint {
    /// The URL with user info and query values masked.
    pub fn masked_url(&self) -> String {
        let mut shown = format!("{}://", self.url.scheme());
        if !self.url.username().is_empty() || self.url.password().is_some() {
            shown.push_str("***@");
        }
        shown.push_str(self.url.host_str().unwrap_or_default());
        if let Some(port) = self.url.port() {
            shown.push_str(&format!(":{port}"));
        }
        shown.push_str(self.url.path());
        if let Some(query) = self.url.query() {
            let pairs = query.split('&').map(|pair| match pair.split_once('=') {
                Some((key, _)) => format!("{key}=***"),
                None => "***".to_owned(),
            });
            shown.push('?');
            shown.push_str(&pairs.collect::<Vec<_>>().join("&"));
        }
        shown
    }

    /// Scheme, host, port and path: nothing that could be a secret.
    pub fn bare_url(&self) -> String {
        let mut shown = self.url.clone();
        shown.set_query(None);
        shown.set_fragment(None);
        // Both fail only for URLs without a host, which are refused at registration.
        let _ = shown.set_username("").and_then(|()| shown.set_password(None));
        shown.into()
    }

    /// Whether the registration contains credentials, so that OAuth is not used.
    pub fn has_credentials(&self) -> bool {
        self.bearer_token.is_some()
            || self.user_info().is_some()
            || self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"))
    }

    /// The user and password of the URL, percent-decoded.
    pub fn user_info(&self) -> Option<(String, String)> {
        if self.url.username().is_empty() && self.url.password().is_none() {
            return None;
        }
        let password = self.url.password().unwrap_or_default();
        Some((percent_decoded(self.url.username()), percent_decoded(password)))
    }

    /// The credentials after the word `Basic`: `user:password@` in a URL means basic authentication.
    pub fn basic_credentials(&self) -> Option<String> {
        let (user, password) = self.user_info()?;
        Some(BASE64_STANDARD.encode(format!("{user}:{password}")))
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.masked_url()).finish_non_exhaustive()
    }
}

pub(super) fn percent_decoded(text: &str) -> String {
    // A query string decodes `%xx` the same way, but would turn `+` into a space.
    let query = format!("x={}", text.replace('+', "%2B"));
    url::form_urlencoded::parse(query.as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct OAuthSettings {
    pub redirect_uri: Option<String>,
    pub client_id: Option<String>,
    pub client_secret: Option<Secret>,
    pub scopes: Vec<String>,
    /// Secrets that the server's authorization server has issued since.
    pub issued: Issued,
}

/// A server that runs as a child process of the gateway.
#[derive(Clone, PartialEq)]
pub struct Process {
    pub command: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, Secret>,
    pub cwd: Option<String>,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("command", &self.command).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionMode {
    /// The server keeps no state per session, so all callers share its links.
    #[default]
    Stateless,
    /// Each session of an agent has its own link.
    Stateful,
}

impl SessionMode {
    pub fn as_str(self) -> &'static str {
        match self {
            SessionMode::Stateless => "stateless",
            SessionMode::Stateful => "stateful",
        }
    }
}

/// On which of the gateways that share a database the processes of a server run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// On each gateway where the server is called.
    #[default]
    Each,
    /// On one gateway, which the others reach it through.
    One,
}

impl Placement {
    pub fn as_str(self) -> &'static str {
        match self {
            Placement::Each => "each",
            Placement::One => "one",
        }
    }
}

/// What people disabled. It is kept by name, so it survives changed lists and replaced servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    pub enabled: bool,
    pub disabled_tools: BTreeSet<String>,
    pub disabled_prompts: BTreeSet<String>,
}

impl Default for Flags {
    fn default() -> Self {
        Self { enabled: true, disabled_tools: BTreeSet::new(), disabled_prompts: BTreeSet::new() }
    }
}

/// The status of a server, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Connecting,
    Connected,
    /// Serving, but something is wrong.
    Degraded,
    Failed,
    Disabled,
}

impl Status {
    pub const ALL: [Status; 5] =
        [Status::Connecting, Status::Connected, Status::Degraded, Status::Failed, Status::Disabled];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Status::Connecting => "connecting",
            Status::Connected => "connected",
            Status::Degraded => "degraded",
            Status::Failed => "failed",
            Status::Disabled => "disabled",
        }
    }
}
