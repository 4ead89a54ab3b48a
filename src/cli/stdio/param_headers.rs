//! The headers of messages of revision 2026-07-28, which repeat parts of the body. Clients on standard input do not send
//! them, so they are made from the message; which arguments of a tool they repeat is in its schema.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use wire::error::code;
use wire::headers::{self, HeaderParam, METHOD, NAME, PROTOCOL_VERSION, RoutingValues};
use wire::{Head, RpcError, authored, text, walk};

/// The arguments that headers repeat, by the name of the tool.
#[derive(Default)]
pub struct ParamHeaders(Mutex<HashMap<String, Vec<HeaderParam>>>);

impl ParamHeaders {
    /// Returns the headers of a message.
    pub fn of(&self, head: &Head<'_>) -> HeaderMap {
        let mut map = HeaderMap::new();
        let mut add = |name: &str, value: &str| {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                map.insert(name, value);
            }
        };
        if let Some(version) = head.meta().and_then(|meta| meta.protocol_version.as_ref()) {
            add(PROTOCOL_VERSION, &version.value);
        }
        let values = RoutingValues::of(head);
        let (method, name) = values.encoded();
        add(METHOD, &method);
        if let Some(name) = name {
            add(NAME, &name);
        }
        if let Some(params) = head.params.as_ref().filter(|_| head.method.as_deref() == Some("tools/call"))
            && let Some(wanted) = params.name.as_ref().and_then(|name| self.wanted(&name.value))
        {
            for (name, value) in headers::param_headers(head.body, params.arguments.as_ref(), &wanted) {
                add(&name, &value);
            }
        }
        map
    }

    /// Learns from the answer to `tools/list` which arguments headers repeat.
    pub fn learn(&self, answer: &[u8]) {
        let result = Head::parse(answer).ok().and_then(|head| head.result);
        let Some(tools) = result.and_then(|result| walk::member(answer, &result, "tools")) else { return };
        let mut learned = HashMap::new();
        for tool in walk::elements(answer, &tools) {
            let name = walk::member(answer, &tool, "name").and_then(|name| text::unescape(&answer[name]));
            let schema = walk::member(answer, &tool, "inputSchema");
            let params = schema.and_then(|schema| HeaderParam::from_schema(&answer[schema]).ok());
            if let (Some(name), Some(params)) = (name, params.filter(|params| !params.is_empty())) {
                learned.insert(name.into_owned(), params);
            }
        }
        *self.lock() = learned;
    }

    fn wanted(&self, tool: &str) -> Option<Vec<HeaderParam>> {
        self.lock().get(tool).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<HeaderParam>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the request for the tools as the client of a call sees them.
pub fn list_request(call: &Head<'_>) -> Option<Bytes> {
    let meta = call.meta()?.span.clone();
    Some(authored::call(0, "tools/list", &[("_meta", &call.body[meta])]))
}

/// Tells whether the gateway refused a message because of its headers. It did not run the message then.
pub fn is_header_mismatch(answer: &[u8]) -> bool {
    let error = Head::parse(answer).ok().and_then(|head| head.error);
    error
        .and_then(|error| RpcError::parse(&answer[error]))
        .is_some_and(|error| error.is(code::HEADER_MISMATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_repeat_the_arguments_that_the_schema_names() {
        let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","arguments":{"region":"eu"},
            "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let head = Head::parse(call).unwrap();
        let known = ParamHeaders::default();
        let headers = known.of(&head);
        assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
        assert_eq!(
            (&headers["mcp-method"], &headers["mcp-name"]),
            (&"tools/call".parse().unwrap(), &"deploy".parse().unwrap())
        );
        assert!(!headers.contains_key("mcp-param-region"));
        known.learn(
            br#"{"jsonrpc":"2.0","id":0,"result":{"tools":[{"name":"deploy","inputSchema":{"type":"object",
            "properties":{"region":{"type":"string","x-mcp-header":"Region"}}}},{"name":"plain","inputSchema":{}}]}}"#,
        );
        assert_eq!(known.of(&head)["mcp-param-region"], "eu");
        let asked = list_request(&head).unwrap();
        assert!(Head::parse(&asked).unwrap().declares_version());
    }
}
