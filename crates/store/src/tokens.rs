//! Tokens of users and clients as columns: a keyed hash to find their holder by, and the token itself, sealed.

use std::fmt;

use model::{Secret, Token};
use seal::{KeyedHash, Seal};

const SEALED_FOR: &str = "token";
const HASHED_FOR: &str = "token look-up";

/// What a token is found by. It tells nothing about the token to anybody without the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// Turns tokens into columns and back.
#[derive(Debug)]
pub(super) struct TokenColumns {
    seal: Seal,
    hash: KeyedHash,
}

/// The columns `token_hash`, `token` and `token_id`.
pub(super) type Columns = (Vec<u8>, Vec<u8>, i64);

impl TokenColumns {
    pub fn new(seal: &Seal) -> Self {
        Self { seal: seal.clone(), hash: seal.keyed_hash(HASHED_FOR) }
    }

    pub fn hash(&self, token: &[u8]) -> TokenHash {
        TokenHash(self.hash.of(token))
    }

    pub fn to_columns(&self, token: &Token) -> Columns {
        let plain = token.secret().expose().as_bytes();
        (self.hash.of(plain).to_vec(), self.seal.seal(SEALED_FOR, plain), token.id().cast_signed())
    }

    /// Err tells what is wrong with it, without a word of what is in it.
    pub fn read(&self, (hash, sealed, id): Columns) -> Result<Token, String> {
        let plain = self.seal.open(SEALED_FOR, &sealed).map_err(|error| format!("its token: {error}"))?;
        // A sealed value moved to another row would give one holder's token away to those who may see the other's.
        if self.hash.of(&plain)[..] != hash {
            return Err("its token is not the one that it is found by".into());
        }
        let text = std::str::from_utf8(&plain).map_err(|_| "its token is not text".to_owned())?;
        Ok(Token::restore(Secret::new(text), id.cast_unsigned()))
    }
}
