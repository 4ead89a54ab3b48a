//! OAuth for servers that require it. Reading order: `provider` (finds and asks the authorization server), `identity`
//! (our client and the scopes to request), `grant` (what was granted), `challenge` and `address` (where such requests may go), `memory`
//! (the stores that rmcp's OAuth client uses).
//! `credentials` uses and renews a grant; the gateway stores it.

mod address;
mod challenge;
mod grant;
mod identity;
mod memory;
mod provider;

pub(crate) use address::AddressPolicy;
pub use challenge::Challenge;
pub use grant::Grant;
pub use provider::{Begun, Flow, Provider, Unfinished, Unrenewed, bare, now_ms};

/// The OAuth settings of this gateway.
#[derive(Clone, Debug, Default)]
pub struct OAuthIdentity {
    /// Whether metadata may name private addresses although its server does not have one.
    pub allow_private: bool,
    /// The URL of our client metadata document.
    pub client_metadata_url: Option<String>,
}
