//! Who asks, and through which endpoint.

use crate::model::Capabilities;

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
    /// None where nobody is asked who they are.
    pub client: Option<ClientId>,
}

/// An MCP client, for as long as it has the same token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(pub u64);

/// An MCP client as far as a call of its is concerned.
#[derive(Clone, Debug)]
pub struct Caller {
    pub viewer: Viewer,
    pub capabilities: Capabilities,
    pub client_name: String,
    pub client_version: String,
    /// Its session, which owns an upstream session of its own where a server is stateful.
    pub session: Option<u64>,
    /// The least severe log messages it wants, where it said so.
    pub log_level: Option<String>,
}
