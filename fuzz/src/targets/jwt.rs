//! Reads any bytes as a JSON Web Token, two lines as the header and the claims of one, and the second line as a set of keys.
//! Promises: nothing that was not signed counts, and no error repeats a part of it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use model::WallClock;
use model::oauth::{ClientHosts, ClientKeys};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use upstream::Tls;
use upstream::sign_in::{ClientDocuments, JwtIssuer, PersonClaims, ProvenClient};

pub const DICTIONARY: &[&str] = &[
    "{\"alg\":\"RS256\"",
    "{\"alg\":\"ES256\"",
    "{\"alg\":\"EdDSA\"",
    "{\"alg\":\"none\"",
    "\"kid\":\"e\"",
    "\"typ\":\"at+jwt\"",
    "\"crit\":[]",
    "{\"iss\":\"https://idp.example\"",
    "\"sub\":\"https://idp.example\"",
    "\"aud\":\"gate\"",
    "\"aud\":[\"gate\"]",
    "\"exp\":1794909700",
    "\"iat\":1e300",
    "{\"keys\":[{",
    "\"kty\":\"OKP\"",
    "\"crv\":\"Ed25519\"",
    "\"x\":\"AAAA\"",
    "\"n\":\"AAAA\"",
    "\\u0000",
    "}",
    "]}",
    ".",
    "eyJ",
    "\n",
];

const ISSUER: &str = "https://idp.example";

/// A shorter input may be a part of any sentence.
const SHORTEST_SECRET: usize = 24;

static VERIFIER: LazyLock<(Runtime, ClientDocuments, JwtIssuer)> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let clock = WallClock::stopped_at(1_794_909_600);
    let documents = ClientDocuments::new(ClientHosts::default(), Tls::default(), clock.clone());
    let issuer = JwtIssuer::new(ISSUER, PersonClaims::default(), Tls::default(), clock);
    (runtime, documents, issuer)
});

pub fn run(input: &[u8]) {
    // Points of the curves, of which nobody knows the private keys.
    let keys = ClientKeys::Inline(json!({"keys": [
        {"kty": "EC", "crv": "P-256", "kid": "e", "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"},
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    ]}));
    refuse(input, &keys);
    let line_end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (header, claims) = (&input[..line_end], input.get(line_end + 1..).unwrap_or_default());
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let token = format!("{}.{}.{}", part(header), part(claims), part(&[7; 64]));
    refuse(token.as_bytes(), &keys);
    if let Ok(keys) = serde_json::from_slice(claims) {
        refuse(token.as_bytes(), &ClientKeys::Inline(keys));
    }
}

fn refuse(token: &[u8], keys: &ClientKeys) {
    let (runtime, documents, issuer) = &*VERIFIER;
    let audiences = ["gate".to_owned()];
    let client = ProvenClient { client_id: ISSUER, audiences: &audiences };
    let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let verified = runtime.block_on(documents.verify_assertion(token, keys, &client, source));
    let problem = verified.expect_err("a token that nobody signed counts").to_string();
    if token.len() >= SHORTEST_SECRET {
        assert!(!problem.contains(&*String::from_utf8_lossy(token)), "an error repeats the token");
    }
    let _ = issuer.looks_like_ours(token);
}
