//! Reads any text as a `requestState` from a client, any bytes as the plain text of one, and any bytes as the response of
//! a server that issues one. Promise: a state opens only for the client and the request that it was given to.

use std::sync::LazyLock;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use bytes::Bytes;
use gateway::answer::result_member;
use gateway::caller::{Scope, Viewer};
use mcp::bridge::state::{Bond, States};
use model::PrincipalId;
use seal::PurposeSeal;
use wire::walk::whole;
use wire::{Head, text};

use super::session::seal;

pub const DICTIONARY: &[&str] = &[
    "\"requestState\":",
    "\"result\":{",
    "\"resultType\":\"input_required\"",
    "\"inputRequests\":{}",
    "\"jsonrpc\":\"2.0\"",
    "\"id\":1",
    "\\u00e9",
    "\\ud800",
    "\"\"",
    "null",
    "tools/call",
    "s__t",
    "\0\0\0",
    "\u{1}",
    "\u{7}",
    "A",
    "=",
    "_",
    "-",
];

/// States that were issued under the key of the targets; they are also in the corpus.
const GENUINE: &[&str] = &[
    "AQhGA-cYed6uuNbA6TA9tB0w_P3JIwWrqgx4AU9F5HdRdgjHHKMe_-NEaVoO7_y0RTK2APqVbxJtOb9ZYH3SJSarWi3Zl8IBan4be6GZZ1I",
    "AYcMli4Y3CSoRkkSaDgRrjTmCLX0_snuHuPcgnqE8CUMVZBAl8fM04lYVzC4pHzm8pskXHMxOKd4ZBv-VBdt-NbofldPAmFNGkVTcSz-ptR7",
    "AW4GLtluHwxVIiJqMszVJZmEglvXHPSTtRX9unLQpw9m60YAAvlQN__DDzNtEKdBwEgR0w8WLgu2Jnr1jRt_3iLJ69oLC3Omee7tOek",
];

const REQUEST: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__t"}}"#;
const OTHER_REQUEST: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__tt"}}"#;

const LONGEST_PLAIN: usize = 1024;

static STATES: LazyLock<(States, PurposeSeal)> =
    LazyLock::new(|| (States::new(seal("state")), seal("state")));

pub fn run(input: &[u8]) {
    let (states, seal) = &*STATES;
    let given = bond(7, REQUEST);
    let others = [bond(8, REQUEST), bond(7, OTHER_REQUEST)];

    let sealed = String::from_utf8_lossy(input);
    let is_open = states.unwrap(&sealed, &given).is_some();
    assert_eq!(
        is_open,
        GENUINE.contains(&sealed.as_ref()),
        "a forged state opens, or a genuine one does not"
    );
    assert!(others.iter().all(|other| states.unwrap(&sealed, other).is_none()));

    // It may be refused, but must not panic. Sealing large texts is slow in a debug build.
    let plain = &input[..input.len().min(LONGEST_PLAIN)];
    let _ = states.unwrap(&URL_SAFE_NO_PAD.encode(seal.seal(plain)), &given);

    // The gateway wraps only states that its scanner has read.
    if whole(input).is_err() {
        return;
    }
    let answer = Bytes::copy_from_slice(input);
    let wrapped = states.wrap(answer.clone(), &given, "s");
    assert!(whole(&wrapped).is_ok(), "no longer JSON");
    let state =
        |answer: &Bytes| text::unescape(&answer[result_member(answer, "requestState")?]).map(String::from);
    match (state(&answer), state(&wrapped)) {
        (Some(plain), Some(sealed)) => {
            let returned = states.unwrap(&sealed, &given).expect("it was given to this client");
            assert_eq!((returned.server.as_str(), returned.state), ("s", plain));
            assert!(others.iter().all(|other| states.unwrap(&sealed, other).is_none()));
        }
        (None, _) => assert_eq!(wrapped, answer),
        (Some(_), None) => panic!("the state is gone"),
    }
}

fn bond(client: u64, request: &[u8]) -> Bond {
    let viewer = Viewer { scope: Scope::Everything, client: Some(PrincipalId(client)) };
    Bond::of(&viewer, &Head::parse(request).expect("a request"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_what_is_genuine() {
        let corpus = crate::corpus::read("state").expect("a corpus");
        assert!(GENUINE.iter().all(|text| corpus.iter().any(|input| input == text.as_bytes())));
    }
}
