//! Messages that the gateway itself writes. Raw JSON parts are inserted unchanged; keys are in canonical order,
//! `jsonrpc` first and the id before the result, where every peer finds it quickly.

use bytes::Bytes;

use super::era::Version;
use super::meta;
use super::text::quote;

/// The client that a request names as its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientInfo<'a> {
    pub name: &'a str,
    pub version: &'a str,
}

impl ClientInfo<'_> {
    pub fn to_json(self) -> Vec<u8> {
        object(&[("name", &quote(self.name)), ("version", &quote(self.version))])
    }
}

/// Writes a JSON object of raw values.
pub fn object(members: &[(&str, &[u8])]) -> Vec<u8> {
    let size: usize = members.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
    let mut out = Vec::with_capacity(size + 2);
    out.push(b'{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(&quote(key));
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    out
}

pub fn request(id: u64, method: &str, params: Option<&[u8]>) -> Bytes {
    message(Some(id.to_string().as_bytes()), [("method", Some(&quote(method))), ("params", params)])
}

pub fn notice(method: &str, params: Option<&[u8]>) -> Bytes {
    message(None, [("method", Some(&quote(method))), ("params", params)])
}

pub fn result(id: &[u8], result: &[u8]) -> Bytes {
    message(Some(id), [("result", Some(result))])
}

/// Writes an error response. `id` is `None` if the id of the request could not be read; the response then has null.
pub fn error(id: Option<&[u8]>, code: impl Into<i64>, text: &str, data: Option<&[u8]>) -> Bytes {
    let (code, text) = (code.into().to_string(), quote(text));
    let mut members: Vec<(&str, &[u8])> = vec![("code", code.as_bytes()), ("message", &text)];
    members.extend(data.map(|data| ("data", data)));
    message(Some(id.unwrap_or(b"null")), [("error", Some(&object(&members)))])
}

/// Writes a request whose params are the given members.
pub fn call(id: u64, method: &str, params: &[(&str, &[u8])]) -> Bytes {
    request(id, method, Some(&object(params)))
}

pub fn initialize(id: u64, version: Version, client: ClientInfo<'_>, capabilities: &[u8]) -> Bytes {
    let members: [(&str, &[u8]); 3] = [
        ("protocolVersion", &quote(version.as_str())),
        ("capabilities", capabilities),
        ("clientInfo", &client.to_json()),
    ];
    call(id, "initialize", &members)
}

/// Writes a `server/discover` request; `meta` is the result of [`modern_meta`].
pub fn discover(id: u64, meta: &[u8]) -> Bytes {
    call(id, "server/discover", &[("_meta", meta)])
}

/// The `_meta` object that a modern server requires in every request.
pub fn modern_meta(
    version: Version,
    client: ClientInfo<'_>,
    capabilities: &[u8],
    progress_token: Option<u64>,
    log_level: Option<&str>,
) -> Vec<u8> {
    let (version, client) = (quote(version.as_str()), client.to_json());
    let (token, level) = (progress_token.map(|token| token.to_string()), log_level.map(quote));
    let mut members: Vec<(&str, &[u8])> = vec![
        (meta::PROTOCOL_VERSION, &version),
        (meta::CLIENT_INFO, &client),
        (meta::CLIENT_CAPABILITIES, capabilities),
    ];
    members.extend(level.as_deref().map(|level| (meta::LOG_LEVEL, level)));
    members.extend(token.as_ref().map(|token| (meta::PROGRESS_TOKEN, token.as_bytes())));
    object(&members)
}

fn message<const N: usize>(id: Option<&[u8]>, parts: [(&str, Option<&[u8]>); N]) -> Bytes {
    let mut members: Vec<(&str, &[u8])> = vec![("jsonrpc", br#""2.0""#)];
    members.extend(id.map(|id| ("id", id)));
    members.extend(parts.into_iter().filter_map(|(key, value)| Some((key, value?))));
    object(&members).into()
}

#[cfg(test)]
mod tests {
    use super::super::head::{Head, MessageKind};
    use super::*;

    const CLIENT: ClientInfo<'_> = ClientInfo { name: "a \"b\"", version: "1" };

    #[test]
    fn messages_have_canonical_order() {
        assert_eq!(request(1, "ping", None), r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        assert_eq!(notice("a/b", Some(b"{}")), r#"{"jsonrpc":"2.0","method":"a/b","params":{}}"#);
        assert_eq!(result(br#""x""#, b"{}"), r#"{"jsonrpc":"2.0","id":"x","result":{}}"#);
        assert_eq!(
            error(None, -32600, "no", Some(b"[]")),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no","data":[]}}"#
        );
    }

    #[test]
    fn what_we_write_we_can_read() {
        let hello = initialize(3, Version::LATEST_LEGACY, CLIENT, b"{}");
        let head = Head::parse(&hello).unwrap();
        assert_eq!((head.kind, head.declares_version()), (MessageKind::Request, false));

        let probe = discover(4, &modern_meta(Version::MODERN, CLIENT, b"{}", Some(9), Some("debug")));
        let head = Head::parse(&probe).unwrap();
        let meta = head.meta().unwrap();
        assert_eq!(meta.protocol_version.as_ref().unwrap().as_str(), "2026-07-28");
        assert_eq!(meta.progress_token.as_ref().unwrap().as_u64(), Some(9));
        assert_eq!(meta.log_level.as_ref().unwrap().as_str(), "debug");
        assert!(meta.client_capabilities.is_some() && meta.client_info.is_some());
    }
}
