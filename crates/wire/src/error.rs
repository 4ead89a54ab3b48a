//! JSON-RPC error codes by name, and a parser for the error objects of peers that keeps their data.

use std::borrow::Cow;

use super::text;
use super::walk;

/// The error codes that the protocol defines.
pub mod code {
    pub const PARSE_ERROR: i32 = -32700;
    pub const INVALID_REQUEST: i32 = -32600;
    pub const METHOD_NOT_FOUND: i32 = -32601;
    pub const INVALID_PARAMS: i32 = -32602;
    pub const INTERNAL_ERROR: i32 = -32603;
    /// Of this gateway: a limit on calls was reached.
    pub const TOO_MANY_CALLS: i32 = 429;
    /// Legacy only; modern revisions use `INVALID_PARAMS`.
    pub const RESOURCE_NOT_FOUND: i32 = -32002;
    pub const HEADER_MISMATCH: i32 = -32020;
    pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
    pub const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;
    /// Legacy only: the client must open a URL first.
    pub const URL_ELICITATION_REQUIRED: i32 = -32042;
}

/// The `error` member of a response; `data` is its raw JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError<'a> {
    pub code: i64,
    pub message: Cow<'a, str>,
    pub data: Option<&'a [u8]>,
}

impl<'a> RpcError<'a> {
    /// Parses an error object; `None` if `value` is not an object with an integer `code`. A missing message reads as
    /// empty.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let span = walk::whole(value).ok()?;
        let (mut code, mut message, mut data) = (None, Cow::Borrowed(""), None);
        for (key, _, part) in walk::members(value, &span) {
            let raw = &value[part];
            match key.as_ref() {
                "code" => code = std::str::from_utf8(raw).ok().and_then(|raw| raw.parse().ok()),
                "message" => message = text::unescape_lossy(raw),
                "data" => data = Some(raw),
                _ => {}
            }
        }
        Some(Self { code: code?, message, data })
    }

    pub fn is(&self, code: i32) -> bool {
        self.code == i64::from(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_data_as_sent() {
        let error =
            RpcError::parse(br#" {"code":-32002, "message":"no \"x\"","data":{"n":1.0}, "y":1}"#).unwrap();
        assert!(error.is(code::RESOURCE_NOT_FOUND));
        assert_eq!((error.message.as_ref(), error.data), ("no \"x\"", Some(&br#"{"n":1.0}"#[..])));
        assert_eq!(RpcError::parse(br#"{"message":"x"}"#), None);
        assert_eq!(RpcError::parse(b"[1"), None);
    }
}
