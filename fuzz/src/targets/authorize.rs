//! Reads the query of a request to `/authorize` from the first line, and the metadata of software from the rest. Promises:
//! answers go only to redirect URIs that the software has registered, of a kind that is allowed, as a browser reads them, and a
//! token is only for everything or for one MCP endpoint.

use model::Reach;
use model::oauth::registration::SoftwareRules;
use model::oauth::{Asked, ClientUrl, PrivateSchemes, RedirectUri, Software, resource};
use serde_json::Value;
use url::{Host, Url};

pub const DICTIONARY: &[&str] = &[
    "client_id=",
    "&redirect_uri=",
    "&response_type=code",
    "&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "&code_challenge_method=S256",
    "&resource=",
    "&state=",
    "https://gate.example",
    "/v0/groups/g/sse",
    "/v0/servers/s/mcp",
    "/mcp",
    "http://localhost",
    "http://127.0.0.1:1",
    "http://[::1]",
    "cursor://",
    "https://",
    "@",
    "%40",
    "\\",
    "%5C",
    "#",
    "?",
    "..",
    "%2e",
    "\t",
    "%0d%0a",
    "{\"redirect_uris\":[\"",
    "\"]}",
    "\",\"",
    "\"client_name\":\"",
    "\"token_endpoint_auth_method\":\"none\"",
    "\n",
];

pub fn run(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (query, rest) = input.split_at(end);
    let rules = SoftwareRules::default();
    let software = read_software(&rules, rest.get(1..).unwrap_or_default());
    let Ok(asked) = Asked::read(&String::from_utf8_lossy(query)) else { return };
    let base = Url::parse("https://gate.example").expect("it is a URL");
    if let Ok(request) = asked.request(&base)
        && let Reach::Endpoint(path) = &request.reach
    {
        assert!(resource::is_endpoint(path), "a token for {path}");
    }
    if let Ok(url) = ClientUrl::parse(&asked.client_id) {
        assert!(url.as_str() == asked.client_id && url.url().scheme() == "https" && url.url().path() != "/");
    }
    let Some(software) = software else { return };
    if let Ok(uri) = asked.redirect_uri(&software, &rules) {
        assert!(software.redirect_uris.iter().any(|registered| uri.fits(registered)));
        check_redirect(&uri);
    }
}

/// Reads the metadata, and checks every redirect URI of the software.
fn read_software(rules: &SoftwareRules, metadata: &[u8]) -> Option<Software> {
    let Ok(Value::Object(metadata)) = serde_json::from_slice(metadata) else { return None };
    let software = rules.read_registration(metadata).ok()?.software;
    assert!(!software.redirect_uris.is_empty() && !software.name.chars().any(char::is_control));
    assert_eq!(Software::from_json(&software.to_json()).as_ref(), Some(&software));
    for registered in &software.redirect_uris {
        let uri = RedirectUri::parse(registered, &PrivateSchemes::default()).expect("it was allowed");
        assert!(uri.fits(registered));
        check_redirect(&uri);
    }
    Some(software)
}

/// Compares where an answer goes with how a browser reads the URI.
fn check_redirect(uri: &RedirectUri) {
    let before = Url::parse(uri.as_str()).expect("a redirect URI is a URL");
    let answer = uri.with(&[("code", "a&b=c#d"), ("iss", "https://gate.example")]);
    let after = Url::parse(&answer).expect("an answer is a URL");
    assert_eq!(
        (after.scheme(), after.host(), after.port(), after.path()),
        (before.scheme(), before.host(), before.port(), before.path())
    );
    assert!(after.fragment().is_none() && after.username().is_empty() && after.password().is_none());
    assert!(after.query_pairs().any(|(name, value)| name == "code" && value == "a&b=c#d"));
    assert!(answer.bytes().all(|byte| byte.is_ascii_graphic()));
    match after.scheme() {
        "https" => assert!(uri.is_https() && after.has_host()),
        "http" => assert!(match after.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }),
        scheme => assert!(["cursor", "vscode", "vscode-insiders"].contains(&scheme), "{scheme}"),
    }
}
