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

/// An MCP client as far as a call of its is concerned.
#[derive(Clone, Debug)]
pub struct Caller {
    pub scope: Scope,
    pub capabilities: Capabilities,
    pub client_name: String,
    pub client_version: String,
    /// Its session, which owns an upstream session of its own where a server is stateful.
    pub session: Option<u64>,
    /// The least severe log messages it wants, where it said so.
    pub log_level: Option<String>,
}
