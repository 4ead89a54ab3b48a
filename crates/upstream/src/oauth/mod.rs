//! OAuth to servers that want it. Reading order: `provider` (the authorization server, found and asked), `identity` (who
//! asks, and for what), `grant` (what it gave), `address` (where such requests may go), `memory` (what the OAuth client of rmcp sees of our stores).
//! Using a grant and renewing it is the business of `credentials`, keeping it that of the gateway.

mod address;
mod grant;
mod identity;
mod memory;
mod provider;

pub use grant::Grant;
pub use provider::{Begun, Flow, Provider, Unfinished, Unrenewed, bare, now_ms};

/// How this gateway appears to authorization servers.
#[derive(Clone, Debug, Default)]
pub struct OAuthIdentity {
    /// Whether metadata may name private addresses although its server is not at one.
    pub allow_private: bool,
    /// Where our client metadata document is published.
    pub client_metadata_url: Option<String>,
}
