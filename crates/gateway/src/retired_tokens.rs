//! Tokens that were deleted or replaced within the last day. An agent that was not told of it still sends the old one,
//! which is no attempt to guess a token.

use std::collections::HashMap;
use std::sync::Mutex;

use super::{Gateway, now_ms};
use store::{Store, TokenHash};

/// Largest number of tokens that are remembered.
const MOST: usize = 100_000;

/// The hashes of the tokens, each with the time of its end.
pub(super) struct RetiredTokens(Mutex<HashMap<TokenHash, i64>>);

impl RetiredTokens {
    pub fn new(stored: Vec<(TokenHash, i64)>) -> Self {
        Self(Mutex::new(stored.into_iter().collect()))
    }

    pub fn add(&self, hash: TokenHash, now_ms: i64) {
        let mut tokens = self.0.lock().expect("no code panics while it holds the tokens");
        if tokens.len() >= MOST {
            tokens.retain(|_, retired_at| Store::is_remembered(*retired_at, now_ms));
        }
        if tokens.len() < MOST {
            tokens.insert(hash, now_ms);
        }
    }

    fn has(&self, hash: &TokenHash, now_ms: i64) -> bool {
        let tokens = self.0.lock().expect("no code panics while it holds the tokens");
        tokens.get(hash).is_some_and(|retired_at| Store::is_remembered(*retired_at, now_ms))
    }
}

impl Gateway {
    /// Tells whether a token was valid within the last day, or belongs to a user who is kept out.
    pub fn was_valid_lately(&self, token: &[u8]) -> bool {
        let hashes = [Some(self.store.token_hash(token)), self.store.other_token_hash(token)];
        let catalog = self.catalog();
        hashes
            .iter()
            .flatten()
            .any(|hash| self.retired_tokens.has(hash, now_ms()) || catalog.principals().find(hash).is_some())
    }
}
