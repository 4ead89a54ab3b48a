//! The key of the tests, for TLS and for JWTs.

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
    PrivateKeyDer::from_pem_file(stored("first.key.pem")).unwrap()
}

/// The public part of the key of the tests.
pub fn public_keys() -> Value {
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&private_key()).unwrap();
    let info = key.public_key().unwrap().to_vec();
    let point = &info[info.len() - 64..];
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "1", "x": part(&point[..32]), "y": part(&point[32..]) }] })
}

/// A JWT with these claims, signed with ES256.
pub fn signed_jwt(claims: &Value) -> String {
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&private_key()).unwrap();
    let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).unwrap();
    let header = json!({ "alg": "ES256", "kid": "1" });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(claims));
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
