//! The software of an agent: an OAuth client, as it was registered or as its metadata document describes it.

use std::fmt;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{ClientUrl, RedirectUri};
use crate::{Secret, Token};

/// The software of an agent. As JSON it is stored with its grants, and sealed it is the client id of a dynamic registration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Software {
    /// Empty in a sealed client id, which cannot contain itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    pub name: String,
    #[serde(rename = "redirects")]
    pub redirect_uris: Vec<String>,
    pub proof: Proof,
    pub origin: SoftwareOrigin,
}

/// Who says what the software is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SoftwareOrigin {
    /// An admin of this gateway.
    Admin,
    /// A document on the host of its client id.
    Document,
    /// The software itself, at `/register`.
    Registration,
}

/// How the software proves at `/token` that it is the one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// Not at all: it cannot keep a secret.
    None,
    ClientSecretBasic(SecretHash),
    ClientSecretPost(SecretHash),
    PrivateKeyJwt(ClientKeys),
}

/// Where the public keys of the software are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientKeys {
    /// A set of keys (RFC 7517).
    Inline(Value),
    /// The https URL of such a set.
    At(String),
}

impl Proof {
    /// The name of the method in metadata.
    pub fn method(&self) -> &'static str {
        match self {
            Proof::None => "none",
            Proof::ClientSecretBasic(_) => "client_secret_basic",
            Proof::ClientSecretPost(_) => "client_secret_post",
            Proof::PrivateKeyJwt(_) => "private_key_jwt",
        }
    }

    pub fn secret_hash(&self) -> Option<&SecretHash> {
        match self {
            Proof::ClientSecretBasic(hash) | Proof::ClientSecretPost(hash) => Some(hash),
            Proof::None | Proof::PrivateKeyJwt(_) => None,
        }
    }
}

/// The hash of a client secret, which is random: no salt is needed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretHash(String);

impl SecretHash {
    /// A new secret, and its hash.
    pub fn generate() -> (Secret, Self) {
        let secret = Token::generate().secret().clone();
        let hash = Self::of(secret.expose());
        (secret, hash)
    }

    fn of(secret: &str) -> Self {
        Self(URL_SAFE_NO_PAD.encode(Sha256::digest(secret)))
    }

    pub fn is_of(&self, secret: &str) -> bool {
        is_same(Self::of(secret).0.as_bytes(), self.0.as_bytes())
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Compares in a time that does not depend on where the two differ.
pub(super) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other));
    one.len() == other.len() && difference == 0
}

impl Software {
    /// Restores what was stored or sealed; `None` if it is not readable.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("software has string keys")
    }

    /// Whether answers may go to this redirect URI.
    pub fn may_redirect_to(&self, uri: &RedirectUri) -> bool {
        self.redirect_uris.iter().any(|registered| uri.fits(registered))
    }

    /// The host that proves who the software is; `None` if nothing does.
    pub fn proven_host(&self) -> Option<String> {
        match self.origin {
            SoftwareOrigin::Document => {
                ClientUrl::parse(&self.client_id).ok().map(|url| url.host().to_owned())
            }
            SoftwareOrigin::Admin | SoftwareOrigin::Registration => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_survives_storage_and_shows_no_hash() {
        let (secret, hash) = SecretHash::generate();
        let software = Software {
            client_id: "c".into(),
            name: "Agent".into(),
            redirect_uris: vec!["https://a.example/cb".into()],
            proof: Proof::ClientSecretPost(hash.clone()),
            origin: SoftwareOrigin::Admin,
        };
        assert_eq!(Software::from_json(&software.to_json()), Some(software.clone()));
        assert!(hash.is_of(secret.expose()) && !hash.is_of("x") && !hash.is_of(""));
        assert!(!format!("{software:?}").contains(&hash.0));
        assert_eq!(Software::from_json("{}"), None);
    }
}
