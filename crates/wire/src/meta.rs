//! The keys of `_meta` that the protocol itself reserves. All others belong to the peers and are passed on unchanged.

pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub const PROGRESS_TOKEN: &str = "progressToken";

/// The keys that a modern client adds to each request and a legacy server does not know.
pub const REQUEST_KEYS: [&str; 4] = [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL];

/// The keys that modern messages carry and legacy peers do not know. Other keys with the same prefix belong to features
/// that both eras have.
pub const PROTOCOL_KEYS: [&str; 6] =
    [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL, SUBSCRIPTION_ID, SERVER_INFO];
