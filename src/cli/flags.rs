//! Flags that several commands share, and parsing of flags with several values.

use clap::Args;
use serde_json::{Map, Value, json};

use super::error::UsageError;

/// The flags of `register` and `update server` that describe a server.
#[derive(Args)]
pub struct ServerFlags {
    /// URL of the server
    #[arg(long)]
    url: Option<String>,
    /// streamable_http (default with --url), sse, or stdio (default with a command)
    #[arg(long, hide_possible_values = true, value_parser = ["streamable_http", "sse", "stdio"])]
    transport: Option<String>,
    /// Description of the server
    #[arg(long)]
    description: Option<String>,
    /// Token that the gateway sends to the server
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    bearer_token: Option<String>,
    /// Header that the gateway sends to the server, as "Name: value"; may be repeated
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
    /// Variable for the server's process, as NAME=value; may be repeated
    #[arg(long, value_name = "VARIABLE")]
    env: Vec<String>,
    /// Working directory of the server's process
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// stateless: callers share the server; stateful: each caller has its own session
    #[arg(long, value_name = "MODE", hide_possible_values = true, value_parser = ["stateless", "stateful"])]
    session_mode: Option<String>,
    /// each: a process on every gateway; one: on one of several gateways
    #[arg(long, value_name = "PLACEMENT", hide_possible_values = true, value_parser = ["each", "one"])]
    placement: Option<String>,
    /// Timeout of a call in milliseconds; 0 = none
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// Maximum number of concurrent calls; 0 = no limit
    #[arg(long, value_name = "N")]
    max_concurrency: Option<u64>,
    #[command(flatten)]
    limit: RateLimitFlags,
    /// Client ID for OAuth, if the authorization server does not issue one
    #[arg(long, value_name = "ID")]
    oauth_client_id: Option<String>,
    /// Client secret for OAuth
    #[arg(long, allow_hyphen_values = true, value_name = "SECRET")]
    oauth_client_secret: Option<String>,
    /// Redirect URI for OAuth [default: a local port]
    #[arg(long, value_name = "URL")]
    oauth_redirect_uri: Option<String>,
    /// Scope to request; may be repeated
    #[arg(long, value_name = "SCOPE")]
    oauth_scope: Vec<String>,
    /// Command that runs the server, with its arguments
    #[arg(last = true)]
    command: Vec<String>,
}

impl ServerFlags {
    pub fn is_empty(&self) -> bool {
        self.to_object().is_ok_and(|object| object.is_empty())
    }

    /// Returns the fields for the REST API that the flags set.
    pub fn to_object(&self) -> anyhow::Result<Map<String, Value>> {
        let mut object = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                object.insert(key.to_owned(), value);
            }
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        put("url", text(&self.url));
        put("description", text(&self.description));
        put("bearer_token", text(&self.bearer_token));
        put("headers", pairs(&self.header, "--header", [": ", ":", "="])?);
        put("env", pairs(&self.env, "--env", ["="])?);
        put("cwd", text(&self.cwd));
        put("session_mode", text(&self.session_mode));
        put("placement", text(&self.placement));
        put("timeout_ms", self.timeout_ms.map(Value::from));
        put("max_concurrency", self.max_concurrency.map(Value::from));
        put("rate_limit", self.limit.to_value());
        put("oauth_client_id", text(&self.oauth_client_id));
        put("oauth_client_secret", text(&self.oauth_client_secret));
        put("oauth_redirect_uri", text(&self.oauth_redirect_uri));
        put("oauth_scopes", (!self.oauth_scope.is_empty()).then(|| self.oauth_scope.clone().into()));
        if let Some((command, args)) = self.command.split_first() {
            put("command", Some(command.clone().into()));
            put("args", Some(args.into()));
        }
        let transport = match (&self.transport, self.command.is_empty(), &self.url) {
            (Some(transport), _, _) => Some(transport.as_str()),
            (None, false, Some(_)) => {
                return Err(UsageError("give --url or a command, not both".into()).into());
            }
            (None, false, None) => Some("stdio"),
            // A new URL alone does not change the transport.
            (None, true, _) => None,
        };
        put("transport", transport.map(Value::from));
        Ok(object)
    }
}

/// The flags of servers, clients and users that limit their calls.
#[derive(Args)]
pub struct RateLimitFlags {
    /// Maximum number of calls per minute; 0 = no limit
    #[arg(long, value_name = "N")]
    rate_limit: Option<u32>,
    /// Maximum number of calls at once [default: as many as per minute]
    #[arg(long, value_name = "N", requires = "rate_limit")]
    rate_limit_burst: Option<u32>,
}

impl RateLimitFlags {
    /// Returns the limit for the REST API, if it is given; `null` removes it.
    pub fn to_value(&self) -> Option<Value> {
        let limit = match (self.rate_limit?, self.rate_limit_burst) {
            (0, _) => Value::Null,
            (calls, None) => json!({ "calls_per_minute": calls }),
            (calls, Some(burst)) => json!({ "calls_per_minute": calls, "burst": burst }),
        };
        Some(limit)
    }
}

/// Parses a comma-separated list.
pub fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Parses pairs such as `NAME=value` into an object; `None` if there are none.
fn pairs<const N: usize>(
    given: &[String],
    flag: &str,
    separators: [&str; N],
) -> Result<Option<Value>, UsageError> {
    let mut object = Map::new();
    for pair in given {
        // The first separator in the text splits it.
        let first = separators
            .iter()
            .filter_map(|mark| pair.find(mark).map(|at| (at, mark.len())))
            .min_by_key(|(at, length)| (*at, usize::MAX - length));
        let Some((at, length)) = first.filter(|(at, _)| *at > 0) else {
            let form = if flag == "--env" { "NAME=value" } else { "\"Name: value\"" };
            return Err(UsageError(format!("{flag} must have the form {form}")));
        };
        object.insert(pair[..at].trim().to_owned(), pair[at + length..].into());
    }
    Ok((!object.is_empty()).then(|| object.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn headers_and_variables_are_pairs() {
        let given = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let headers = pairs(&given(&["X-Key: a=b", "Y:c", "Z=d: e"]), "--header", [": ", ":", "="]);
        assert_eq!(headers.unwrap().unwrap(), json!({"X-Key": "a=b", "Y": "c", "Z": "d: e"}));
        let variables = pairs(&given(&["A=b=c", "B="]), "--env", ["="]);
        assert_eq!(variables.unwrap().unwrap(), json!({"A": "b=c", "B": ""}));
        assert!(pairs(&given(&["A"]), "--env", ["="]).is_err());
        assert!(pairs(&given(&["=a"]), "--env", ["="]).is_err());
    }
}
