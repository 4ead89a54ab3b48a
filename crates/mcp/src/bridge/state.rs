//! The state that a modern server gives a client between two rounds of one request, sealed by the gateway. The server
//! knows only the gateway, so the gateway must ensure that no client returns the state of another client, another
//! server or another request.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use bytes::Bytes;

use gateway::answer::result_member;
use gateway::caller::Viewer;
use gateway::destination::ReturnedState;
use model::PrincipalId;
use seal::PurposeSeal;
use wire::{Head, Patch, headers, text};

pub struct States(PurposeSeal);

/// The client and request that a state belongs to.
#[derive(Clone, Debug)]
pub struct Bond {
    client: Option<PrincipalId>,
    method: String,
    /// The name or URI that the request is about, as the client gives it.
    target: String,
}

impl Bond {
    pub fn of(viewer: &Viewer, head: &Head<'_>) -> Self {
        Self {
            client: viewer.client,
            method: head.method.as_deref().unwrap_or_default().to_owned(),
            target: headers::routed_name(head).unwrap_or_default().into_owned(),
        }
    }

    fn to_bytes(&self, server: &str) -> Vec<u8> {
        let client = self.client.map_or([0; 9], |PrincipalId(id)| {
            let mut bytes = [1; 9];
            bytes[1..].copy_from_slice(&id.to_le_bytes());
            bytes
        });
        let mut bytes = client.to_vec();
        for text in [&self.method, &self.target, server] {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }
}

impl States {
    pub fn new(seal: PurposeSeal) -> Self {
        Self(seal)
    }

    /// Seals the state in a server's answer that asks for input.
    pub fn wrap(&self, answer: Bytes, bond: &Bond, server: &str) -> Bytes {
        let Some(span) = result_member(&answer, "requestState") else { return answer };
        let Some(state) = text::unescape(&answer[span.clone()]) else { return answer };
        let mut plain = bond.to_bytes(server);
        plain.extend_from_slice(state.as_bytes());
        let mut patch = Patch::new(&answer);
        patch.replace(span, text::quote(&URL_SAFE_NO_PAD.encode(self.0.seal(&plain))));
        patch.apply()
    }

    /// The state as its server wrote it; `None` if it was not issued for this client and request.
    pub fn unwrap(&self, sealed: &str, bond: &Bond) -> Option<ReturnedState> {
        let plain = self.0.open(&URL_SAFE_NO_PAD.decode(sealed).ok()?).ok()?;
        let without_server = bond.to_bytes("");
        // Its last 4 bytes are the length of the server's name, which is unknown here.
        let rest = plain.strip_prefix(&without_server[..without_server.len() - 4])?;
        let (length, rest) = rest.split_first_chunk()?;
        let (server, state) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        Some(ReturnedState { server: text(server)?, state: text(state)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seal::{Seal, SecretKey};

    fn bond(client: Option<u64>, method: &str, target: &str) -> Bond {
        Bond { client: client.map(PrincipalId), method: method.into(), target: target.into() }
    }

    #[test]
    fn a_state_opens_for_the_client_and_request_that_it_was_given_to_alone() {
        let states = States::new(Seal::new(&SecretKey::random()).for_purpose("test"));
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"requestState":"s\u00e9\"","resultType":"input_required"}}"#;
        let given = bond(Some(7), "tools/call", "s__t");
        let wrapped = states.wrap(Bytes::from_static(answer), &given, "s");
        let sealed = &wrapped[result_member(&wrapped, "requestState").unwrap()];
        let sealed = text::unescape(sealed).unwrap();
        assert!(!sealed.contains('é'));
        let returned = ReturnedState { server: "s".into(), state: "sé\"".into() };
        assert_eq!(states.unwrap(&sealed, &given), Some(returned));
        for other in [
            bond(Some(8), "tools/call", "s__t"),
            bond(None, "tools/call", "s__t"),
            bond(Some(7), "prompts/get", "s__t"),
            bond(Some(7), "tools/call", "s__"),
            bond(Some(7), "tools/call", "s__tt"),
        ] {
            assert_eq!(states.unwrap(&sealed, &other), None, "{other:?}");
        }
        assert_eq!(states.unwrap(&sealed[1..], &given), None);
        assert_eq!(states.unwrap("", &given), None);
    }

    #[test]
    fn an_answer_without_a_state_stays_as_it_is() {
        let states = States::new(Seal::new(&SecretKey::random()).for_purpose("test"));
        let answer = Bytes::from_static(br#"{"id":1,"jsonrpc":"2.0","result":{"inputRequests":{}}}"#);
        assert_eq!(states.wrap(answer.clone(), &bond(None, "m", "t"), "s"), answer);
    }
}
