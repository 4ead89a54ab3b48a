//! A client id that is the URL of a metadata document (draft-ietf-oauth-client-id-metadata-document).

use url::Url;

const LONGEST: usize = 1024;

/// The URL in its canonical form: one document has one client id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientUrl(Url);

impl ClientUrl {
    /// Whether a client id is meant to be such a URL.
    pub fn is_meant(client_id: &str) -> bool {
        client_id.contains("://")
    }

    /// Parses a client id. The error is a sentence fragment that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("must have at most {LONGEST} characters"));
        }
        let url = Url::parse(text).map_err(|_| "is not a URL".to_owned())?;
        let problem = if url.scheme() != "https" {
            "must begin with https://"
        } else if !url.username().is_empty() || url.password().is_some() {
            "must not contain a user name or password"
        } else if url.fragment().is_some() {
            "must not contain a fragment"
        } else if url.path() == "/" {
            "must have a path"
        } else if url.as_str() != text {
            // Dot segments, capital letters in the host, a default port, characters that must be encoded.
            "must be in its canonical form, without dot segments"
        } else {
            return Ok(Self(url));
        };
        Err(problem.to_owned())
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub fn url(&self) -> &Url {
        &self.0
    }

    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_https_urls_with_a_path_are_client_ids() {
        for good in ["https://claude.ai/oauth/client.json", "https://a.example:8443/c?v=1", "https://a.ai/x/"]
        {
            assert_eq!(ClientUrl::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "http://a.example/c",
            "https://a.example",
            "https://a.example/",
            "https://a.example?x=1",
            "https://a.example/c#f",
            "https://a.example/c#",
            "https://u@a.example/c",
            "https://u:p@a.example/c",
            "https://:@a.example/c",
            "https://a.example/x/../c",
            "https://a.example/./c",
            "https://a.example/x/%2e%2E/c",
            "https://a.example/x/..",
            "https://A.example/c",
            "https://a.example:443/c",
            "https:/a.example/c",
            "https://a.example\\c",
            "https://a.example/a b",
            " https://a.example/c",
            "https://a.example/c\n",
            "javascript://a.example/c",
            "a.example/c",
        ] {
            assert!(ClientUrl::parse(bad).is_err(), "{bad}");
        }
        assert!(ClientUrl::parse(&format!("https://a.example/{}", "x".repeat(LONGEST))).is_err());
    }
}
