//! The headers in which a modern request repeats parts of its body, so that intermediaries can route by them. They must
//! agree: otherwise an intermediary would check something other than what the gateway runs.

use std::borrow::Cow;
use std::fmt;

use wire::error::code;
use wire::headers::{self, HeaderParam, METHOD, NAME, PARAM_PREFIX};
use wire::{Head, Version, meta};

/// The headers as sent, by lower-case name; one that was sent twice holds both values.
#[derive(Debug, Default)]
pub struct Routing(Vec<(Cow<'static, str>, String)>);

/// Why a modern request is refused before it is handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// A field that every request must have in `_meta` is missing.
    Incomplete(String),
    HeaderMismatch(String),
    UnsupportedVersion(String),
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::Incomplete(sentence) | Objection::HeaderMismatch(sentence) => f.write_str(sentence),
            Objection::UnsupportedVersion(requested) => {
                write!(f, "protocol version {requested:?} is not supported")
            }
        }
    }
}

impl Objection {
    /// The code of the error that the client gets.
    pub fn code(&self) -> i32 {
        match self {
            Objection::Incomplete(_) => code::INVALID_PARAMS,
            Objection::HeaderMismatch(_) => code::HEADER_MISMATCH,
            Objection::UnsupportedVersion(_) => code::UNSUPPORTED_PROTOCOL_VERSION,
        }
    }
}

impl Routing {
    /// Adds a header if it is a routing header. A value that is not text matches nothing in the body.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        let name = match [METHOD, NAME].into_iter().find(|known| name.eq_ignore_ascii_case(known)) {
            Some(known) => Cow::Borrowed(known),
            None => match name.get(..PARAM_PREFIX.len()) {
                Some(prefix) if prefix.eq_ignore_ascii_case(PARAM_PREFIX) => name.to_ascii_lowercase().into(),
                Some(_) | None => return,
            },
        };
        let value = str::from_utf8(value).ok().filter(|text| text.is_ascii()).unwrap_or("\u{fffd}");
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push_str(&format!(", {value}")),
            None => self.0.push((name, value.to_owned())),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Checks that a header has the expected value, plain or in base64.
    fn says(&self, name: &str, expected: &str) -> Result<(), Objection> {
        let sent = self.get(name).ok_or_else(|| mismatch(format!("the header {name} is missing")))?;
        match headers::decode_value(sent) {
            Some(said) if said == expected || same_number(&said, expected) => Ok(()),
            Some(said) => Err(mismatch(format!("the header {name} says {said:?}, the body {expected:?}"))),
            None => Err(mismatch(format!("the header {name} is not valid base64"))),
        }
    }
}

/// Checks a request in the order that the revision gives: whether its `_meta` is complete, whether its headers agree,
/// whether its version is supported. `params` are the arguments that its headers must repeat.
pub fn check(
    version: Option<&str>,
    routing: &Routing,
    head: &Head<'_>,
    params: &[HeaderParam],
) -> Result<(), Objection> {
    let missing = |what: &str| Objection::Incomplete(format!("params._meta must have {what:?}"));
    let said = head.meta().ok_or_else(|| Objection::Incomplete("params._meta must be an object".into()))?;
    let said_version = said.protocol_version.as_ref().ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
    said.client_capabilities.as_ref().ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))?;
    match version {
        None => return Err(mismatch("the header mcp-protocol-version is missing".into())),
        Some(version) if version != said_version.value => {
            let sentence = format!(
                "the header mcp-protocol-version says {version:?}, the body {:?}",
                said_version.value
            );
            return Err(mismatch(sentence));
        }
        Some(_) => {}
    }
    routing.says(METHOD, head.method.as_deref().unwrap_or_default())?;
    if let Some(name) = headers::routed_name(head) {
        routing.says(NAME, &name)?;
    }
    check_params(routing, head, params)?;
    match Version::parse(&said_version.value) {
        Some(Version::MODERN) => Ok(()),
        Some(_) | None => Err(Objection::UnsupportedVersion(said_version.value.to_string())),
    }
}

/// Checks that an argument and its header are both present or both missing.
fn check_params(routing: &Routing, head: &Head<'_>, params: &[HeaderParam]) -> Result<(), Objection> {
    let arguments = head.params.as_ref().and_then(|params| params.arguments.as_ref());
    for param in params {
        let value = headers::param_value(head.body, arguments, param);
        match (value, routing.get(&param.header)) {
            (Some(value), _) => routing.says(&param.header, &value)?,
            (None, None) => {}
            (None, Some(_)) => {
                let sentence = format!("the header {} repeats an argument that is missing", param.header);
                return Err(mismatch(sentence));
            }
        }
    }
    Ok(())
}

/// Whether two texts are the same whole number: clients write `42` where the body has `42.0`.
fn same_number(one: &str, other: &str) -> bool {
    fn whole(text: &str) -> Option<&str> {
        let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_whole = is_number(digits.strip_prefix('-').unwrap_or(digits)) && is_number(fraction);
        (is_whole && fraction.bytes().all(|byte| byte == b'0')).then_some(digits)
    }
    whole(one).is_some_and(|digits| whole(other) == Some(digits))
}

fn mismatch(sentence: String) -> Objection {
    Objection::HeaderMismatch(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn checked(params: &str, headers: &[(&str, &str)], version: Option<&str>) -> Result<(), Objection> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}"#);
        let mut routing = Routing::default();
        for (name, value) in headers {
            routing.add(name, value.as_bytes());
        }
        let param = HeaderParam { header: "mcp-param-n".into(), path: vec!["n".into()] };
        check(version, &routing, &Head::parse(body.as_bytes()).unwrap(), &[param])
    }

    #[test]
    fn headers_must_say_what_the_body_says() {
        let call = |arguments: &str| format!(r#""name":"caf\u00e9","arguments":{arguments},{META}"#);
        let method = ("mcp-method", "tools/call");
        let name = ("mcp-name", "=?base64?Y2Fmw6k=?=");
        let now = Some("2026-07-28");
        assert_eq!(checked(&call("{}"), &[method, name], now), Ok(()));
        for n in ["42", "42.0", "=?base64?NDI=?="] {
            assert_eq!(checked(&call(r#"{"n":42}"#), &[method, name, ("mcp-param-n", n)], now), Ok(()));
        }
        for headers in [
            &[name][..],
            &[method],
            &[method, ("mcp-name", "other")],
            &[method, ("mcp-name", "=?base64?!?=")],
            &[method, method, name],
            &[("mcp-method", "tools/list"), name],
            &[method, name, ("mcp-param-n", "1")],
        ] {
            let refused = checked(&call("{}"), headers, now);
            assert!(matches!(refused, Err(Objection::HeaderMismatch(_))), "{headers:?}: {refused:?}");
        }
        for n in ["43", "4.2", "42.5", "", "4 2"] {
            let refused = checked(&call(r#"{"n":42}"#), &[method, name, ("mcp-param-n", n)], now);
            assert!(matches!(refused, Err(Objection::HeaderMismatch(_))), "{n}");
        }
    }

    #[test]
    fn the_first_thing_that_is_wrong_is_named() {
        let old = META.replace("2026-07-28", "2099-01-01");
        let incomplete = |outcome| matches!(outcome, Err(Objection::Incomplete(_)));
        assert!(incomplete(checked("", &[], None)));
        assert!(incomplete(checked(&META.replace("clientCapabilities", "x"), &[], None)));
        assert!(incomplete(checked(&META.replace(r#""2026-07-28""#, "5"), &[], None)));
        assert!(matches!(checked(&old, &[], Some("2099-01-01")), Err(Objection::HeaderMismatch(_))));
        let headers = [("mcp-method", "tools/call")];
        assert!(matches!(checked(&old, &headers, None), Err(Objection::HeaderMismatch(_))));
        assert!(matches!(checked(&old, &headers, Some("2026-07-28")), Err(Objection::HeaderMismatch(_))));
        let unsupported = Err(Objection::UnsupportedVersion("2099-01-01".into()));
        assert_eq!(checked(&old, &headers, Some("2099-01-01")), unsupported);
    }
}
