//! OAuth authorization in a browser: opens the authorization URL, waits for the redirect on a local port, and passes
//! its parameters to the gateway.

use std::process::Stdio;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use super::invocation::Invocation;
use super::output::{self, Format, Spinner};
use super::record::{one, text};
use super::remote::{ApiRequest, ApiResponse};
use super::servers;
use super::suggestion::{ListedNoun, explain};

const CALLBACK_PATH: &str = "/oauth/callback";
/// Longest wait for the redirect: how long the gateway keeps a pending authorization.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
const LONGEST_REQUEST: usize = 64 * 1024;
/// The parameters of the redirect that are passed to the gateway.
const KEYS: [&str; 5] = ["code", "state", "iss", "error", "error_description"];

/// Sign in to a server again
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate authorize linear
  toolgate authorize linear --no-browser")]
pub struct Authorize {
    /// Name of the server
    name: String,
    /// Print the authorization URL, do not open a browser
    #[arg(long)]
    no_browser: bool,
}

pub async fn run(invocation: &Invocation, authorize: Authorize) -> anyhow::Result<()> {
    let callback = Callback::listen(None).await?;
    let body = one("oauth_redirect_uri", callback.redirect_uri());
    let request = ApiRequest::post(&["servers", &authorize.name, "reauthorize"]).object(&body);
    let answer = invocation.remote.ask(request).await;
    let answer = explain(invocation, ListedNoun::Server, &authorize.name, answer).await?;
    match finish(invocation, &answer, Some(callback), None, !authorize.no_browser).await? {
        Some(answer) => servers::show_registered(invocation, &answer),
        None => Ok(()),
    }
}

/// Waits for the redirect and completes an authorization. Returns `None` if the redirect URI is not on this machine.
pub async fn finish(
    invocation: &Invocation,
    required: &ApiResponse,
    callback: Option<Callback>,
    redirect_uri: Option<&str>,
    browser: bool,
) -> anyhow::Result<Option<ApiResponse>> {
    let required_json = required.json()?;
    let details = &required_json["authorization_required"];
    let (id, address) = (text(details, "session_id"), text(details, "authorization_url"));
    let callback = match (callback, redirect_uri.and_then(loopback)) {
        (Some(callback), _) => Some(callback),
        (None, Some(uri)) => Some(Callback::listen(Some(uri)).await?),
        (None, None) => None,
    };
    output::message(&format!("The server requires authorization. Open this address:\n\n  {address}\n"));
    let Some(callback) = callback else {
        output::message("The provider will send the browser to the registered redirect URI.");
        if invocation.format == Format::Json {
            output::json(&required.text)?;
        }
        return Ok(None);
    };
    if browser && !open_browser(&address) {
        output::message(
            "No browser could be started; open the address on a machine that can reach this one.",
        );
    }
    let limit = time_left(&text(details, "expires_at"));
    let spinner = Spinner::countdown("waiting for the authorization", limit);
    let brought = tokio::time::timeout(limit, callback.wait()).await;
    drop(spinner);
    let Ok(brought) = brought else { bail!("the authorization timed out; try again") };
    let path = ["upstream_oauth", "sessions", &id, "complete"];
    Ok(Some(invocation.remote.ask(ApiRequest::post(&path).object(&brought?)).await?))
}

/// The local listener that receives the redirect.
pub struct Callback {
    listener: TcpListener,
    uri: Url,
}

impl Callback {
    /// Listens on the port of `uri`, or on any free port.
    pub async fn listen(uri: Option<Url>) -> anyhow::Result<Self> {
        let port = uri.as_ref().and_then(Url::port_or_known_default).unwrap_or(0);
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listener.with_context(|| format!("cannot listen on port {port} for the browser"))?;
        let port = listener.local_addr()?.port();
        let uri = match uri {
            Some(uri) => uri,
            None => Url::parse(&format!("http://127.0.0.1:{port}{CALLBACK_PATH}"))?,
        };
        Ok(Self { listener, uri })
    }

    pub fn redirect_uri(&self) -> &str {
        self.uri.as_str()
    }

    /// Waits for the redirect and returns its parameters.
    async fn wait(&self) -> anyhow::Result<Map<String, Value>> {
        loop {
            let (mut stream, _) = self.listener.accept().await?;
            let Some(target) = read_target(&mut stream).await else { continue };
            let url = self.uri.join(&target).ok().filter(|url| url.path() == self.uri.path());
            let brought = url.map(|url| {
                let pairs = url.query_pairs().filter(|(key, _)| KEYS.contains(&key.as_ref()));
                pairs
                    .map(|(key, value)| (key.into_owned(), Value::from(value.into_owned())))
                    .collect::<Map<_, _>>()
            });
            // Browsers also request icons; only the redirect has a `state`.
            let Some(brought) = brought.filter(|brought| brought.contains_key("state")) else {
                reply(&mut stream, "404 Not Found", "There is nothing here.").await;
                continue;
            };
            let text = match brought.contains_key("error") {
                true => "Authorization failed. See the terminal for details; you can close this window.",
                false => "Authorization received. You can close this window and go back to the terminal.",
            };
            reply(&mut stream, "200 OK", text).await;
            return Ok(brought);
        }
    }
}

/// Reads a request and returns its target, if it is a GET.
async fn read_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST_REQUEST {
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read_buf(&mut head)).await;
        if !matches!(read, Ok(Ok(1..))) {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.lines().next()?.split(' ');
    (words.next()? == "GET").then(|| words.next().map(str::to_owned))?
}

async fn reply(stream: &mut TcpStream, status: &str, text: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>toolgate</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        page.len()
    );
    let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Parses a redirect URI that points to this machine.
fn loopback(uri: &str) -> Option<Url> {
    let url = Url::parse(uri).ok().filter(|url| url.scheme() == "http")?;
    matches!(url.host_str(), Some("127.0.0.1" | "localhost")).then_some(url)
}

pub fn open_browser(address: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = std::process::Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

/// Returns the time left until `expires_at` (RFC 3339 in UTC); the longest wait if it cannot be parsed.
fn time_left(expires_at: &str) -> Duration {
    let end = seconds_since_1970(expires_at);
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_secs());
    end.map_or(LONGEST_WAIT, |end| Duration::from_secs(end.saturating_sub(now)).min(LONGEST_WAIT))
}

fn seconds_since_1970(time: &str) -> Option<u64> {
    let number = |from: usize, to: usize| time.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    // Days since 0000-03-01, since a year that begins in March ends with its leap day.
    let (year, month) =
        if month <= 2 { (year.checked_sub(1)?, month + 9) } else { (year, month.checked_sub(3)?) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds_since_1970("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds_since_1970("2026-11-15T05:43:00.123Z"), Some(1_794_721_380));
        assert_eq!(seconds_since_1970("2024-02-29T23:59:59Z"), Some(1_709_251_199));
        assert_eq!(seconds_since_1970("soon"), None);
    }

    #[test]
    fn only_this_machine_can_be_waited_on() {
        assert!(loopback("http://localhost:9000/cb").is_some());
        assert!(loopback("https://localhost:9000/cb").is_none());
        assert!(loopback("http://gate.example.com/cb").is_none());
    }
}
