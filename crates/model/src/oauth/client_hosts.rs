//! `OAUTH_CLIENT_HOSTS`: the hosts that metadata documents and https redirect URIs of agents may have.

/// A list of host patterns. Empty, it admits every host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHosts(Vec<String>);

impl ClientHosts {
    /// Parses a comma list of hosts without a port; `*.example.com` stands for all hosts below `example.com`. The error is the
    /// entry that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let patterns = entries.map(|entry| {
            let host = entry.strip_prefix("*.").unwrap_or(entry);
            let is_host = url::Host::parse(host).is_ok();
            match is_host && !host.contains('*') {
                true => Ok(entry.to_ascii_lowercase()),
                false => Err(entry.to_owned()),
            }
        });
        patterns.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a host, as in a URL, is admitted.
    pub fn admit(&self, host: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| matches(pattern, host))
    }

    /// Whether the host is in the list as it is, not by a pattern. Only then may it have a private address.
    pub fn names(&self, host: &str) -> bool {
        self.0.iter().any(|pattern| pattern.eq_ignore_ascii_case(host))
    }

    /// The hosts that are in the list as they are.
    pub fn literal(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str).filter(|pattern| !pattern.starts_with("*."))
    }
}

fn matches(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix('*') {
        // The rest begins with a dot.
        Some(end) => {
            let at = host.len().checked_sub(end.len()).filter(|at| *at > 0);
            at.and_then(|at| host.get(at..)).is_some_and(|rest| rest.eq_ignore_ascii_case(end))
        }
        None => pattern.eq_ignore_ascii_case(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_admit_hosts_below_them_and_nothing_else() {
        let hosts = ClientHosts::parse("claude.ai, *.Example.com,127.0.0.1,[::1]").unwrap();
        for good in ["claude.ai", "CLAUDE.AI", "a.example.com", "a.b.example.com", "127.0.0.1", "[::1]"] {
            assert!(hosts.admit(good), "{good}");
        }
        for bad in
            ["example.com", "notclaude.ai", "claude.ai.evil", "aexample.com", ".example.com", "", "ä.ai"]
        {
            assert!(!hosts.admit(bad), "{bad}");
        }
        assert!(hosts.names("127.0.0.1") && hosts.names("Claude.ai") && !hosts.names("a.example.com"));
        assert_eq!(hosts.literal().collect::<Vec<_>>(), ["claude.ai", "127.0.0.1", "[::1]"]);
        assert!(ClientHosts::parse("").unwrap().admit("any") && !ClientHosts::default().names("any"));
    }

    #[test]
    fn entries_that_are_no_hosts_are_named() {
        for bad in ["https://a.ai", "a.ai:443", "a.*.ai", "*", "a b", "*.", "a.ai/x"] {
            assert_eq!(ClientHosts::parse(&format!("good.ai, {bad}")), Err(bad.to_owned()), "{bad}");
        }
    }
}
