//! Keys that sign tokens in tests, and tokens that are wrong in ways that a library would not allow.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

pub struct Signer {
    pub id: &'static str,
    key: SigningKey,
}

enum SigningKey {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    pub fn rs256(id: &'static str) -> Self {
        let key = PrivatePkcs8KeyDer::from_pem_slice(include_bytes!("rsa.key.pem")).unwrap();
        let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
        Self { id, key: SigningKey::Rsa(Box::new(key)) }
    }

    pub fn es256(id: &'static str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap();
        Self { id, key: SigningKey::P256(key) }
    }

    pub fn eddsa(id: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { id, key: SigningKey::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap()) }
    }

    pub fn algorithm(&self) -> &'static str {
        match self.key {
            SigningKey::Rsa(_) => "RS256",
            SigningKey::P256(_) => "ES256",
            SigningKey::Ed25519(_) => "EdDSA",
        }
    }

    /// The public key as a JWK.
    pub fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.key {
            SigningKey::Rsa(key) => {
                let parts: PublicKeyComponents<Vec<u8>> = key.public().into();
                json!({"kty": "RSA", "n": encode(&parts.n), "e": encode(&parts.e)})
            }
            SigningKey::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)})
            }
            SigningKey::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key().as_ref())})
            }
        };
        jwk["kid"] = self.id.into();
        jwk["use"] = "sig".into();
        jwk
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"}), claims)
    }

    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        self.sign_texts(&header.to_string(), &claims.to_string())
    }

    pub fn sign_texts(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let random = SystemRandom::new();
        let signature = match &self.key {
            SigningKey::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
            SigningKey::P256(key) => key.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            SigningKey::Ed25519(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A JWK set of these keys.
pub fn key_set(signers: &[&Signer]) -> Value {
    json!({"keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>()})
}
