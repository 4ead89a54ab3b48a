//! Tokens of users and clients as columns: a keyed hash for looking up the holder, and the sealed token.

use std::fmt;

use super::db::on;
use super::{Store, StoreError};
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

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

impl Store {
    /// Whether a user or client in the database has this token.
    pub async fn has_token(&self, token: &[u8]) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT 1 FROM users WHERE token_hash IN ($1, $2)
            UNION ALL SELECT 1 FROM clients WHERE token_hash IN ($1, $2)";
        let own = self.tokens.hash(token);
        let other = self.tokens.other_hash(token).unwrap_or(own);
        let mut tx = self.read().await?;
        let found = on!(&mut tx, |db| {
            let query = sqlx::query(SQL).bind(own.as_bytes()).bind(other.as_bytes());
            query.fetch_optional(db).await.map(|row| row.is_some())
        })?;
        tx.commit().await?;
        Ok(found)
    }
}

/// The purpose for which the token of a user or client is sealed.
pub(super) fn purpose(_holder: &str) -> String {
    SEALED_FOR.to_owned()
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

    /// The hash under the other key, while the key is being replaced.
    pub fn other_hash(&self, token: &[u8]) -> Option<TokenHash> {
        let other = self.seal.other()?;
        Some(TokenHash(other.keyed_hash(HASHED_FOR).of(token)))
    }

    /// Whether a column has the hash of a token, under either key.
    pub fn fits(&self, column: &[u8], token: &[u8]) -> bool {
        self.hash(token).as_bytes() == column
            || self.other_hash(token).is_some_and(|hash| hash.as_bytes() == column)
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
        if !self.fits(&hash, &plain) {
            return Err("its token does not match its hash".into());
        }
        let text = std::str::from_utf8(&plain).map_err(|_| "its token is not text".to_owned())?;
        Ok(Token::restore(Secret::new(text), id.cast_unsigned()))
    }
}
