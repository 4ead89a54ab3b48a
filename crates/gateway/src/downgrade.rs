//! Removes from the response of a modern server what legacy clients do not know: members of every modern result, the
//! protocol's own keys of `_meta`, and the modern code for an unknown resource. Deeper parts are never touched.

use memchr::memmem;

use super::destination::Reading;
use super::unknown_resource::{says_not_found, with_uri};
use wire::error::code;
use wire::meta::PeersMeta;
use wire::{Patch, Response, Span, walk};

/// The members that modern results have besides those of the method.
const MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// Removes the modern members of a result.
pub fn result(patch: &mut Patch<'_>, answer: &[u8], result: &Span) {
    // A search for the text is much faster than a walk over a large result.
    let meta =
        memmem::find(&answer[result.clone()], b"_meta").and_then(|_| walk::member(answer, result, "_meta"));
    let kept = meta.map_or(PeersMeta::All, |meta| PeersMeta::of(&answer[meta]));
    let is_unwanted = |key: &str| MEMBERS.contains(&key) || kept == PeersMeta::Nothing && key == "_meta";
    match &kept {
        PeersMeta::Part(meta) => patch.edit_members(result, is_unwanted, &[("_meta", meta)]),
        PeersMeta::All | PeersMeta::Nothing => patch.edit_members(result, is_unwanted, &[]),
    };
}

/// Gives the error for an unknown resource its legacy code. Any other wrong parameter keeps the code of the server.
pub fn read_error(patch: &mut Patch<'_>, response: &Response, reading: &Reading) {
    let (Some(span), Some(error)) = (response.error_span(), response.error()) else { return };
    if !error.is(code::INVALID_PARAMS) || !says_not_found(error.code, error.data, &reading.known_as) {
        return;
    }
    let code = code::RESOURCE_NOT_FOUND.to_string();
    let data = error.data.filter(|_| reading.asked != reading.known_as);
    let data = data.map(|data| with_uri(data, &reading.asked));
    let mut set: Vec<(&str, &[u8])> = vec![("code", code.as_bytes())];
    set.extend(data.as_deref().map(|data| ("data", data)));
    patch.edit_members(span, |_| false, &set);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn downgraded(answer: &str) -> String {
        let response = Response::read(Bytes::copy_from_slice(answer.as_bytes())).unwrap();
        let mut patch = Patch::new(response.message());
        match response.result_span() {
            Some(span) => result(&mut patch, response.message(), span),
            None => {
                let reading = Reading { asked: "q://1".into(), known_as: "x://1".into() };
                read_error(&mut patch, &response, &reading);
            }
        }
        String::from_utf8(patch.apply().to_vec()).unwrap()
    }

    #[test]
    fn a_result_loses_what_only_modern_clients_know() {
        let own =
            r#""io.modelcontextprotocol/serverInfo":{"name":"x"},"io.modelcontextprotocol/subscriptionId":1"#;
        for (from, to) in [
            (r#"{"resultType":"complete","content":[]}"#.to_owned(), r#"{"content":[]}"#),
            (
                r#"{"contents":[],"ttlMs":5,"cacheScope":"public","resultType":"complete"}"#.into(),
                r#"{"contents":[]}"#,
            ),
            (format!(r#"{{"a":1.0,"_meta":{{{own}}},"resultType":"complete"}}"#), r#"{"a":1.0}"#),
            (format!(r#"{{"_meta":{{"b":1,{own}, "c":2}},"a":1}}"#), r#"{"_meta":{"b":1, "c":2},"a":1}"#),
            (r#"{"_meta":{},"a":1}"#.into(), r#"{"_meta":{},"a":1}"#),
            (
                r#"{"_meta":{"io.modelcontextprotocol/related-task":{}}}"#.into(),
                r#"{"_meta":{"io.modelcontextprotocol/related-task":{}}}"#,
            ),
            // Only the top level belongs to the protocol.
            (
                format!(
                    r#"{{"structuredContent":{{"resultType":1,"ttlMs":2,"_meta":{{{own}}}}},"resultType":"task"}}"#
                ),
                &format!(r#"{{"structuredContent":{{"resultType":1,"ttlMs":2,"_meta":{{{own}}}}}}}"#),
            ),
        ] {
            let answer = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            assert_eq!(downgraded(&answer(&from)), answer(to));
        }
    }

    #[test]
    fn only_an_unknown_resource_gets_the_legacy_code() {
        let answer = |error: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
        let unknown = r#"{"code":-32602,"message":"no","data":{"uri":"x://1","n":1.0}}"#;
        let told = r#"{"code":-32002,"message":"no","data":{"uri":"q://1","n":1.0}}"#;
        assert_eq!(downgraded(&answer(unknown)), answer(told));
        for other in [
            r#"{"code":-32602,"message":"a cursor is needed"}"#,
            r#"{"code":-32602,"message":"no","data":{"uri":"x://2"}}"#,
            r#"{"code":-32603,"message":"no","data":{"uri":"x://1"}}"#,
        ] {
            assert_eq!(downgraded(&answer(other)), answer(other));
        }
    }
}
