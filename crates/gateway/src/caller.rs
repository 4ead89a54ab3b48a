//! The sender of a request, and the endpoint that it uses.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use model::{LogLevel, PrincipalId};

pub use upstream::{Owner, Profile};

/// The part of the catalog that an endpoint serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Everything,
    Group(String),
    /// One server under its native names.
    Server(String),
}

/// A caller together with the endpoint. What exists for a viewer is decided at each lookup, so a viewer may be kept:
/// later changes of its rights apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub scope: Scope,
    /// The MCP client; `None` in development mode.
    pub client: Option<PrincipalId>,
}

/// The MCP client that sent a request, with what a call needs to know about it.
#[derive(Clone, Debug)]
pub struct Caller {
    pub viewer: Viewer,
    pub profile: Profile,
    pub client_name: Arc<str>,
    pub client_version: Arc<str>,
    pub logs: Logs,
    /// Cancelled when the caller's token is no longer valid.
    pub revoked: Option<CancellationToken>,
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
}

impl Viewer {
    /// The owner of the viewer's links to stateful servers, if it has no session.
    pub fn owner(&self) -> Owner {
        self.client.map_or(Owner::Anybody, Owner::Principal)
    }
}
