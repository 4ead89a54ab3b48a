//! HTTP headers of MCP: their names, and the values that modern requests repeat from their body so that proxies can
//! route by them. Reads bodies and schemas, and writes values; sends nothing.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::BufMut;

use super::head::Head;
use super::scan::Span;
use super::text::{self, Text};
use super::walk;

pub const SESSION_ID: &str = "mcp-session-id";
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
pub const METHOD: &str = "mcp-method";
pub const NAME: &str = "mcp-name";
pub const PARAM_PREFIX: &str = "mcp-param-";
pub const LAST_EVENT_ID: &str = "last-event-id";

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// An argument of a tool that is also sent as a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderParam {
    /// The whole header name, in lower case: `mcp-param-region`.
    pub header: String,
    /// Keys from the arguments down to the value.
    pub path: Vec<String>,
}

/// What the routing headers of a modern request repeat from its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingValues<'a> {
    pub method: &'a str,
    /// The name, URI or task that the request is about, if it is about one.
    pub name: Option<Cow<'a, str>>,
}

impl<'a> RoutingValues<'a> {
    pub fn of(head: &'a Head<'_>) -> Self {
        Self { method: head.method.as_deref().unwrap_or_default(), name: routed_name(head) }
    }

    /// The header values of `Mcp-Method` and, where the method has one, `Mcp-Name`, ready to be sent.
    pub fn encoded(&self) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
        (encode_value(self.method), self.name.as_deref().map(encode_value))
    }
}

/// Encodes `value` for a header: wraps it in base64 if it would not arrive unchanged.
pub fn encode_value(value: &str) -> Cow<'_, str> {
    let altered = value.starts_with(' ')
        || value.ends_with(' ')
        || value.starts_with(SENTINEL_START) && value.ends_with(SENTINEL_END)
        || value.bytes().any(|byte| !(0x20..=0x7e).contains(&byte));
    match altered {
        true => Cow::Owned(format!("{SENTINEL_START}{}{SENTINEL_END}", BASE64.encode(value))),
        false => Cow::Borrowed(value),
    }
}

/// Reverses [`encode_value`]; `None` if the wrapped text is not base64 of UTF-8.
pub fn decode_value(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix(SENTINEL_START).and_then(|rest| rest.strip_suffix(SENTINEL_END)) {
        Some(wrapped) => String::from_utf8(BASE64.decode(wrapped).ok()?).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(value)),
    }
}

/// The decoded value that `Mcp-Name` must have: the name, URI or task that the request is about.
pub fn routed_name<'a>(head: &'a Head<'_>) -> Option<Cow<'a, str>> {
    routed_text(head).map(|text| Cow::Borrowed(text.as_str()))
}

/// Where the body has the value of `Mcp-Name`.
pub fn routed_text<'a, 'b>(head: &'a Head<'b>) -> Option<&'a Text<'b>> {
    let params = head.params.as_ref()?;
    match head.method.as_deref()? {
        "tools/call" | "prompts/get" => params.name.as_ref(),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => params.uri.as_ref(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.task_id.as_ref(),
        _ => None,
    }
}

/// The `Mcp-Param-*` headers (name, value ready to be sent) of a call with these arguments. An argument that is absent,
/// null, an object or an array has none.
pub fn param_headers(body: &[u8], arguments: Option<&Span>, params: &[HeaderParam]) -> Vec<(String, String)> {
    let header = |param: &HeaderParam| {
        Some((param.header.clone(), encode_value(&param_value(body, arguments, param)?).into_owned()))
    };
    params.iter().filter_map(header).collect()
}

/// The decoded value that the header of an argument must have.
pub fn param_value<'a>(
    body: &'a [u8],
    arguments: Option<&Span>,
    param: &HeaderParam,
) -> Option<Cow<'a, str>> {
    let walk = |object: Span, key: &String| walk::member(body, &object, key);
    plain_value(&body[param.path.iter().try_fold(arguments?.clone(), walk)?])
}

/// The text of a scalar. Numbers keep their spelling: another form might be read as a different number.
fn plain_value(raw: &[u8]) -> Option<Cow<'_, str>> {
    match raw.first()? {
        b'"' => text::unescape(raw),
        b'{' | b'[' | b'n' => None,
        _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
    }
}

/// Adds a number as text, such as the value of a Content-Length.
pub fn put_number(lines: &mut impl BufMut, mut number: usize) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    lines.put_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_would_not_arrive_are_wrapped() {
        for plain in ["us-west1", "a b c", "", "42"] {
            assert_eq!(encode_value(plain), plain);
        }
        for odd in ["café", " padded", "tab\t", "a\r\nEvil: 1", "=?base64?eA==?=", "\u{7f}"] {
            let encoded = encode_value(odd);
            assert!(encoded.starts_with(SENTINEL_START), "{odd:?}");
            assert_eq!(decode_value(&encoded).as_deref(), Some(odd));
        }
        assert_eq!(decode_value("=?base64?!!?="), None);
    }

    #[test]
    fn numbers_are_written_as_text() {
        for number in [0, 7, 10, 65_536, usize::MAX] {
            let mut lines = Vec::new();
            put_number(&mut lines, number);
            assert_eq!(lines, number.to_string().into_bytes());
        }
    }

    #[test]
    fn headers_come_from_the_body() {
        let body =
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"caf\u00e9","arguments":
            {"at":{"region":"eu"},"n":10,"flag":true,"none":null,"list":[1]}}}"#;
        let head = Head::parse(body).unwrap();
        let values = RoutingValues::of(&head);
        assert_eq!(values.encoded(), ("tools/call".into(), Some("=?base64?Y2Fmw6k=?=".into())));
        let param = |path: &[&str]| HeaderParam {
            header: format!("mcp-param-{}", path[0]),
            path: path.iter().map(|key| (*key).to_owned()).collect(),
        };
        let params = [&["at", "region"][..], &["n"], &["flag"], &["none"], &["list"], &["gone"], &["n", "x"]]
            .map(param);
        let arguments = head.params.as_ref().unwrap().arguments.as_ref();
        let sent = param_headers(body, arguments, &params);
        let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(sent, [("mcp-param-at", "eu"), ("mcp-param-n", "10"), ("mcp-param-flag", "true")]);
    }

    #[test]
    fn only_methods_about_one_thing_have_a_name() {
        let name = |method: &str| {
            let params = r#"{"name":"n","uri":"u","taskId":"t"}"#;
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            routed_name(&Head::parse(body.as_bytes()).unwrap()).map(Cow::into_owned)
        };
        assert_eq!(name("prompts/get").as_deref(), Some("n"));
        assert_eq!(name("resources/read").as_deref(), Some("u"));
        assert_eq!(name("tasks/get").as_deref(), Some("t"));
        assert_eq!(name("tools/list"), None);
    }
}
