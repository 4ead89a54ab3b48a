//! The checks that keep foreign web pages from using a gateway through the browser of their visitor: of Host, Origin and
//! Sec-Fetch-Site. Every request passes them first. Also the CORS headers for allowed origins.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use url::Url;

use super::WebSettings;
use super::error::ErrorResponse;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Tells whether a request is a CORS preflight.
pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Refuses a request of HTTP/1.1 that has not exactly one Host header (RFC 9112, section 3.2).
pub fn require_host(head: &Parts) -> Result<(), ErrorResponse> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => Ok(()),
        (None, _) if head.version < Version::HTTP_11 => Ok(()),
        (_, _) => Err(ErrorResponse::bad_request("a request needs one Host header")),
    }
}

/// Refuses hosts that are not known to be ours. This protects against DNS rebinding where no token is required: the name
/// of a foreign page can resolve to the address of this machine.
pub fn check_host(settings: &WebSettings, head: &Parts) -> Result<(), ErrorResponse> {
    let named = head.headers.get_all(header::HOST).iter();
    let named = named.map(|host| String::from_utf8_lossy(host.as_bytes()));
    // A request target in absolute form names a host, too.
    let mut hosts = named.chain(head.uri.authority().map(|authority| authority.as_str().into()));
    hosts.try_for_each(|host| check_name(settings, &host))
}

/// Refuses one host as [`check_host`] does.
pub fn check_name(settings: &WebSettings, host: &str) -> Result<(), ErrorResponse> {
    match is_own_host(settings, host_of(host)) {
        true => Ok(()),
        false => Err(ErrorResponse::forbidden(format!(
            "the host {host:?} is not known to be this gateway; use localhost, or add the name to ALLOWED_HOSTS"
        ))),
    }
}

/// The page that sent a request, as its headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A page of this gateway, or the person, by typing the address.
    OwnPage,
    /// A page of another origin. One of `ALLOWED_ORIGINS` is such a page, too.
    OtherPage,
    /// No browser, or one that tells nothing about it.
    Unknown,
}

impl Sender {
    /// `own` is the address of this gateway, of which scheme, host and port count.
    pub fn of(headers: &HeaderMap, own: &Url) -> Self {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if let Some(origin) = origins.next() {
            let is_own = origin.to_str().is_ok_and(|text| text == own.origin().ascii_serialization());
            return if is_own && origins.next().is_none() { Sender::OwnPage } else { Sender::OtherPage };
        }
        let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
        match headers.contains_key(SEC_FETCH_SITE) {
            false => Sender::Unknown,
            true if sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none")) => Sender::OwnPage,
            true => Sender::OtherPage,
        }
    }
}

/// How pages of other loopback origins may use a route, if the gateway listens on loopback only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalPages {
    /// Completely: clients of MCP are pages, too, such as the inspector.
    MayChange,
    /// Without changing anything.
    MayRead,
}

/// Refuses foreign origins. Returns the origin to name in CORS headers, if there is one.
pub fn check_origin(
    settings: &WebSettings,
    head: &Parts,
    local_pages: LocalPages,
) -> Result<Option<HeaderValue>, ErrorResponse> {
    let mut origins = head.headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return check_fetch_site(head).map(|()| None);
    };
    let text = origin.to_str().unwrap_or_default();
    if origins.next().is_none() {
        if settings.allowed_origins.iter().any(|allowed| allowed == text) {
            return Ok(Some(origin.clone()));
        }
        let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let may_be_local = local_pages == LocalPages::MayChange || head.method.is_safe();
        if is_own_origin(settings, text, host, may_be_local && settings.is_loopback) {
            return Ok(None);
        }
    }
    Err(ErrorResponse::forbidden(format!(
        "requests from the origin {text:?} are refused; ALLOWED_ORIGINS can allow it"
    )))
}

/// Refuses changes that a foreign page sends without an Origin, such as some browsers do for forms.
fn check_fetch_site(head: &Parts) -> Result<(), ErrorResponse> {
    let mut sites = head.headers.get_all(SEC_FETCH_SITE).iter();
    match sites.find(|site| !matches!(site.as_bytes(), b"same-origin" | b"none")) {
        Some(site) if !head.method.is_safe() => Err(ErrorResponse::forbidden(format!(
            "a request from a page of another origin that could change something is refused (Sec-Fetch-Site is {:?})",
            String::from_utf8_lossy(site.as_bytes())
        ))),
        Some(_) | None => Ok(()),
    }
}

fn is_own_host(settings: &WebSettings, host: &str) -> bool {
    let public = settings.public_url.as_ref().and_then(|url| url.host_str());
    let mut names = settings.allowed_hosts.iter().map(String::as_str).chain(public);
    is_loopback_name(host)
        || names.any(|name| name.eq_ignore_ascii_case(host))
        // A page cannot have made its own name resolve to an address that the browser calls by number.
        || !settings.is_loopback && is_address(host)
}

fn is_address(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    host.parse::<Ipv4Addr>().is_ok() || bracketed.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok())
}

fn is_own_origin(settings: &WebSettings, origin: &str, host: Option<&str>, may_be_local: bool) -> bool {
    let Some(url) = Url::parse(origin).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return false;
    };
    let authority = authority_of(&url);
    let is_host = host.is_some_and(|host| {
        let host = Url::parse(&format!("{}://{host}", url.scheme()));
        host.is_ok_and(|host| authority_of(&host) == authority)
    });
    let is_public = settings.public_url.as_ref().is_some_and(|public| authority_of(public) == authority);
    let is_local = may_be_local && url.host_str().is_some_and(is_loopback_name);
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
            allowed_origins: vec!["https://app.example".into()],
            allowed_hosts: vec!["gate.internal".into(), "[fd00::1]".into()],
            is_loopback: true,
            ..WebSettings::default()
        }
    }

    fn open_settings() -> WebSettings {
        WebSettings { is_loopback: false, ..settings() }
    }

    fn head(method: &str, headers: &[(&str, &str)]) -> Parts {
        let builder = axum::http::Request::builder().method(method).uri("/");
        let request = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_sender_of_a_request_is_known_by_its_origin_or_site() {
        let sender = |own: &str, headers: &[(&str, &str)]| {
            Sender::of(&head("POST", headers).headers, &Url::parse(own).unwrap())
        };
        let gate = |headers: &[(&str, &str)]| sender("https://gate.example", headers);
        assert_eq!(gate(&[]), Sender::Unknown);
        for own in [
            &[("origin", "https://gate.example")][..],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("origin", "https://gate.example"), ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(gate(own), Sender::OwnPage, "{own:?}");
        }
        for other in [
            &[("origin", "http://gate.example")][..],
            &[("origin", "https://gate.example:8443")],
            &[("origin", "https://app.example")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", "https://gate.example"), ("origin", "https://gate.example")],
            &[("origin", "https://app.example"), ("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")],
        ] {
            assert_eq!(gate(other), Sender::OtherPage, "{other:?}");
        }
        assert_eq!(sender("http://localhost:80/", &[("origin", "http://localhost")]), Sender::OwnPage);
        assert_eq!(sender("http://localhost:8080", &[("origin", "http://localhost:8080")]), Sender::OwnPage);
    }

    #[test]
    fn a_request_names_one_host() {
        let check = |headers: &[(&str, &str)]| require_host(&head("GET", headers)).is_ok();
        assert!(check(&[("host", "a")]) && check(&[("host", "")]));
        assert!(!check(&[]) && !check(&[("host", "a"), ("host", "a")]));
        let mut old = head("GET", &[]);
        old.version = Version::HTTP_10;
        assert!(require_host(&old).is_ok());
    }

    #[test]
    fn only_known_names_are_hosts() {
        let admits =
            |settings: &WebSettings, host| check_host(settings, &head("GET", &[("host", host)])).is_ok();
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:8080",
            "gate.example",
            "Gate.Internal:80",
            "[FD00::1]",
        ] {
            assert!(admits(&settings(), host) && admits(&open_settings(), host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.1.evil",
            "",
            "xgate.internal",
            "gate.internal.evil",
            "1.2.3.4.5",
            "[::2",
            "::2",
            "0x7f000001",
            "2130706433",
        ] {
            assert!(!admits(&settings(), host) && !admits(&open_settings(), host), "{host}");
        }
        for address in ["192.168.0.1", "192.168.0.1:80", "[::2]", "[::2]:80"] {
            assert!(!admits(&settings(), address) && admits(&open_settings(), address), "{address}");
        }
    }

    fn admitted(settings: &WebSettings, host: &str, origin: &str, method: &str, pages: LocalPages) -> bool {
        check_origin(settings, &head(method, &[("host", host), ("origin", origin)]), pages).is_ok()
    }

    #[test]
    fn foreign_origins_are_refused() {
        use LocalPages::{MayChange, MayRead};
        let here = "localhost:8080";
        for origin in ["http://localhost:8080", "https://gate.example", "https://app.example"] {
            assert!(admitted(&settings(), here, origin, "POST", MayRead), "{origin}");
        }
        for origin in ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:9", "http://127.0.0.1:8080"]
        {
            assert!(admitted(&settings(), here, origin, "POST", MayChange), "{origin}");
            for method in ["GET", "HEAD", "OPTIONS"] {
                assert!(admitted(&settings(), here, origin, method, MayRead), "{method} {origin}");
            }
            for method in ["POST", "PUT", "PATCH", "DELETE", "FROB"] {
                assert!(!admitted(&settings(), here, origin, method, MayRead), "{method} {origin}");
            }
            assert!(!admitted(&open_settings(), here, "http://localhost:3000", "GET", MayChange), "{origin}");
        }
        for origin in ["null", "https://evil.example", "http://gate.example", "file://", "localhost", ""] {
            assert!(!admitted(&settings(), here, origin, "GET", MayChange), "{origin}");
        }
        let open = open_settings();
        assert!(admitted(&open, "a.example:8080", "http://a.example:8080", "POST", MayRead));
        assert!(!admitted(&open, "a.example:8080", "http://a.example", "POST", MayRead));
        assert!(!admitted(&open, "a.example", "http://localhost", "GET", MayRead));
    }

    #[test]
    fn changes_of_foreign_pages_without_an_origin_are_refused() {
        let admits = |method, headers: &[(&str, &str)]| {
            check_origin(&settings(), &head(method, headers), LocalPages::MayChange).is_ok()
        };
        assert!(admits("POST", &[]) && admits("DELETE", &[("sec-fetch-site", "none")]));
        assert!(admits("POST", &[("sec-fetch-site", "same-origin")]));
        for site in ["cross-site", "same-site", "", "SAME-ORIGIN"] {
            assert!(!admits("POST", &[("sec-fetch-site", site)]), "{site}");
            assert!(!admits("POST", &[("sec-fetch-site", "none"), ("sec-fetch-site", site)]), "{site}");
            assert!(admits("GET", &[("sec-fetch-site", site)]), "{site}");
        }
    }
}
