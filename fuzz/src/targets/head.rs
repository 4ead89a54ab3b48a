//! Reads any bytes as a message. Promises: serde_json agrees on what is JSON, an id found by the fast scan is at top
//! level, values repeated in headers read back as they are in the message, and the parts of a response are those of its
//! members. The same bytes are also read as the schema of a tool and as an error object.

use bytes::Bytes;
use serde_json::value::RawValue;
use wire::scan::MAX_DEPTH;
use wire::walk::{member, members, whole};
use wire::{Head, HeadError, HeaderParam, MessageKind, Response, RpcError, find_answer_id, headers};

pub const DICTIONARY: &[&str] = &[
    "\"jsonrpc\":\"2.0\"",
    "\"id\":",
    "\"method\":",
    "\"params\":",
    "\"result\":",
    "\"error\":",
    "\"_meta\":",
    "\"name\":",
    "\"uri\":",
    "\"arguments\":",
    "\"progressToken\":",
    "\"requestState\":",
    "\"inputResponses\":",
    "\"io.modelcontextprotocol/protocolVersion\":",
    "\"2026-07-28\"",
    "\"tools/call\"",
    "\"ref\":",
    "\"code\":-32601",
    "\"x-mcp-header\":\"A\"",
    "\"properties\":",
    "\"type\":\"string\"",
    "\"\\u0069d\":",
    "\\ud800",
    "\\udc00",
    "\\\"",
    "null",
    "true",
    "-0",
    "1e309",
    "18446744073709551616",
    "[[[[[[[[",
    "]]]]]]]]",
    "{\"a\":",
    "{}",
    "\u{feff}",
    "\u{2028}",
];

pub fn run(body: &[u8]) {
    let theirs = std::str::from_utf8(body).is_ok_and(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let ours = whole(body);
    match &ours {
        Ok(_) => assert!(theirs, "serde_json does not take it for JSON"),
        // serde_json accepts raw values of any depth.
        Err(error) => assert!(
            !theirs || body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > MAX_DEPTH,
            "serde_json takes it for JSON: {error}"
        ),
    }
    match Head::parse(body) {
        Ok(head) => {
            assert!(ours.is_ok());
            check(&head);
        }
        Err(HeadError::Invalid { id, .. }) => {
            assert!(ours.as_ref().map_or_else(|error| error.is_too_deep(), |_| true));
            assert!(id.is_none_or(|id| whole(&id).is_ok()), "an answer cannot carry the id");
        }
        Err(HeadError::Syntax { at, .. }) => assert!(ours.is_err() && at <= body.len()),
    }
    if let (Ok(object), Some(id)) = (&ours, find_answer_id(body)) {
        assert!(members(body, object).any(|(key, _, value)| key == "id" && value == id));
    }
    if let (Ok(_), Ok(response)) = (&ours, Response::read(Bytes::copy_from_slice(body))) {
        assert!(response.result().is_some() != response.error_span().is_some());
        let said = response.result_span().and_then(|result| member(body, result, "resultType"));
        assert_eq!(said.map(|span| &body[span]), response.result_type());
    }
    if ours.is_ok() {
        let _ = RpcError::parse(body);
        for param in HeaderParam::from_schema(body).unwrap_or_default() {
            assert!(!param.path.is_empty() && param.header.starts_with(headers::PARAM_PREFIX));
        }
    }
}

fn check(head: &Head<'_>) {
    let is_call = matches!(head.kind, MessageKind::Request | MessageKind::Notice);
    assert_eq!(is_call, head.method.is_some());
    assert!(head.span.end <= head.body.len());
    let values = headers::RoutingValues::of(head);
    let (method, name) = values.encoded();
    assert_eq!(headers::decode_value(&method).as_deref(), Some(head.method.as_deref().unwrap_or_default()));
    for value in [Some(method), name.clone()].into_iter().flatten() {
        assert!(value.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "a header cannot carry {value:?}");
    }
    let routed = headers::routed_name(head);
    assert_eq!(name.as_deref().map(headers::decode_value), routed.map(Some));
}
