//! What is recorded of a call.

use serde::{Deserialize, Serialize};

use super::PrincipalId;

/// One call, whatever came of it. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Later calls have greater ids.
    pub id: String,
    /// When the first byte arrived, in milliseconds since 1970.
    pub at_ms: i64,
    pub principal: RecordedPrincipal,
    /// The name and version that the MCP client gave; empty if it gave none.
    pub agent: String,
    pub via: String,
    pub endpoint: String,
    pub method: String,
    /// Empty if no server was found.
    pub server: String,
    /// The native name of the tool or prompt, or the URI.
    pub name: String,
    pub outcome: String,
    /// The error as the caller saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What admins may see of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    pub duration_ms: f64,
    pub upstream_ms: f64,
    pub queue_ms: f64,
    pub input_ms: f64,
    pub gateway_ms: f64,
    pub request_bytes: u64,
    pub response_bytes: u64,
    pub attempts: u32,
    pub client_era: String,
    /// Empty if nothing was sent to a server.
    pub server_era: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// How often the server asked for input.
    pub rounds: u32,
    /// When the request was handed to the link to its server, in milliseconds since it arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ms: Option<f64>,
    /// When the server was first heard after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    /// When something happened during the call, in milliseconds since it arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<CallMark>,
}

/// Something that happened during a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallMark {
    pub kind: String,
    pub at_ms: f64,
}

/// The user or client that made a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedPrincipal {
    /// `client`, `user` or `anonymous`.
    pub kind: String,
    /// What it was called then.
    pub name: String,
    /// The [`PrincipalId`]; 0 for nobody, and for calls that were recorded before it was.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub id: u64,
}

impl RecordedPrincipal {
    /// Whether the call is this principal's.
    pub fn is(&self, principal: PrincipalId) -> bool {
        self.id == principal.0
    }
}

fn is_zero(id: &u64) -> bool {
    *id == 0
}

/// How a call reached the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Mcp,
    Sse,
    Rest,
    Dashboard,
}

impl Door {
    pub const ALL: [Self; 4] = [Door::Mcp, Door::Sse, Door::Rest, Door::Dashboard];

    pub fn as_str(self) -> &'static str {
        match self {
            Door::Mcp => "mcp",
            Door::Sse => "sse",
            Door::Rest => "rest",
            Door::Dashboard => "dashboard",
        }
    }
}
