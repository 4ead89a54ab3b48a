//! Redirect URIs of agents: which ones may be registered, and which one fits to a registered one.

use url::Url;

use super::ClientHosts;

const LONGEST: usize = 2048;
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// Schemes that a browser handles itself: a private scheme must lead to a program of the person's machine.
const OF_BROWSERS: [&str; 13] = [
    "http",
    "https",
    "javascript",
    "data",
    "file",
    "blob",
    "about",
    "vbscript",
    "ws",
    "wss",
    "ftp",
    "view-source",
    "filesystem",
];

/// `OAUTH_REDIRECT_SCHEMES`: the private schemes that redirect URIs may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateSchemes(Vec<String>);

impl Default for PrivateSchemes {
    fn default() -> Self {
        Self(["cursor", "vscode", "vscode-insiders"].map(str::to_owned).into())
    }
}

impl PrivateSchemes {
    /// Parses a comma list. The error is the entry that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let schemes = entries.map(|entry| {
            let scheme = entry.to_ascii_lowercase();
            let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            match is_scheme && !OF_BROWSERS.contains(&scheme.as_str()) {
                true => Ok(scheme),
                false => Err(entry.to_owned()),
            }
        });
        schemes.collect::<Result<_, _>>().map(Self)
    }
}

/// A well-formed redirect URI, as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectUri {
    text: String,
    place: Place,
}

/// Where a redirect leads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// To this host.
    Https(String),
    /// To a program on the person's machine that listens at a port. Has the host and what follows the port.
    Loopback(&'static str, String),
    /// To a program on the person's machine that has registered this scheme.
    Private(String),
}

impl RedirectUri {
    /// Parses a redirect URI. The error is a sentence fragment that says what is wrong with it.
    pub fn parse(text: &str, schemes: &PrivateSchemes) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("must have at most {LONGEST} characters"));
        }
        // Whatever else is in it could be read in different ways: as other characters, or as a part of the host.
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>\\^`{|}".contains(&byte)) {
            return Err("contains characters that a URI must not have".to_owned());
        }
        if text.contains('#') {
            return Err("must not contain a fragment".to_owned());
        }
        let url = Url::parse(text).map_err(|_| "is not a URI".to_owned())?;
        if !url.username().is_empty() || url.password().is_some() || authority(text).contains('@') {
            return Err("must not contain a user name or password".to_owned());
        }
        let place = match url.scheme() {
            "https" if text.starts_with("https://") && !authority(text).is_empty() => {
                Place::Https(url.host_str().unwrap_or_default().to_owned())
            }
            "http" => {
                let (host, rest) = loopback(text).ok_or(
                    "must begin with https://, or http:// for localhost, 127.0.0.1 or [::1]".to_owned(),
                )?;
                Place::Loopback(host, rest.to_owned())
            }
            scheme if schemes.0.iter().any(|known| known == scheme) => Place::Private(scheme.to_owned()),
            scheme => return Err(format!("has the scheme {scheme}, which is not allowed here")),
        };
        Ok(Self { text: text.to_owned(), place })
    }

    /// Whether the hosts that agents may have include that of an https URI.
    pub fn is_admitted_by(&self, hosts: &ClientHosts) -> bool {
        match &self.place {
            Place::Https(host) => hosts.admit(host),
            Place::Loopback(..) | Place::Private(_) => true,
        }
    }

    /// Whether this is the URI that was registered. The port of a loopback address does not count (RFC 8252, section 7.3).
    pub fn fits(&self, registered: &str) -> bool {
        match &self.place {
            Place::Https(_) | Place::Private(_) => self.text == registered,
            Place::Loopback(host, rest) => loopback(registered) == Some((*host, rest.as_str())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Consents are remembered only for these: anybody can listen at a port of a machine.
    pub fn is_https(&self) -> bool {
        matches!(self.place, Place::Https(_))
    }

    /// Where the answer goes, for people.
    pub fn shown(&self) -> String {
        match &self.place {
            Place::Https(host) => host.clone(),
            Place::Loopback(host, _) => format!("a program on your computer ({host})"),
            Place::Private(scheme) => format!("the program on your computer that opens {scheme}: links"),
        }
    }

    /// The URI with parameters added to its query.
    pub fn with(&self, parameters: &[(&str, &str)]) -> String {
        let mut encoded = url::form_urlencoded::Serializer::new(String::new());
        encoded.extend_pairs(parameters);
        let joint = match self.text.split_once('?') {
            None => "?",
            Some((_, query)) if query.is_empty() || query.ends_with('&') => "",
            Some(_) => "&",
        };
        format!("{}{joint}{}", self.text, encoded.finish())
    }
}

/// The part between `//` and the path.
fn authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}

/// Splits an http URI of a loopback host into the host and what follows the port.
fn loopback(text: &str) -> Option<(&'static str, &str)> {
    let rest = text.strip_prefix("http://")?;
    let (host, rest) = LOOPBACK.iter().find_map(|host| Some((*host, rest.strip_prefix(host)?)))?;
    let rest = match rest.strip_prefix(':') {
        None => rest,
        Some(port) => {
            let end = port.find(|c: char| !c.is_ascii_digit()).unwrap_or(port.len());
            port[..end].parse::<u16>().ok()?;
            &port[end..]
        }
    };
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some((host, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RedirectUri, String> {
        RedirectUri::parse(text, &PrivateSchemes::default())
    }

    #[test]
    fn https_loopback_and_known_schemes_are_allowed() {
        for good in [
            "https://claude.ai/api/mcp/auth_callback",
            "https://a.example:8443/cb?x=1",
            "http://localhost/callback",
            "http://localhost:33418/",
            "http://127.0.0.1:1",
            "http://[::1]:65535/cb?a=b",
            "cursor://anysphere.cursor-mcp/oauth/callback",
            "vscode://vscode.github-authentication/did-authenticate",
            "vscode-insiders:/cb",
        ] {
            assert_eq!(parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "/callback",
            "http://a.example/cb",
            "http://localhost.evil.example/cb",
            "http://localhost@evil.example/cb",
            "http://localhost:80@evil.example/cb",
            "http://localhost:99999/cb",
            "http://localhost:/x:",
            "http://127.0.0.2/cb",
            "http://127.1/cb",
            "http://0.0.0.0/cb",
            "http://LOCALHOST/cb",
            "http:/localhost/cb",
            "http:\\\\localhost/cb",
            "https:a.example/cb",
            "https://a.example/cb#f",
            "https://a.example/cb#",
            "https://u:p@a.example/cb",
            "https://@a.example/cb",
            "https://a.example/c b",
            "https://a.example/\tcb",
            "https://a.example\\@evil.example/",
            "https://ä.example/cb",
            "https:///cb",
            "javascript:alert(1)",
            "data:text/html,x",
            "myapp:/cb",
            "cursor-x://cb",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&format!("https://a.example/{}", "x".repeat(LONGEST))).is_err());
    }

    #[test]
    fn only_the_port_of_a_loopback_address_may_differ() {
        let fits = |asked: &str, registered: &str| parse(asked).unwrap().fits(registered);
        assert!(fits("http://localhost:9/cb", "http://localhost:8/cb"));
        assert!(fits("http://localhost:9/cb", "http://localhost/cb"));
        assert!(fits("http://[::1]/cb?a=1", "http://[::1]:70/cb?a=1"));
        assert!(fits("https://a.example/cb", "https://a.example/cb"));
        for (asked, registered) in [
            ("http://localhost:9/cb", "http://127.0.0.1:9/cb"),
            ("http://localhost:9/cb", "http://localhost:9/cb/"),
            ("http://localhost:9/cb", "http://localhost:9/CB"),
            ("http://localhost:9/cb", "http://localhost:9/cb?x"),
            ("http://localhost:9", "http://localhost:9/"),
            ("http://localhost:9/cb", "https://localhost:9/cb"),
            ("https://localhost:9/cb", "https://localhost:8/cb"),
            ("https://a.example/cb/x", "https://a.example/cb"),
            ("https://a.example/cb?x=1", "https://a.example/cb"),
            ("https://a.example:443/cb", "https://a.example/cb"),
            ("https://A.example/cb", "https://a.example/cb"),
            ("cursor://a:1/cb", "cursor://a:2/cb"),
        ] {
            assert!(!fits(asked, registered), "{asked} {registered}");
        }
    }

    #[test]
    fn hosts_bind_https_only() {
        let hosts = ClientHosts::parse("claude.ai").unwrap();
        let is_admitted = |text: &str| parse(text).unwrap().is_admitted_by(&hosts);
        assert!(is_admitted("https://claude.ai/cb") && is_admitted("https://claude.ai:9/cb"));
        assert!(is_admitted("http://localhost/cb") && is_admitted("cursor://x/cb"));
        assert!(!is_admitted("https://evil.example/cb") && !is_admitted("https://claude.ai.evil.example/cb"));
    }

    #[test]
    fn parameters_are_added_to_the_query() {
        let with = |text: &str| parse(text).unwrap().with(&[("code", "a b"), ("state", "x&y=z")]);
        assert_eq!(with("https://a.example/cb"), "https://a.example/cb?code=a+b&state=x%26y%3Dz");
        assert_eq!(with("https://a.example/cb?k=v"), "https://a.example/cb?k=v&code=a+b&state=x%26y%3Dz");
        assert_eq!(with("https://a.example/cb?"), "https://a.example/cb?code=a+b&state=x%26y%3Dz");
    }

    #[test]
    fn schemes_of_browsers_are_never_private() {
        assert!(PrivateSchemes::parse("Cursor, com.example.app").is_ok());
        for bad in ["javascript", "HTTPS", "data", "1a", "a b", "cursor:", "cursor://"] {
            assert_eq!(PrivateSchemes::parse(&format!("vscode,{bad}")), Err(bad.to_owned()), "{bad}");
        }
    }
}
