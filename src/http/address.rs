//! The base URL of the gateway as a caller sees it, for URLs in responses.

use axum::http::{HeaderMap, header};

use super::WebSettings;

/// Returns scheme, host and port (and the path of `PUBLIC_URL`, if it has one), without a trailing slash.
pub fn base_url(settings: &WebSettings, headers: &HeaderMap) -> String {
    if let Some(url) = &settings.public_url {
        return url.as_str().trim_end_matches('/').to_owned();
    }
    let first = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok())?;
        value.split(',').next().map(str::trim).filter(|value| !value.is_empty())
    };
    let own = if settings.is_tls { "https" } else { "http" };
    let (mut scheme, mut host) = (None, None);
    if settings.trust_proxy {
        // Any other scheme would put a forged URL into the response.
        let forwarded = first("x-forwarded-proto").map(str::to_ascii_lowercase);
        scheme = forwarded.filter(|scheme| matches!(scheme.as_str(), "http" | "https"));
        host = first("x-forwarded-host");
    }
    let host = host.or_else(|| first(header::HOST.as_str())).unwrap_or("localhost");
    format!("{}://{host}", scheme.as_deref().unwrap_or(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_url_wins_and_proxies_are_believed_only_when_trusted() {
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost:8080".parse().unwrap());
        headers.insert("x-forwarded-proto", "https".parse().unwrap());
        headers.insert("x-forwarded-host", "gate.example, inner".parse().unwrap());
        let mut settings = WebSettings::default();
        assert_eq!(base_url(&settings, &headers), "http://localhost:8080");
        settings.is_tls = true;
        assert_eq!(base_url(&settings, &headers), "https://localhost:8080");
        settings.is_tls = false;
        settings.trust_proxy = true;
        assert_eq!(base_url(&settings, &headers), "https://gate.example");
        settings.public_url = Some("https://public.example/gate/".parse().unwrap());
        assert_eq!(base_url(&settings, &headers), "https://public.example/gate");
    }
}
