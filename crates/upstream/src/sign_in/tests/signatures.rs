//! Which signatures count: algorithms, keys, and tokens that only look valid.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use ring::hmac;
use serde_json::{Value, json};

use super::signer::{Signer, key_set};
use crate::sign_in::key_set::KeySet;
use crate::sign_in::signed_jwt::SignedJwt;

fn verifies(keys: &Value, token: &str) -> bool {
    let keys = KeySet::of(keys).unwrap();
    SignedJwt::parse(token.as_bytes()).is_ok_and(|token| keys.verifies(&token))
}

#[test]
fn the_three_algorithms_count_and_only_with_their_own_keys() {
    let signers = [Signer::rs256("r"), Signer::es256("e"), Signer::eddsa("d")];
    let claims = json!({"sub": "1"});
    for signer in &signers {
        let token = signer.sign(&claims);
        assert!(verifies(&key_set(&signers.each_ref()), &token), "{}", signer.id);
        assert!(!verifies(&key_set(&[]), &token));
        for other in signers.iter().filter(|other| other.id != signer.id) {
            // The key of one algorithm under the name of another.
            let header = json!({"alg": other.algorithm(), "kid": signer.id});
            assert!(!verifies(&key_set(&signers.each_ref()), &signer.sign_as(&header, &claims)));
        }
        let mut changed = token.clone();
        changed.replace_range(token.find('.').unwrap() + 1..token.rfind('.').unwrap(), "eyJzdWIiOiIyIn0");
        assert!(!verifies(&key_set(&[signer]), &changed));
    }
}

#[test]
fn an_unsigned_token_never_counts() {
    let signer = Signer::rs256("r");
    for alg in ["none", "None", "NONE", "", "HS256", "RS384", "PS256", "ES384", "rs256"] {
        let token = signer.sign_as(&json!({"alg": alg, "kid": "r"}), &json!({"sub": "1"}));
        assert!(SignedJwt::parse(token.as_bytes()).is_err(), "{alg}");
        let unsigned = format!("{}.", &token[..token.rfind('.').unwrap()]);
        assert!(!verifies(&key_set(&[&signer]), &unsigned), "{alg}");
    }
    let token = signer.sign_as(&json!({"kid": "r"}), &json!({"sub": "1"}));
    assert!(SignedJwt::parse(token.as_bytes()).is_err());
    let token = signer.sign(&json!({"sub": "1"}));
    assert!(!verifies(&key_set(&[&signer]), &format!("{}.", &token[..token.rfind('.').unwrap()])));
}

#[test]
fn a_public_key_is_no_shared_secret() {
    let signer = Signer::rs256("r");
    let header = json!({"alg": "HS256", "kid": "r"}).to_string();
    let message = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(json!({"sub": "1"}).to_string())
    );
    let modulus = URL_SAFE_NO_PAD.decode(signer.jwk()["n"].as_str().unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &modulus);
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, message.as_bytes()));
    assert!(!verifies(&key_set(&[&signer]), &format!("{message}.{signature}")));
}

#[test]
fn a_key_counts_for_what_it_says_it_is_for() {
    let signer = Signer::es256("e");
    let token = signer.sign(&json!({"sub": "1"}));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut set = key_set(&[&signer]);
        change(&mut set["keys"][0]);
        verifies(&set, &token)
    };
    assert!(with(&|key| key["alg"] = "ES256".into()));
    assert!(with(&|key| key["key_ops"] = json!(["verify"])));
    assert!(with(&|key| *key = json!({"kty": "EC", "crv": "P-256", "x": key["x"], "y": key["y"]})));
    assert!(!with(&|key| key["alg"] = "ES384".into()));
    assert!(!with(&|key| key["alg"] = "RS256".into()));
    assert!(!with(&|key| key["use"] = "enc".into()));
    assert!(!with(&|key| key["use"] = Value::Null));
    assert!(!with(&|key| key["key_ops"] = json!(["sign"])));
    assert!(!with(&|key| key["kid"] = "other".into()));
    assert!(!with(&|key| key["crv"] = "P-384".into()));
    assert!(!with(&|key| key["kty"] = "RSA".into()));
    assert!(!with(&|key| key["x"] = "AAAA".into()));
    let header = json!({"alg": "ES256"});
    let (one, other) = (Signer::es256("e"), Signer::es256("f"));
    // A token without a key id is tried with all keys that fit.
    assert!(verifies(&key_set(&[&one, &other]), &other.sign_as(&header, &json!({}))));
    assert!(!verifies(&key_set(&[&one]), &other.sign_as(&header, &json!({}))));
}

#[test]
fn a_modulus_with_leading_zeros_is_the_same_number() {
    let signer = Signer::rs256("r");
    let mut set = key_set(&[&signer]);
    let modulus = URL_SAFE_NO_PAD.decode(set["keys"][0]["n"].as_str().unwrap()).unwrap();
    set["keys"][0]["n"] = URL_SAFE_NO_PAD.encode([&[0], modulus.as_slice()].concat()).into();
    assert!(verifies(&set, &signer.sign(&json!({}))));
    // Keys of less than 2,048 bits are too weak.
    set["keys"][0]["n"] = URL_SAFE_NO_PAD.encode(&modulus[..128]).into();
    assert!(!verifies(&set, &signer.sign(&json!({}))));
}

#[test]
fn malformed_tokens_are_refused() {
    let signer = Signer::eddsa("d");
    let header = r#"{"alg":"EdDSA","kid":"d"}"#;
    let parses = |token: &str| SignedJwt::parse(token.as_bytes()).is_ok();
    assert!(parses(&signer.sign_texts(header, r#"{"sub":"1"}"#)));
    for (header, claims) in [
        (header, r#"{"sub":"1","sub":"2"}"#),
        (header, r#"["sub"]"#),
        (header, "{} {}"),
        (header, ""),
        (r#"{"alg":"EdDSA","alg":"EdDSA"}"#, "{}"),
        (r#"{"alg":"EdDSA","crit":["exp"]}"#, "{}"),
        (r#"{"alg":"EdDSA","crit":[]}"#, "{}"),
        (r#"{"alg":"EdDSA","b64":false}"#, "{}"),
        (r#"{"alg":"EdDSA","kid":7}"#, "{}"),
        (r#"{"alg":"EdDSA","typ":[]}"#, "{}"),
        (r#"{"alg":["EdDSA"]}"#, "{}"),
        (r#""EdDSA""#, "{}"),
    ] {
        assert!(!parses(&signer.sign_texts(header, claims)), "{header} {claims}");
    }
    let token = signer.sign_texts(header, r#"{"sub":"1"}"#);
    for wrong in [
        String::new(),
        "..".to_owned(),
        token.replacen('.', "", 1),
        format!("{token}.x"),
        format!("{token}="),
        format!(" {token}"),
        token.replacen('.', "=.", 1),
    ] {
        assert!(!parses(&wrong), "{wrong}");
    }
    let large = json!({"sub": "x".repeat(17 * 1024)}).to_string();
    assert!(!parses(&signer.sign_texts(header, &large)));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(3000), "]".repeat(3000));
    assert!(!parses(&signer.sign_texts(header, &deep)));
}

#[test]
fn a_key_set_is_bounded_and_unknown_keys_are_left_out() {
    let signer = Signer::es256("e");
    let mut keys = vec![json!({"kty": "oct", "k": "AAAA"}), json!("key"), json!({"kty": "EC"}), signer.jwk()];
    assert_eq!(KeySet::of(&json!({"keys": keys})).unwrap().len(), 1);
    keys.resize(1000, signer.jwk());
    assert!(KeySet::of(&json!({"keys": keys})).unwrap().len() <= 64);
    for wrong in ["", "[]", "{}", r#"{"keys":{}}"#] {
        assert!(KeySet::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
}
