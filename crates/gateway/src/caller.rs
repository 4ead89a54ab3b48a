//! Who asks, and through which endpoint.

use tokio_util::sync::CancellationToken;

use model::{Capabilities, LogLevel, PrincipalId};
use wire::Era;

pub use upstream::Owner;

/// Which part of the catalog an endpoint is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Everything,
    Group(String),
    /// One server under its native names.
    Server(String),
}

/// Whoever looks at the catalog through an endpoint. What exists for them is decided when they look, so a viewer may
/// be kept: rights that change in the meantime count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub scope: Scope,
    /// The MCP client; `None` in development mode.
    pub client: Option<PrincipalId>,
}

/// An MCP client as far as a call of its is concerned.
#[derive(Clone, Debug)]
pub struct Caller {
    pub viewer: Viewer,
    pub era: Era,
    pub capabilities: Capabilities,
    pub client_name: String,
    pub client_version: String,
    /// Who it is to a stateful server, where it can be told apart from others.
    pub owner: Option<Owner>,
    pub logs: Logs,
    /// Cancelled when the token that the caller came with is no longer valid.
    pub revoked: Option<CancellationToken>,
}

/// Which log messages of servers a caller wants.
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
    /// Who this is to a stateful server when it has no session.
    pub fn owner(&self) -> Owner {
        self.client.map_or(Owner::Anybody, Owner::Principal)
    }
}
