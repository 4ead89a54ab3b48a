//! The fingerprint of what a request asks for, apart from the parts that differ between its rounds: the same however the
//! client orders the members and whatever white space it writes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use wire::walk;

/// The members of `params` that differ between the rounds of one request.
const OF_ONE_ROUND: [&str; 3] = ["_meta", "requestState", "inputResponses"];

pub fn fingerprint(request: &[u8]) -> [u8; 32] {
    let params = walk::member(request, &(0..request.len()), "params").map(|span| &request[span]);
    let params = params.unwrap_or(b"{}");
    let mut hash = Sha256::new();
    match serde_json::from_slice::<BTreeMap<String, Value>>(params) {
        Ok(mut members) => {
            members.retain(|key, value| {
                let is_left_out = key == "arguments" && is_nothing(value);
                !OF_ONE_ROUND.contains(&key.as_str()) && !is_left_out
            });
            for (key, value) in members {
                put(&mut hash, key.as_bytes());
                add(&mut hash, &value);
            }
        }
        // Nested too deep to be read as values: then each member must be written in the same way again.
        Err(_) => {
            for (key, _, value) in walk::members(params, &(0..params.len())) {
                if !OF_ONE_ROUND.contains(&&*key) {
                    put(&mut hash, key.as_bytes());
                    put(&mut hash, &params[value]);
                }
            }
        }
    }
    hash.finalize().into()
}

/// No arguments may be written in three ways.
fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

fn add(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<_, _> = members.iter().collect();
            hash.update([b'{']);
            for (key, value) in sorted {
                put(hash, key.as_bytes());
                add(hash, value);
            }
            hash.update([b'}']);
        }
        Value::Array(items) => {
            hash.update([b'[']);
            items.iter().for_each(|item| add(hash, item));
            hash.update([b']']);
        }
        Value::String(text) => {
            hash.update([b'"']);
            put(hash, text.as_bytes());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => put(hash, value.to_string().as_bytes()),
    }
}

/// Adds bytes with their length, so that no two sequences of them are the same.
fn put(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(params: &str) -> [u8; 32] {
        fingerprint(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#).as_bytes())
    }

    #[test]
    fn only_what_is_asked_for_counts() {
        let asked = of(r#"{"name":"t","arguments":{"a":{"x":1,"y":"\u00e9"},"b":[true,null]}}"#);
        for same in [
            r#"{"arguments":{"b":[true, null],"a":{"y":"é","x":1}},"name":"t"}"#,
            r#"{"name":"t","arguments":{"a":{"x":1,"y":"é"},"b":[true,null]},"requestState":"s","inputResponses":{"k":{}},"_meta":{"progressToken":1}}"#,
        ] {
            assert_eq!(of(same), asked, "{same}");
        }
        for other in [
            r#"{"name":"t","arguments":{"a":{"x":1,"y":"é"},"b":[null,true]}}"#,
            r#"{"name":"t","arguments":{"a":{"x":"1","y":"é"},"b":[true,null]}}"#,
            r#"{"name":"t","arguments":{"a":{"x":1},"y":"é","b":[true,null]}}"#,
            r#"{"name":"t"}"#,
        ] {
            assert_ne!(of(other), asked, "{other}");
        }
        assert_eq!(of(r#"{"name":"t"}"#), of(r#"{"name":"t","arguments":{}}"#));
        let deep = |inner: &str| {
            format!(r#"{{"arguments":{}{inner}{},"_meta":{{}}}}"#, "[".repeat(500), "]".repeat(500))
        };
        assert_eq!(of(&deep("1")), of(&deep("1").replace("\"_meta\":{}", "\"_meta\":{\"a\":1}")));
        assert_ne!(of(&deep("1")), of(&deep("2")));
    }
}
