//! Tokens of users and clients as columns: a keyed hash for looking up the holder, and the sealed token.

use std::fmt;

use model::{Secret, Token};
use seal::{KeyedHash, Seal};

const SEALED_FOR: &str = "token";
const HASHED_FOR: &str = "token look-up";

/// The hash by which a token is looked up. Without the key it reveals nothing about the token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Reads a hash from a column; `None` if it has another length.
    pub(super) fn restore(column: &[u8]) -> Option<Self> {
        column.try_into().ok().map(Self)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// Converts tokens to columns and back.
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

    /// Reads a token. The error says what is wrong without showing any of the content.
    pub fn read(&self, (hash, sealed, id): Columns) -> Result<Token, String> {
        let plain = self.seal.open(SEALED_FOR, &sealed).map_err(|error| format!("its token: {error}"))?;
        // If a sealed value were moved to another row, one holder's token would be shown to those who may see the
        // other's.
        if self.hash.of(&plain)[..] != hash {
            return Err("its token does not match its hash".into());
        }
        let text = std::str::from_utf8(&plain).map_err(|_| "its token is not text".to_owned())?;
        Ok(Token::restore(Secret::new(text), id.cast_unsigned()))
    }
}
