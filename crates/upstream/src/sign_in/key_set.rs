//! The public keys of an issuer (a JWK set), and the signatures that they verify: RS256, ES256 and EdDSA with Ed25519.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::Value;

use super::signed_jwt::{SignedJwt, SigningAlgorithm};

/// The number of keys that are read of a set.
const MOST_KEYS: usize = 64;

#[derive(Debug)]
pub struct KeySet(Vec<PublicKey>);

#[derive(Debug)]
struct PublicKey {
    id: Option<String>,
    /// The only algorithm that it is for, if the issuer says so; it fits the material.
    algorithm: SigningAlgorithm,
    material: KeyMaterial,
}

#[derive(Debug)]
enum KeyMaterial {
    /// Modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// A point on P-256, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl KeySet {
    /// Reads a JWK set. Keys of other kinds and for other uses are left out.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let set: Value = serde_json::from_slice(text).map_err(|_| "the key set is not JSON")?;
        Self::of(&set)
    }

    pub fn of(set: &Value) -> Result<Self, String> {
        let keys = set.get("keys").and_then(Value::as_array).ok_or("the key set has no list of keys")?;
        Ok(Self(keys.iter().take(MOST_KEYS).filter_map(PublicKey::parse).collect()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one of the keys made the signature. A key with an id is tried only for that id.
    pub fn verifies(&self, token: &SignedJwt<'_>) -> bool {
        let named = |key: &&PublicKey| match (&key.id, &token.key_id) {
            (Some(id), Some(wanted)) => id == wanted,
            (None, _) | (_, None) => true,
        };
        let fitting = self.0.iter().filter(|key| key.algorithm == token.algorithm).filter(named);
        fitting.into_iter().any(|key| key.material.verifies(token.message, &token.signature))
    }
}

impl PublicKey {
    fn parse(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let coordinate = |name: &str| bytes(name).filter(|bytes| bytes.len() == 32);
        if key.get("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        if let Some(operations) = key.get("key_ops") {
            operations.as_array()?.iter().find(|operation| *operation == "verify")?;
        }
        let (algorithm, material) = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                (SigningAlgorithm::Rs256, KeyMaterial::Rsa(unpadded(bytes("n")?), unpadded(bytes("e")?)))
            }
            ("EC", Some("P-256")) => {
                let point = [&[4], coordinate("x")?.as_slice(), coordinate("y")?.as_slice()].concat();
                (SigningAlgorithm::Es256, KeyMaterial::P256(point))
            }
            ("OKP", Some("Ed25519")) => (SigningAlgorithm::EdDsa, KeyMaterial::Ed25519(coordinate("x")?)),
            _ => return None,
        };
        if key.get("alg").is_some_and(|alg| alg != algorithm.name()) {
            return None;
        }
        Some(Self { id: text("kid").map(str::to_owned), algorithm, material })
    }
}

impl KeyMaterial {
    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            KeyMaterial::Rsa(n, e) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            KeyMaterial::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            KeyMaterial::Ed25519(point) => UnparsedPublicKey::new(&ED25519, point).verify(message, signature),
        };
        verified.is_ok()
    }
}

/// A number without leading zeros, which some issuers write and ring refuses.
fn unpadded(mut number: Vec<u8>) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.drain(..zeros);
    number
}
