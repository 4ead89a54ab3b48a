//! Names of servers and of what they offer. A full name is `<server>__<item>`, split at the first `__`: server names
//! never contain `__` nor end in `_`, so the split is unambiguous.

use std::borrow::Borrow;
use std::fmt;

pub const SEPARATOR: &str = "__";
const MAX_LENGTH: usize = 64;

/// The name of a registered server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(String);

impl ServerName {
    /// Parses a name. The error is a sentence fragment that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty".into());
        }
        if text.chars().count() > MAX_LENGTH {
            return Err(format!("must have at most {MAX_LENGTH} characters"));
        }
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Err("may contain only letters, digits, '-' and '_'".into());
        }
        if text.contains(SEPARATOR) {
            return Err("must not contain '__', which separates server and tool in full names".into());
        }
        if text.ends_with('_') {
            return Err("must not end in '_'".into());
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full name of something this server offers.
    pub fn qualify(&self, item: &str) -> String {
        format!("{}{SEPARATOR}{item}", self.0)
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A full name split into its parts, which are borrowed from the text. The server need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QualifiedName<'a> {
    pub server: &'a str,
    pub item: &'a str,
}

impl<'a> QualifiedName<'a> {
    pub fn parse(text: &'a str) -> Option<Self> {
        // Faster than a search for a text of any length.
        let at = text.as_bytes().windows(SEPARATOR.len()).position(|bytes| bytes == SEPARATOR.as_bytes())?;
        Some(Self { server: &text[..at], item: &text[at + SEPARATOR.len()..] })
    }
}

impl fmt::Display for QualifiedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}{}", self.server, self.item)
    }
}

/// Whether all clients accept the full name of a tool. The rule is that of the APIs of the large language models.
pub fn is_usual_tool_name(full_name: &str) -> bool {
    full_name.len() <= 64 && full_name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_splits_at_the_first_double_underscore() {
        let name = QualifiedName::parse("git__a__b").unwrap();
        assert_eq!((name.server, name.item), ("git", "a__b"));
        assert_eq!(QualifiedName::parse("git___b").unwrap().item, "_b");
        assert_eq!(QualifiedName::parse("git_b"), None);
    }

    #[test]
    fn server_names_that_would_break_the_split_are_refused() {
        for bad in ["", "a__b", "a_", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert!(ServerName::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "A-1", "_a", "a_b", &"x".repeat(64)] {
            assert!(ServerName::parse(good).is_ok(), "{good:?}");
        }
    }
}
