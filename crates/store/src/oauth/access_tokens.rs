//! Access tokens: what one is for is sealed in it, so none is stored. Whether its grant still exists is decided elsewhere.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::opaque::{CHECKSUM, OpaqueTokens};
use model::{GrantId, Reach, Secret};

const PREFIX: &str = "tga_";
pub(super) const PURPOSE: &str = "access token";
/// Longer than any access token.
const LONGEST: usize = 4096;

/// What an access token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessContent {
    pub grant: GrantId,
    pub reach: Reach,
    pub expires_at_ms: i64,
}

impl OpaqueTokens {
    pub fn make_access(&self, content: &AccessContent) -> Secret {
        let expires = content.expires_at_ms.to_le_bytes();
        let plain = [&content.grant.as_bytes()[..], &expires, content.reach.as_str().as_bytes()].concat();
        let mut bytes = self.access.seal(&plain);
        let checksum = self.checksum(PREFIX, &bytes);
        bytes.extend_from_slice(&checksum);
        Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Whether a gateway on this database made a token, perhaps under a secret key that is gone.
    pub fn is_access(&self, token: &[u8]) -> bool {
        self.sealed_in(token).is_some()
    }

    /// Opens a token; `None` if it was not made here. Opens those that were made under the other key too, while the key is
    /// being replaced.
    pub fn open_access(&self, token: &[u8]) -> Option<AccessContent> {
        let plain = self.access.open(&self.sealed_in(token)?).ok()?;
        let (grant, rest) = plain.split_first_chunk()?;
        let (expires, reach) = rest.split_first_chunk()?;
        Some(AccessContent {
            grant: GrantId::from_bytes(*grant),
            reach: Reach::parse(std::str::from_utf8(reach).ok()?),
            expires_at_ms: i64::from_le_bytes(*expires),
        })
    }

    /// The sealed bytes of a token whose checksum is right.
    fn sealed_in(&self, token: &[u8]) -> Option<Vec<u8>> {
        let encoded = token.strip_prefix(PREFIX.as_bytes()).filter(|encoded| encoded.len() <= LONGEST)?;
        let mut bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
        let checksum = bytes.split_off(bytes.len().checked_sub(CHECKSUM)?);
        (checksum == self.checksum(PREFIX, &bytes)).then_some(bytes)
    }
}
