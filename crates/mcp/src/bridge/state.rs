//! The state that a client keeps between two rounds of one request, sealed by the gateway: that of a modern server, or
//! the number of a parked call. A server knows only the gateway, so the gateway must ensure that no client returns the
//! state of another client, another server or another request.

use std::borrow::Cow;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use bytes::Bytes;

use super::fingerprint::fingerprint;
use gateway::answer::result_member;
use gateway::caller::Viewer;
use gateway::destination::ReturnedState;
use model::PrincipalId;
use seal::PurposeSeal;
use wire::{Head, Patch, headers, text};

/// The first byte of a state says what it is.
const OF_SERVER: u8 = 0;
const OF_PARKED_CALL: u8 = 1;

pub struct States(PurposeSeal);

/// What a client returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The state that a modern server gave it.
    Server(ReturnedState),
    ParkedCall(ParkedNumber),
}

/// Identifies a parked call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedNumber {
    pub server: String,
    pub number: u64,
}

/// The client and request that a state belongs to.
#[derive(Clone, Debug)]
pub struct Bond {
    client: Option<PrincipalId>,
    /// The whole request. What identifies it is computed when it is needed: most requests have no state.
    request: Bytes,
}

impl Bond {
    pub fn of(viewer: &Viewer, request: &Bytes) -> Self {
        Self { client: viewer.principal, request: request.clone() }
    }

    /// What identifies the next round of a request: its state, which is unique, or else what all rounds have in common.
    pub fn next_round(&self, state: Option<impl AsRef<str>>) -> Vec<u8> {
        state.map_or_else(|| self.to_bytes(), |state| state.as_ref().as_bytes().to_vec())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let client = self.client.map_or([0; 9], |PrincipalId(id)| {
            let mut bytes = [1; 9];
            bytes[1..].copy_from_slice(&id.to_le_bytes());
            bytes
        });
        let head = Head::parse(&self.request).ok();
        let method = head.as_ref().and_then(|head| head.method.as_deref()).unwrap_or_default();
        // The name or URI that the request is about, as the client gives it.
        let target = head.as_ref().and_then(headers::routed_name).unwrap_or_default();
        let mut bytes = client.to_vec();
        for text in [method, &target] {
            put(&mut bytes, text);
        }
        bytes.extend_from_slice(&fingerprint(&self.request));
        bytes
    }
}

impl States {
    pub fn new(seal: PurposeSeal) -> Self {
        Self(seal)
    }

    /// Seals the state in a modern server's answer that asks for input.
    pub fn wrap(&self, answer: Bytes, bond: &Bond, server: &str) -> Bytes {
        let Some(span) = result_member(&answer, "requestState") else { return answer };
        let Some(state) = text::unescape(&answer[span.clone()]) else { return answer };
        let mut patch = Patch::new(&answer);
        patch.replace(span, text::quote(&self.seal(OF_SERVER, bond, server, state.as_bytes())));
        patch.apply()
    }

    /// The state with which a client comes back to its parked call.
    pub fn of_parked(&self, bond: &Bond, parked: &ParkedNumber) -> String {
        self.seal(OF_PARKED_CALL, bond, &parked.server, &parked.number.to_le_bytes())
    }

    fn seal(&self, kind: u8, bond: &Bond, server: &str, state: &[u8]) -> String {
        let mut plain = vec![kind];
        plain.extend_from_slice(&bond.to_bytes());
        put(&mut plain, server);
        plain.extend_from_slice(state);
        URL_SAFE_NO_PAD.encode(self.0.seal(&plain))
    }

    /// What is in a sealed state; `None` if it was not issued for this client and request.
    pub fn unwrap(&self, sealed: &str, bond: &Bond) -> Option<Returned> {
        let plain = self.0.open(&URL_SAFE_NO_PAD.decode(sealed).ok()?).ok()?;
        let (kind, rest) = plain.split_first()?;
        let rest = rest.strip_prefix(bond.to_bytes().as_slice())?;
        let (length, rest) = rest.split_first_chunk()?;
        let (server, state) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let server = text(server)?;
        match *kind {
            OF_SERVER => Some(Returned::Server(ReturnedState { server, state: text(state)? })),
            OF_PARKED_CALL => {
                let number = u64::from_le_bytes(state.try_into().ok()?);
                Some(Returned::ParkedCall(ParkedNumber { server, number }))
            }
            _ => None,
        }
    }
}

/// The state in an answer that asks for input.
pub fn given_state(answer: &[u8]) -> Option<Cow<'_, str>> {
    text::unescape(&answer[result_member(answer, "requestState")?])
}

/// Appends a text with its length.
fn put(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::caller::Scope;
    use seal::{Seal, SecretKey};

    fn bond(client: Option<u64>, method: &str, name: &str, arguments: &str) -> Bond {
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"{name}","arguments":{arguments}}}}}"#
        );
        let viewer = Viewer { scope: Scope::Everything, principal: client.map(PrincipalId) };
        let request = Bytes::from(request);
        Bond::of(&viewer, &request)
    }

    fn states() -> States {
        States::new(Seal::new(&SecretKey::random()).for_purpose("test"))
    }

    #[test]
    fn a_state_opens_for_the_client_and_request_that_it_was_given_to_alone() {
        let states = states();
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"requestState":"s\u00e9\"","resultType":"input_required"}}"#;
        let given = bond(Some(7), "tools/call", "s__t", r#"{"a":1,"b":[2]}"#);
        let wrapped = states.wrap(Bytes::from_static(answer), &given, "s");
        let sealed = &wrapped[result_member(&wrapped, "requestState").unwrap()];
        let sealed = text::unescape(sealed).unwrap().into_owned();
        assert!(!sealed.contains('é'));
        let returned = ReturnedState { server: "s".into(), state: "sé\"".into() };
        assert_eq!(states.unwrap(&sealed, &given), Some(Returned::Server(returned)));
        let parked = ParkedNumber { server: "s".into(), number: 9 };
        let number = states.of_parked(&given, &parked);
        assert_eq!(states.unwrap(&number, &given), Some(Returned::ParkedCall(parked)));
        let arguments = r#"{"a":1,"b":[2]}"#;
        let same = bond(Some(7), "tools/call", "s__t", r#"{ "b":[ 2], "a" : 1 }"#);
        assert!(states.unwrap(&sealed, &same).is_some());
        for other in [
            bond(Some(8), "tools/call", "s__t", arguments),
            bond(None, "tools/call", "s__t", arguments),
            bond(Some(7), "prompts/get", "s__t", arguments),
            bond(Some(7), "tools/call", "s__", arguments),
            bond(Some(7), "tools/call", "s__tt", arguments),
            bond(Some(7), "tools/call", "s__t", r#"{"a":1,"b":[3]}"#),
            bond(Some(7), "tools/call", "s__t", "{}"),
        ] {
            for sealed in [&sealed, &number] {
                assert_eq!(states.unwrap(sealed, &other), None, "{other:?}");
            }
        }
        assert_eq!(states.unwrap(&sealed[1..], &given), None);
        assert_eq!(states.unwrap("", &given), None);
    }

    #[test]
    fn an_answer_without_a_state_stays_as_it_is() {
        let answer = Bytes::from_static(br#"{"id":1,"jsonrpc":"2.0","result":{"inputRequests":{}}}"#);
        assert_eq!(states().wrap(answer.clone(), &bond(None, "m", "t", "{}"), "s"), answer);
    }
}
