//! The keys of the tests, for TLS and for JWTs.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

/// The path of a file in the folder of keys and certificates.
pub fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/tls").join(name)
}

pub fn private_key() -> PrivateKeyDer<'static> {
    private_key_of("first")
}

fn private_key_of(name: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(stored(&format!("{name}.key.pem"))).unwrap()
}

fn key_id(name: &str) -> &'static str {
    if name == "first" { "1" } else { "2" }
}

/// The public part of the key of the tests.
pub fn public_keys() -> Value {
    public_keys_of(&["first"])
}

/// The public parts of keys: `first`, `second`.
pub fn public_keys_of(names: &[&str]) -> Value {
    let public = |name: &&str| {
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&private_key_of(name)).unwrap();
        let info = key.public_key().unwrap().to_vec();
        let point = &info[info.len() - 64..];
        let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({ "kty": "EC", "crv": "P-256", "kid": key_id(name), "x": part(&point[..32]), "y": part(&point[32..]) })
    };
    json!({ "keys": names.iter().map(public).collect::<Vec<_>>() })
}

/// A JWT with these claims, signed with ES256.
pub fn signed_jwt(claims: &Value) -> String {
    signed_jwt_by("first", claims)
}

/// The same with one of the keys.
pub fn signed_jwt_by(name: &str, claims: &Value) -> String {
    signed_jwt_with(name, &json!({ "alg": "ES256", "kid": key_id(name) }), claims)
}

/// The same with a header of the caller, whatever that says.
pub fn signed_jwt_with(name: &str, header: &Value, claims: &Value) -> String {
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&private_key_of(name)).unwrap();
    let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).unwrap();
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let der = signer.sign(signed.as_bytes()).unwrap();
    // Two integers of a sequence, each with a length, which may begin with a zero or be shorter than 32 bytes.
    let (mut rest, mut raw) = (&der[2..], Vec::new());
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let number = &rest[2..2 + length];
        let number = &number[number.len().saturating_sub(32)..];
        raw.extend(std::iter::repeat_n(0, 32 - number.len()));
        raw.extend_from_slice(number);
        rest = &rest[2 + length..];
    }
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(raw))
}
