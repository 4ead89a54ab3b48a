//! What a server's request needs of a client: one of three kinds of input, each with a capability of its own.

use model::Capabilities;
use wire::{text, walk};

/// Whether a client can be asked this at all.
pub fn is_question(method: &str) -> bool {
    matches!(method, "elicitation/create" | "sampling/createMessage" | "roots/list")
}

/// Whether a client declared the kind of input that a request asks for. Its modes and settings are not looked at: a client
/// of the server's own era refuses what it cannot do itself.
pub fn declares_kind(declared: &Capabilities, method: &str) -> bool {
    match method {
        "elicitation/create" => declared.has_elicitation(),
        "sampling/createMessage" => declared.has_sampling(),
        "roots/list" => declared.has_roots(),
        _ => true,
    }
}

/// The capability that a request needs and that the client did not declare, as a path.
pub fn missing_capability(
    declared: &Capabilities,
    method: &str,
    params: Option<&[u8]>,
) -> Option<&'static str> {
    let params = params.unwrap_or(b"{}");
    let member = |key: &str| walk::member(params, &(0..params.len()), key).map(|span| &params[span]);
    match method {
        "elicitation/create" if member("mode").and_then(text::unescape).as_deref() == Some("url") => {
            (!declared.has_url_elicitation()).then_some("elicitation.url")
        }
        "elicitation/create" if !declared.has_elicitation() => Some("elicitation"),
        "elicitation/create" => (!declared.has_form_elicitation()).then_some("elicitation.form"),
        "sampling/createMessage" if !declared.has_sampling() => Some("sampling"),
        "sampling/createMessage" => {
            let has_tools = member("tools").is_some_and(|tools| tools != b"null");
            (has_tools && !declared.has_sampling_tools()).then_some("sampling.tools")
        }
        "roots/list" => (!declared.has_roots()).then_some("roots"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_and_mode_needs_its_own_capability() {
        let form = Some(&br#"{"message":"m","requestedSchema":{}}"#[..]);
        let url = Some(&br#"{"mode":"url","url":"https://x"}"#[..]);
        let tools = Some(&br#"{"messages":[],"tools":[{"name":"t"}]}"#[..]);
        let missing = |declared: serde_json::Value, method: &str, params| {
            missing_capability(&Capabilities::of(&declared), method, params)
        };
        let elicit = "elicitation/create";
        assert_eq!(missing(json!({}), elicit, form), Some("elicitation"));
        assert_eq!(missing(json!({}), elicit, url), Some("elicitation.url"));
        assert_eq!(missing(json!({"elicitation": {}}), elicit, form), None);
        assert_eq!(missing(json!({"elicitation": {}}), elicit, url), Some("elicitation.url"));
        assert_eq!(missing(json!({"elicitation": {"url": {}}}), elicit, url), None);
        assert_eq!(missing(json!({"elicitation": {"url": {}}}), elicit, form), Some("elicitation.form"));
        let sample = "sampling/createMessage";
        assert_eq!(missing(json!({}), sample, tools), Some("sampling"));
        assert_eq!(missing(json!({"sampling": {}}), sample, form), None);
        assert_eq!(missing(json!({"sampling": {}}), sample, tools), Some("sampling.tools"));
        assert_eq!(missing(json!({"sampling": {"tools": {}}}), sample, tools), None);
        assert_eq!(missing(json!({}), "roots/list", None), Some("roots"));
        assert_eq!(missing(json!({}), "vendor/ask", None), None);
    }
}
