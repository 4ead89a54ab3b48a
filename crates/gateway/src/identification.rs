//! Authentication: finds the user or client that a credential belongs to. What they may do is decided elsewhere: routes
//! in the faces, tools and prompts in `view`.

use std::sync::{Arc, Mutex};

use super::principals::Principal;
use super::{Error, Gateway};
use model::Secret;
use store::TokenHash;

/// The last token on a connection, with its hash: computing that is most of the cost of identifying a caller. Whether the
/// token is valid is looked up each time.
#[derive(Default)]
pub struct TokenMemory(Mutex<Option<(Secret, TokenHash)>>);

/// Longer tokens are not remembered.
const LONGEST: usize = 512;

impl TokenMemory {
    fn hash(&self, token: &[u8], compute: impl FnOnce() -> TokenHash) -> TokenHash {
        let mut last = self.0.lock().expect("no code panics while it holds a token");
        if let Some((known, hash)) = &*last
            && is_same(known.expose().as_bytes(), token)
        {
            return *hash;
        }
        let hash = compute();
        let text = std::str::from_utf8(token).ok().filter(|text| text.len() <= LONGEST);
        *last = text.map(|text| (Secret::new(text), hash));
        hash
    }
}

/// Compares in a time that does not depend on where the two differ: a proxy may send requests of several clients on one
/// connection.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other));
    one.len() == other.len() && difference == 0
}

impl Gateway {
    /// The user or client that a token belongs to, if it is valid. Tokens of this gateway are looked up in memory. Async
    /// all the same, so that its callers would not change with tokens of another issuer, whose keys must be fetched.
    pub async fn identify(&self, token: &[u8], memory: Option<&TokenMemory>) -> Option<Principal> {
        let compute = || self.store.token_hash(token);
        let hash = match memory {
            Some(memory) => memory.hash(token, compute),
            None => compute(),
        };
        self.find_enabled(&hash)
    }

    fn find_enabled(&self, hash: &TokenHash) -> Option<Principal> {
        self.catalog.load().principals().find(hash).filter(|principal| !principal.is_disabled()).cloned()
    }

    /// The same for a token that is not known here: another gateway on the same database may just have created it.
    pub async fn identify_anew(self: &Arc<Self>, token: &[u8]) -> Result<Option<Principal>, Error> {
        let hash = self.store.token_hash(token);
        if self.store.is_shared() && self.store.has_token(token).await? {
            let turn = self.local_turn().await;
            self.catch_up(&turn).await?;
        }
        Ok(self.find_enabled(&hash))
    }

    pub fn is_initialized(&self) -> bool {
        self.catalog.load().principals().is_initialized
    }
}
