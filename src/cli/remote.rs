//! HTTP client for a running gateway, and the error messages for a gateway that cannot be reached or refuses a request.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, redirect};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Map, Value};
use url::{Host, Url};

use super::epochs::LastEpoch;
use super::settings::{self, RemoteSettings};
use super::wording::{self, Source};
use model::{Secret, deep_json};

/// Error code of a registration without redirect URI, for a server that requires OAuth.
pub const OAUTH_REQUIRED: &str = "upstream_oauth_required";
/// Error code of a request that names the epoch of another database.
const UNKNOWN_EPOCH: &str = "unknown_epoch";
const ERROR_CODE: &str = "x-error-code";
const EPOCH: &str = "x-toolgate-epoch";
const MIN_EPOCH: &str = "x-toolgate-min-epoch";
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error(
        "cannot reach a gateway at {registry}: {reason}; start one with `toolgate start`, or name another with --registry"
    )]
    Unreachable { registry: String, reason: String },
    #[error("{sentence}")]
    Refused { status: u16, sentence: String, code: Option<String> },
    #[error("the access token has characters that are not allowed in a header")]
    UnusableToken,
    #[error("{registry} does not answer like a gateway ({found}); check --registry")]
    Foreign { registry: String, found: String },
}

/// A request to the REST API.
pub struct ApiRequest {
    method: Method,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    body: Option<String>,
    /// Sent instead of the token of the settings.
    token: Option<Secret>,
    source: Source,
}

impl ApiRequest {
    fn new(method: Method, path: &[&str]) -> Self {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        Self { method, path, query: Vec::new(), body: None, token: None, source: Source::default() }
    }

    pub fn get(path: &[&str]) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: &[&str]) -> Self {
        Self::new(Method::POST, path)
    }

    pub fn put(path: &[&str]) -> Self {
        Self::new(Method::PUT, path)
    }

    pub fn patch(path: &[&str]) -> Self {
        Self::new(Method::PATCH, path)
    }

    pub fn delete(path: &[&str]) -> Self {
        Self::new(Method::DELETE, path)
    }

    pub fn query(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    /// Adds the parameters that have a value.
    pub fn filters(mut self, filters: &[(&'static str, &Option<String>)]) -> Self {
        for (key, value) in filters {
            self.query.extend(value.as_ref().map(|value| (*key, value.clone())));
        }
        self
    }

    pub fn object(self, body: &Map<String, Value>) -> Self {
        self.body(Value::Object(body.clone()).to_string())
    }

    /// Says where the fields of the body come from, for the words of an error.
    pub fn source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    pub fn token(mut self, token: Option<Secret>) -> Self {
        self.token = token;
        self
    }

    /// Sets a body that is already JSON.
    pub fn body(mut self, json: String) -> Self {
        self.body = Some(json);
        self
    }
}

/// A successful response of the gateway.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: u16,
    pub text: String,
    registry: String,
}

impl ApiResponse {
    pub fn json(&self) -> Result<Value, RemoteError> {
        deep_json::parse(&self.text).map_err(|error| RemoteError::Foreign {
            registry: self.registry.clone(),
            found: format!("the answer is not JSON: {error}"),
        })
    }
}

pub struct Remote {
    client: Client,
    registry: Url,
    authorization: Option<HeaderValue>,
    is_from_flag: bool,
    epoch: Arc<LastEpoch>,
}

impl Remote {
    pub fn new(settings: RemoteSettings) -> anyhow::Result<Self> {
        let RemoteSettings { registry, token, is_from_flag } = settings;
        let mut client = Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .redirect(redirect::Policy::none())
            .tls_backend_preconfigured(tls(&registry)?);
        if is_this_machine(&registry) {
            client = client.no_proxy();
        }
        let authorization = token.as_deref().map(authorization).transpose()?;
        let epoch = Arc::new(LastEpoch::load(&registry));
        Ok(Self { client: client.build()?, registry, authorization, is_from_flag, epoch })
    }

    /// Returns a client for the same gateway with another token.
    pub fn with_token(&self, token: Option<&str>) -> Result<Self, RemoteError> {
        let (client, registry) = (self.client.clone(), self.registry.clone());
        let authorization = token.map(authorization).transpose()?;
        let (is_from_flag, epoch) = (self.is_from_flag, self.epoch.clone());
        Ok(Self { client, registry, authorization, is_from_flag, epoch })
    }

    /// Returns a command that a person can run next, against the same gateway.
    pub fn command(&self, arguments: &str) -> String {
        settings::command(self.is_from_flag.then(|| self.registry()), arguments)
    }

    pub fn registry(&self) -> &str {
        self.registry.as_str().trim_end_matches('/')
    }

    pub fn is_on_this_machine(&self) -> bool {
        is_this_machine(&self.registry)
    }

    pub fn has_token(&self) -> bool {
        self.authorization.is_some()
    }

    /// Sends a request to the REST API.
    pub async fn ask(&self, request: ApiRequest) -> Result<ApiResponse, RemoteError> {
        let source = request.source;
        self.read(self.send(&["api", "v0"], request, None).await?, source).await
    }

    /// Sends a request to a system route, outside of the REST API.
    pub async fn ask_system(&self, request: ApiRequest) -> Result<ApiResponse, RemoteError> {
        let source = request.source;
        self.read(self.send(&[], request, None).await?, source).await
    }

    /// Sends a request to the REST API and returns its event stream; dropping that cancels the request.
    pub async fn ask_for_events(&self, request: ApiRequest) -> Result<Response, RemoteError> {
        let events = HeaderValue::from_static("text/event-stream");
        let source = request.source;
        let response = self.send(&["api", "v0"], request, Some(events)).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        self.read(response, source).await.and_then(|answer| {
            Err(RemoteError::Foreign {
                registry: self.registry().to_owned(),
                found: format!("HTTP {}", answer.status),
            })
        })
    }

    /// Describes a transport error.
    pub fn unreachable(&self, error: &reqwest::Error) -> RemoteError {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let reason = if error.is_timeout() { "it took too long".to_owned() } else { cause.to_string() };
        RemoteError::Unreachable { registry: self.registry().to_owned(), reason }
    }

    /// Starts a request to an MCP endpoint, for [`Remote::exchange`].
    pub fn mcp_request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let builder = self.client.request(method, self.url(path.iter().copied()));
        match &self.authorization {
            Some(authorization) => builder.header(AUTHORIZATION, authorization.clone()),
            None => builder,
        }
    }

    /// Tells whether the gateway is on this machine; then no proxy is used.
    pub fn is_local(&self) -> bool {
        is_this_machine(&self.registry)
    }

    /// Returns the URL of a path, given as its segments.
    pub fn url<'a>(&self, path: impl Iterator<Item = &'a str>) -> Url {
        let mut url = self.registry.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    async fn send(
        &self,
        prefix: &[&str],
        request: ApiRequest,
        accept: Option<HeaderValue>,
    ) -> Result<Response, RemoteError> {
        let mut url = self.url(prefix.iter().copied().chain(request.path.iter().map(String::as_str)));
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let own = request.token.as_ref().map(|token| authorization(token.expose())).transpose()?;
        let authorization = own.or_else(|| self.authorization.clone());
        let build = || {
            let mut builder = self.client.request(request.method.clone(), url.clone());
            if let Some(authorization) = &authorization {
                builder = builder.header(AUTHORIZATION, authorization);
            }
            if let Some(accept) = &accept {
                builder = builder.header(ACCEPT, accept);
            }
            if let Some(body) = &request.body {
                builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
            }
            builder
        };
        self.exchange(build).await.map_err(|error| self.unreachable(&error))
    }

    /// Sends a request that sees the changes of the requests before it, whichever gateway behind the address receives it.
    /// `build` is called again if the last change was made in a database that this gateway no longer has.
    pub async fn exchange(&self, build: impl Fn() -> RequestBuilder) -> reqwest::Result<Response> {
        let request = match self.epoch.get() {
            Some(epoch) => build().header(MIN_EPOCH, epoch),
            None => build(),
        };
        let mut response = request.send().await?;
        if header(&response, ERROR_CODE) == Some(UNKNOWN_EPOCH) {
            self.epoch.forget();
            response = build().send().await?;
        }
        if let Some(epoch) = header(&response, EPOCH).and_then(|text| text.parse().ok()) {
            self.epoch.note(epoch);
        }
        Ok(response)
    }

    async fn read(&self, response: Response, source: Source) -> Result<ApiResponse, RemoteError> {
        let status = response.status().as_u16();
        let header = |name: &str| header(&response, name).map(str::to_owned);
        let (code, location) = (header(ERROR_CODE), header("location"));
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        let registry = self.registry().to_owned();
        if (200..300).contains(&status) {
            return Ok(ApiResponse { status, text, registry });
        }
        if let Some(location) = location.filter(|_| (300..400).contains(&status)) {
            return Err(RemoteError::Foreign { registry, found: format!("it redirects to {location}") });
        }
        Err(self.refused(status, text.as_bytes(), code, source))
    }

    /// Describes a response that is not a success.
    pub fn refused(&self, status: u16, body: &[u8], code: Option<String>, source: Source) -> RemoteError {
        let said: Option<Value> = serde_json::from_slice(body).ok();
        match said.as_ref().and_then(|said| said.get("error")).and_then(Value::as_str) {
            Some(sentence) => {
                let sentence = self.advise(status, &self.translate(sentence, source));
                RemoteError::Refused { status, sentence, code }
            }
            None => {
                RemoteError::Foreign { registry: self.registry().to_owned(), found: format!("HTTP {status}") }
            }
        }
    }

    /// Returns an error of the gateway in the words of the command line.
    pub fn translate(&self, sentence: &str, source: Source) -> String {
        wording::translate(sentence, source, |arguments| self.command(arguments))
    }

    /// Adds advice for the command line to an error message of the gateway.
    fn advise(&self, status: u16, sentence: &str) -> String {
        match status {
            401 if sentence.contains("INIT_SECRET") => {
                format!("{sentence} (set the variable INIT_SECRET for this command)")
            }
            401 if self.has_token() => {
                format!(
                    "{sentence} (the token was refused; log in again with `{}`)",
                    self.command("login <token>")
                )
            }
            401 => {
                format!("{sentence} (log in with `{}`, or set TOOLGATE_TOKEN)", self.command("login <token>"))
            }
            403 if sentence.contains("not initialized") => {
                format!("{sentence}; run `{}`", self.command("init-server"))
            }
            _ => sentence.to_owned(),
        }
    }
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

fn authorization(token: &str) -> Result<HeaderValue, RemoteError> {
    HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| RemoteError::UnusableToken)
}

/// Configures TLS. System certificates are loaded only for `https`, so that a machine without any can use `http`.
fn tls(registry: &Url) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    if registry.scheme() == "https" {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Tells whether the gateway is on this machine; then no proxy is used.
fn is_this_machine(registry: &Url) -> bool {
    match registry.host() {
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
