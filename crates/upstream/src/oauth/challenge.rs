//! What discovery begins with: how the server refused a request, and from where.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A refusal of the server that asks for authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// The value of its `WWW-Authenticate` header.
    #[serde(rename = "challenge")]
    pub header: Option<String>,
    /// The address of the connection on which it came, which decides what private addresses may be asked.
    #[serde(default)]
    pub peer: Option<IpAddr>,
}
