//! The entries of allow lists: each allows or denies everything, a server, names of tools and prompts, or what a tool
//! group contains.

use std::fmt;

use super::{GroupName, ServerName, name, pattern};

/// Stands for all servers, including those registered later.
pub(super) const EVERYTHING: &str = "*";
const DENIES: char = '!';
const GROUP: &str = "group:";
const MAX_LENGTH: usize = 1024;

/// One entry of an allow list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rule {
    pub denies: bool,
    pub subject: RuleSubject,
}

/// What an entry is about. The names in it need not exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleSubject {
    Everything,
    /// Everything of one server.
    Server(String),
    /// The tools and prompts with names that match, of one server or of any.
    Names {
        server: Option<String>,
        pattern: String,
    },
    /// What a tool group contains.
    Group(String),
}

/// Something of a server that may be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    Tool(&'a str),
    Prompt(&'a str),
    Resource(&'a str),
    /// All resource templates of the server.
    Templates,
}

impl Rule {
    /// Parses an entry. The error is a sentence fragment that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty".into());
        }
        if text.chars().count() > MAX_LENGTH {
            return Err(format!("must have at most {MAX_LENGTH} characters"));
        }
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("must not contain white space or control characters".into());
        }
        let (denies, rest) = match text.strip_prefix(DENIES) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        Ok(Self { denies, subject: RuleSubject::parse(rest).ok_or_else(|| wrong_form(text))? })
    }

    /// Whether the entry is about something of a server. `contains` tells whether a tool group contains it.
    pub fn matches(&self, server: &str, item: Item<'_>, contains: impl Fn(&str) -> bool) -> bool {
        match &self.subject {
            RuleSubject::Everything => true,
            RuleSubject::Server(name) => name == server,
            RuleSubject::Names { server: name, pattern } => match item {
                Item::Tool(item) | Item::Prompt(item) => {
                    name.as_deref().is_none_or(|name| name == server) && pattern::matches(pattern, item)
                }
                Item::Resource(_) | Item::Templates => false,
            },
            RuleSubject::Group(group) => contains(group),
        }
    }

    /// The server that the entry is about as a whole.
    pub(super) fn server(&self) -> Option<&str> {
        match &self.subject {
            RuleSubject::Server(server) => Some(server),
            RuleSubject::Everything | RuleSubject::Names { .. } | RuleSubject::Group(_) => None,
        }
    }

    /// Whether the entry is about whole servers only.
    pub(super) fn is_plain(&self) -> bool {
        match self.subject {
            RuleSubject::Everything | RuleSubject::Server(_) => true,
            RuleSubject::Names { .. } | RuleSubject::Group(_) => false,
        }
    }
}

impl RuleSubject {
    fn parse(text: &str) -> Option<Self> {
        if text == EVERYTHING {
            return Some(Self::Everything);
        }
        if let Some(group) = text.strip_prefix(GROUP) {
            return GroupName::parse(group).ok().map(|group| Self::Group(group.to_string()));
        }
        let server = |text: &str| ServerName::parse(text).ok().map(|server| server.to_string());
        match text.split_once(name::SEPARATOR) {
            None => server(text).map(Self::Server),
            Some((_, "")) => None,
            Some((EVERYTHING, pattern)) => Some(Self::Names { server: None, pattern: pattern.to_owned() }),
            Some((of, pattern)) => {
                Some(Self::Names { server: Some(server(of)?), pattern: pattern.to_owned() })
            }
        }
    }
}

fn wrong_form(text: &str) -> String {
    format!(
        "must be \"*\", a server, <server>__<pattern>, *__<pattern> or group:<tool group>, with \"!\" before it to deny; \
         {text:?} is none of these"
    )
}

/// As it is written in a list.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denies {
            write!(f, "{DENIES}")?;
        }
        match &self.subject {
            RuleSubject::Everything => f.write_str(EVERYTHING),
            RuleSubject::Server(server) => f.write_str(server),
            RuleSubject::Names { server, pattern } => {
                write!(f, "{}{}{pattern}", server.as_deref().unwrap_or(EVERYTHING), name::SEPARATOR)
            }
            RuleSubject::Group(group) => write!(f, "{GROUP}{group}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_written_alike() {
        for text in [
            "*",
            "!*",
            "github",
            "!github",
            "github__*",
            "github__delete_*",
            "!github__get_issue",
            "*__delete_*",
            "!*__*",
            "group:dev",
            "!group:dev",
            "a___b",
            "a__b__c",
            "a__!",
            "git-hub_2__x.y/z",
        ] {
            assert_eq!(Rule::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn entries_of_no_known_form_are_refused() {
        let long = format!("a__{}", "x".repeat(MAX_LENGTH));
        for text in [
            "",
            "!",
            "!!a",
            "git*",
            "!git*",
            "alpha__",
            "!alpha__",
            "__x",
            "a b",
            " a",
            "a\n",
            "a__b c",
            "a\u{7f}",
            "a_",
            "ä",
            "**",
            "*a",
            "g*__x",
            "group:",
            "group:_x",
            "group:a b",
            "!group:*",
            "a.b",
            "a/b",
            &long,
        ] {
            assert!(Rule::parse(text).is_err(), "{text:?}");
        }
        assert!(Rule::parse("git*").unwrap_err().contains("\"git*\""));
        assert!(Rule::parse(&long[..MAX_LENGTH]).is_ok());
    }

    #[test]
    fn an_entry_matches_what_it_is_about() {
        let matches = |rule: &str, server: &str, item: Item<'_>| {
            Rule::parse(rule).unwrap().matches(server, item, |group| group == "has")
        };
        let all = [Item::Tool("t"), Item::Prompt("t"), Item::Resource("x://t"), Item::Templates];
        for item in all {
            assert!(matches("*", "a", item) && matches("a", "a", item) && matches("!a", "a", item));
            assert!(!matches("a", "b", item) && !matches("a", "A", item));
            assert!(matches("group:has", "a", item) && !matches("group:other", "a", item));
            let has_name = matches!(item, Item::Tool(_) | Item::Prompt(_));
            for rule in ["a__t", "a__*", "*__t", "*__*", "!a__t*"] {
                assert_eq!(matches(rule, "a", item), has_name, "{rule} {item:?}");
            }
            for rule in ["a__u", "b__t", "b__*", "*__u"] {
                assert!(!matches(rule, "a", item), "{rule} {item:?}");
            }
        }
    }
}
