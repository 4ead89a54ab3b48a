//! What every request passes before anybody looks at it: Host and Origin (a web page somewhere must not reach a
//! gateway on somebody's machine), CORS for the origins that people allowed, and the limit of bodies.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use url::Url;

use super::Settings;
use super::error::Refusal;

pub const BODY_LIMIT: usize = 4 * 1024 * 1024;
/// A client that is still sending would not see our refusal; so much is read and thrown away for its sake.
const DISCARD_LIMIT: usize = 16 * 1024 * 1024;
const DISCARD_TIME: Duration = Duration::from_secs(5);

/// Whether a browser only asks what it may ask.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The whole body, if it is within the limit.
pub async fn read_body<B>(mut body: B) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Refusal::bad_request(format!("the body cannot be read: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > BODY_LIMIT {
            let received = whole.len() + data.len();
            drop(whole);
            discard(body, received).await;
            return Err(Refusal::too_large(BODY_LIMIT));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads what is left of a body that nobody wants, within reason.
pub async fn discard<B: Body<Data = Bytes> + Unpin>(mut body: B, mut received: usize) {
    let rest = async {
        while received < DISCARD_LIMIT
            && let Some(Ok(frame)) = body.frame().await
        {
            received += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, rest).await;
}

/// Refuses foreign hosts and origins; gives back the origin that CORS headers must name.
pub fn admit(settings: &Settings, uri: &Uri, headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
    let named = headers.get_all(header::HOST).iter().map(|host| String::from_utf8_lossy(host.as_bytes()));
    // A target in absolute form names a host as well.
    let mut hosts = named.chain(uri.authority().map(|authority| authority.as_str().into()));
    if settings.checks_host
        && let Some(host) = hosts.find(|host| !is_own_host(settings, host_of(host)))
    {
        return Err(Refusal::forbidden(format!(
            "the host {host:?} is not a name of this machine; use localhost, or set PUBLIC_URL"
        )));
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(None) };
    let text = origin.to_str().unwrap_or_default();
    if origins.next().is_none() {
        if settings.allowed_origins.iter().any(|allowed| allowed == text) {
            return Ok(Some(origin.clone()));
        }
        if is_own_origin(settings, text, host) {
            return Ok(None);
        }
    }
    Err(Refusal::forbidden(format!(
        "requests from the origin {text:?} are refused; ALLOWED_ORIGINS can allow it"
    )))
}

fn is_own_host(settings: &Settings, host: &str) -> bool {
    let public = settings.public_url.as_ref().and_then(|url| url.host_str());
    is_loopback_name(host) || public.is_some_and(|public| public.eq_ignore_ascii_case(host))
}

fn is_own_origin(settings: &Settings, origin: &str, host: Option<&str>) -> bool {
    let Some(url) = Url::parse(origin).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return false;
    };
    let authority = authority_of(&url);
    let is_host = host.is_some_and(|host| {
        let host = Url::parse(&format!("{}://{host}", url.scheme()));
        host.is_ok_and(|host| authority_of(&host) == authority)
    });
    let is_public = settings.public_url.as_ref().is_some_and(|public| authority_of(public) == authority);
    let is_local = settings.is_loopback && url.host_str().is_some_and(is_loopback_name);
    is_host || is_public || is_local
}

fn authority_of(url: &Url) -> (Option<&str>, Option<u16>) {
    (url.host_str(), url.port_or_known_default())
}

fn is_loopback_name(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
}

/// The host without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.is_empty() => host,
        Some(_) | None => authority,
    }
}

pub fn allow(headers: &mut HeaderMap, origin: HeaderValue, asked_headers: Option<HeaderValue>) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let exposed = HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    if let Some(asked) = asked_headers {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
    }
    let methods = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            public_url: Some(Url::parse("https://gate.example").unwrap()),
            trust_proxy: false,
            allowed_origins: vec!["https://app.example".into()],
            is_loopback: true,
            checks_host: true,
            telemetry: false,
        }
    }

    fn admitted(settings: &Settings, host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        headers.extend(origin.map(|origin| (header::ORIGIN, origin.parse().unwrap())));
        admit(settings, &Uri::from_static("/"), &headers).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_are_hosts_on_loopback() {
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "gate.example"] {
            assert!(admitted(&settings(), host, None), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil", "[::2]:80", "", "192.168.0.1"]
        {
            assert!(!admitted(&settings(), host, None), "{host}");
        }
        let open = Settings { is_loopback: false, checks_host: false, ..settings() };
        assert!(admitted(&open, "anything.example", None));
    }

    #[test]
    fn foreign_origins_are_refused() {
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "http://[::1]:9",
            "https://gate.example",
            "https://app.example",
        ] {
            assert!(admitted(&settings(), "localhost:8080", Some(origin)), "{origin}");
        }
        for origin in ["null", "https://evil.example", "http://gate.example", "file://", "localhost", ""] {
            assert!(!admitted(&settings(), "localhost:8080", Some(origin)), "{origin}");
        }
        let open = Settings { is_loopback: false, checks_host: false, ..settings() };
        assert!(admitted(&open, "a.example:8080", Some("http://a.example:8080")));
        assert!(!admitted(&open, "a.example:8080", Some("http://a.example")));
        assert!(!admitted(&open, "a.example", Some("http://localhost")));
    }
}
