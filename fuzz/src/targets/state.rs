//! Reads any text as a `requestState` from a client, any bytes as the plain text of one, and any bytes as the response of
//! a server that issues one. Promise: a state opens only for the client and the request that it was given to.

use std::sync::LazyLock;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use bytes::Bytes;
use gateway::answer::result_member;
use gateway::caller::{Scope, Viewer};
use gateway::destination::ReturnedState;
use mcp::bridge::state::{Bond, Returned, States};
use model::PrincipalId;
use seal::PurposeSeal;
use wire::text;
use wire::walk::whole;

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
    "ARRDuIeHphjCXGX_HwJ6Q5FS9ApKQc6ajC7b0tPXznv7tmrQogCuFuLrCdfpg1ti3zRgVPB_-d3aedwmsHU8vmt2ZkAF4MqmSlY3HFTW8qEK_tCB1WBpUQyYk6qILMR1XFhLX1zpC8wdbVSIWcMD2VZK4lEx",
    "Af7B1HnbPpOA-cqk_WkcboZB2wcwq9xiKH9kJlC--HZIgWuKaQ1SWE5_O4eAcAS9JPf0mo28i9KWVFXZQlvcaCcA6q6gmqLXYjMyN8oH9XCkr8TAS8AvgOFTeNqRt__z0dhjhv8Z-8x-gSc_FnKhSm1T-7v9",
    "AYB8OkvD1eRq7sguzYTdN6agy4Lez_w-RtGbrRkLAKTlTtrHZY6rAzJKbzSJlrIwrAQyVFSkGqUzwThj0v2QgMn3tOx3mNY5LYx6F8GxEeeYkd_c4g01_HWgjYmuLOBpjQPfVvPp3Wx0z4pwiFAg4nsJZAfv",
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
            assert_eq!(returned, Returned::Server(ReturnedState { server: "s".into(), state: plain }));
            assert!(others.iter().all(|other| states.unwrap(&sealed, other).is_none()));
        }
        (None, _) => assert_eq!(wrapped, answer),
        (Some(_), None) => panic!("the state is gone"),
    }
}

fn bond(client: u64, request: &'static [u8]) -> Bond {
    let viewer = Viewer { scope: Scope::Everything, principal: Some(PrincipalId(client)) };
    let request = Bytes::from_static(request);
    Bond::of(&viewer, &request)
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
