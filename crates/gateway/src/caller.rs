//! The sender of a request, and the endpoint that it uses.

use std::borrow::Cow;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::trail::Arrival;
use model::{LogLevel, PrincipalId};
use wire::{Head, Version, text, walk};

pub use upstream::{Owner, Profile};

/// The part of the catalog that an endpoint serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Everything,
    Group(String),
    /// One server under its native names.
    Server(String),
    /// One server that this gateway runs for others, as it is: for a link of another gateway, which does what is to be done
    /// for its callers.
    Link(LinkScope),
}

/// The server of a link, and the number of the link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkScope {
    pub server: String,
    pub number: u64,
}

impl Scope {
    /// The server, if there is only one.
    pub fn server(&self) -> Option<&str> {
        match self {
            Scope::Server(name) => Some(name),
            Scope::Link(link) => Some(&link.server),
            Scope::Everything | Scope::Group(_) => None,
        }
    }

    /// The link of another gateway, if this is its scope.
    pub fn link(&self) -> Option<&LinkScope> {
        match self {
            Scope::Link(link) => Some(link),
            Scope::Everything | Scope::Group(_) | Scope::Server(_) => None,
        }
    }

    /// The scope whose lists are shown: links share those of their server.
    pub fn of_lists(&self) -> Cow<'_, Scope> {
        match self {
            Scope::Link(link) => Cow::Owned(Scope::Server(link.server.clone())),
            Scope::Everything | Scope::Group(_) | Scope::Server(_) => Cow::Borrowed(self),
        }
    }
}

/// A caller together with the endpoint. What exists for a viewer is decided at each lookup, so a viewer may be kept:
/// later changes of its rights apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub scope: Scope,
    /// The client, or the user for whom an agent acts; `None` in development mode.
    pub principal: Option<PrincipalId>,
}

/// The MCP client that sent a request, with what a call needs to know about it.
#[derive(Clone)]
pub struct Caller {
    pub viewer: Viewer,
    pub profile: Profile,
    pub client_name: Arc<str>,
    pub client_version: Arc<str>,
    /// The revision of MCP that it speaks, if that is known.
    pub version: Option<Version>,
    pub logs: Logs,
    /// Cancelled when the caller's credential ends.
    pub revoked: Option<CancellationToken>,
    /// How its request arrived.
    pub arrival: Arrival,
}

/// The log messages of servers that a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    All,
    /// Those of this level and above.
    From(LogLevel),
    None,
}

impl Logs {
    pub fn level(self) -> Option<LogLevel> {
        match self {
            Logs::From(level) => Some(level),
            Logs::All | Logs::None => None,
        }
    }

    /// Whether a notice is wanted; notices other than log messages always are.
    pub fn pass(self, notice: &[u8]) -> bool {
        if self == Logs::All {
            return true;
        }
        let Ok(head) = Head::parse(notice) else { return false };
        if head.method.as_deref() != Some("notifications/message") {
            return true;
        }
        let Logs::From(wanted) = self else { return false };
        let level = head.params.and_then(|params| walk::member(notice, &params.span, "level"));
        let level = level.and_then(|span| text::unescape(&notice[span]));
        level.and_then(|level| LogLevel::parse(&level)).is_none_or(|level| level >= wanted)
    }
}

impl Viewer {
    /// The owner of the viewer's links to stateful servers, if it has no session.
    pub fn owner(&self) -> Owner {
        match (&self.scope, self.principal) {
            (Scope::Link(link), _) => Owner::Link(link.number),
            (_, Some(principal)) => Owner::Principal(principal),
            (_, None) => Owner::Anybody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_below_the_wanted_level_are_held_back() {
        let log = |level: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
            )
        };
        let from = |level: &str| Logs::From(LogLevel::parse(level).unwrap());
        assert!(from("warning").pass(log("error").as_bytes()));
        assert!(from("warning").pass(log("warning").as_bytes()));
        assert!(!from("warning").pass(log("info").as_bytes()));
        assert!(Logs::All.pass(log("debug").as_bytes()));
        assert!(!Logs::None.pass(log("emergency").as_bytes()));
        let progress = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
        assert!(from("emergency").pass(progress));
        assert!(Logs::None.pass(progress));
    }
}
