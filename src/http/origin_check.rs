//! The check of the Host and Origin headers that every request passes first, so that foreign web pages cannot use a
//! gateway on the machine of their visitor; and the CORS headers for allowed origins.

use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use url::Url;

use super::WebSettings;
use super::error::ErrorResponse;

/// Tells whether a request is a CORS preflight.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Refuses foreign hosts and origins. Returns the origin to name in CORS headers, if there is one.
pub fn admit(
    settings: &WebSettings,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<HeaderValue>, ErrorResponse> {
    let named = headers.get_all(header::HOST).iter().map(|host| String::from_utf8_lossy(host.as_bytes()));
    // A request target in absolute form names a host, too.
    let mut hosts = named.chain(uri.authority().map(|authority| authority.as_str().into()));
    if settings.checks_host
        && let Some(host) = hosts.find(|host| !is_own_host(settings, host_of(host)))
    {
        return Err(ErrorResponse::forbidden(format!(
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
    Err(ErrorResponse::forbidden(format!(
        "requests from the origin {text:?} are refused; ALLOWED_ORIGINS can allow it"
    )))
}

fn is_own_host(settings: &WebSettings, host: &str) -> bool {
    let public = settings.public_url.as_ref().and_then(|url| url.host_str());
    is_loopback_name(host) || public.is_some_and(|public| public.eq_ignore_ascii_case(host))
}

fn is_own_origin(settings: &WebSettings, origin: &str, host: Option<&str>) -> bool {
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

/// Returns the host without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !host.is_empty() => host,
        Some(_) | None => authority,
    }
}

/// Adds the CORS headers for an allowed origin.
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

    fn settings() -> WebSettings {
        WebSettings {
            public_url: Some(Url::parse("https://gate.example").unwrap()),
            trust_proxy: false,
            allowed_origins: vec!["https://app.example".into()],
            is_loopback: true,
            checks_host: true,
            is_tls: false,
            telemetry: false,
        }
    }

    fn admitted(settings: &WebSettings, host: &str, origin: Option<&str>) -> bool {
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
        let open = WebSettings { is_loopback: false, checks_host: false, ..settings() };
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
        let open = WebSettings { is_loopback: false, checks_host: false, ..settings() };
        assert!(admitted(&open, "a.example:8080", Some("http://a.example:8080")));
        assert!(!admitted(&open, "a.example:8080", Some("http://a.example")));
        assert!(!admitted(&open, "a.example", Some("http://localhost")));
    }
}
