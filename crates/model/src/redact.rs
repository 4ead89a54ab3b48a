//! Masks the secrets of one server in text that comes from it: errors, status reasons, stderr.

use std::sync::Arc;

use serde_json::Value;

use super::{Issued, ServerConfig, Transport, arguments};

pub const MASK: &str = "***";

/// The shortest value that is masked. Shorter ones (`1`, `on`) are not secrets, and masking them would garble every
/// sentence.
const SHORTEST: usize = 4;

#[derive(Clone, Default)]
pub struct Redactor {
    /// The secrets of the registration, longest first, so that a value that contains another is masked as a whole.
    values: Arc<[String]>,
    /// Secrets issued after the registration.
    issued: Issued,
}

impl Redactor {
    pub fn of(config: &ServerConfig) -> Self {
        let mut values = Vec::new();
        let mut issued = Issued::default();
        match &config.transport {
            Transport::StreamableHttp(endpoint) | Transport::Sse(endpoint) => {
                issued = endpoint.oauth.issued.clone();
                values.extend(endpoint.bearer_token.iter().map(|token| token.expose().to_owned()));
                values.extend(endpoint.oauth.client_secret.iter().map(|secret| secret.expose().to_owned()));
                for header in endpoint.headers.values() {
                    values.push(header.expose().to_owned());
                    // In `Authorization: Bearer x`, the `x` alone is a secret too.
                    values.extend(header.expose().split_once(' ').map(|(_, rest)| rest.trim().to_owned()));
                }
                values.push(endpoint.url.username().to_owned());
                values.extend(endpoint.url.password().map(str::to_owned));
                values.extend(endpoint.user_info().into_iter().flat_map(|(user, password)| [user, password]));
                values.extend(endpoint.basic_credentials());
                for (_, value) in endpoint.url.query_pairs() {
                    values.push(value.into_owned());
                }
                for pair in endpoint.url.query().unwrap_or_default().split('&') {
                    // A parameter without a value may be an API key too.
                    values.push(pair.split_once('=').map_or(pair, |(_, value)| value).to_owned());
                }
            }
            Transport::Stdio(process) => {
                values.extend(process.env.values().map(|value| value.expose().to_owned()));
                values.extend(arguments::secrets_in(&process.args));
            }
        }
        // A server may send a value back line by line, or escaped inside JSON.
        let lines: Vec<_> = values.iter().flat_map(|value| value.lines()).map(str::to_owned).collect();
        values.extend(lines);
        let escaped: Vec<_> = values.iter().map(|value| Value::from(value.as_str()).to_string()).collect();
        values.extend(escaped.iter().map(|quoted| quoted[1..quoted.len() - 1].to_owned()));
        values.retain(|value| value.len() >= SHORTEST);
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values: values.into(), issued }
    }

    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.issued.secrets() {
            if secret.expose().len() >= SHORTEST && text.contains(secret.expose()) {
                text = text.replace(secret.expose(), MASK);
            }
        }
        for value in self.values.iter() {
            if text.contains(value.as_str()) {
                text = text.replace(value.as_str(), MASK);
            }
        }
        text
    }
}
