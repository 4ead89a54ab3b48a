//! Authentication: finds the user or client that a credential belongs to. What they may do is decided elsewhere: routes
//! in the faces, tools and prompts in `view`.

use super::Gateway;
use super::principals::Principal;

impl Gateway {
    /// The user or client that a token belongs to, if it is valid. Tokens of this gateway are looked up in memory. Async
    /// all the same, so that its callers would not change with tokens of another issuer, whose keys must be fetched.
    pub async fn identify(&self, token: &[u8]) -> Option<Principal> {
        let hash = self.store.token_hash(token);
        self.catalog.load().principals().find(&hash).cloned()
    }

    pub fn is_initialized(&self) -> bool {
        self.catalog.load().principals().is_initialized
    }
}
