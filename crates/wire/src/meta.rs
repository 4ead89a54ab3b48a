//! The keys of `_meta` that the protocol itself reserves. All others belong to the peers and are passed on unchanged.

use bytes::Bytes;

use super::patch::Patch;
use super::scan::Span;
use super::walk;

pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The trace that a request belongs to, as in the HTTP header of that name.
pub const TRACEPARENT: &str = "traceparent";
/// What systems add to that trace. The gateway reads it only while calls are traced.
pub const TRACESTATE: &str = "tracestate";
pub const PROGRESS_TOKEN: &str = "progressToken";
/// The task that a message of revision 2025-11-25 belongs to, as an object with its id.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The position of the id of the task that `object`, a result or params, is related to.
pub fn related_task_id(body: &[u8], object: &Span) -> Option<Span> {
    let meta = walk::member(body, object, "_meta")?;
    walk::member(body, &walk::member(body, &meta, RELATED_TASK)?, "taskId")
}

/// The keys that a modern client adds to each request and a legacy server does not know.
pub const REQUEST_KEYS: [&str; 4] = [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL];

/// The keys that modern messages carry and legacy peers do not know. Other keys with the same prefix belong to features
/// that both eras have.
pub const PROTOCOL_KEYS: [&str; 6] =
    [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL, SUBSCRIPTION_ID, SERVER_INFO];

/// What is left of a `_meta` object without the keys of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeersMeta {
    /// It has no such keys.
    All,
    Part(Bytes),
    /// It has only such keys.
    Nothing,
}

impl PeersMeta {
    pub fn of(meta: &[u8]) -> Self {
        let whole = 0..meta.len();
        let is_own = |key: &str| PROTOCOL_KEYS.contains(&key);
        let keys = || walk::members(meta, &whole).map(|(key, ..)| key);
        if !keys().any(|key| is_own(&key)) {
            return Self::All;
        }
        if keys().all(|key| is_own(&key)) {
            return Self::Nothing;
        }
        let mut patch = Patch::new(meta);
        patch.edit_members(&whole, is_own, &[]);
        Self::Part(patch.apply())
    }
}
