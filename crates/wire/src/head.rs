//! The head of one JSON-RPC message: the envelope and the few parts of params that the gateway uses, read in one
//! borrowed pass that also checks that the whole body is JSON. Arguments are spans and are not parsed; of a result only
//! the top-level keys are read.

use std::borrow::Cow;

use super::head_error::HeadError;
use super::id::Id;
use super::keys::{Keys, known_keys};
use super::marks::Marks;
pub use super::params::{Meta, Params, Reference};
use super::scan::{Scan, Span};
use super::text;
pub use super::text::Text;
use super::walk;

const CALL: &str = "tools/call";

known_keys!(Key {
    Jsonrpc = "jsonrpc",
    Id = "id",
    Method = "method",
    Params = "params",
    Result = "result",
    Error = "error",
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    Request,
    Notice,
    Result,
    Error,
}

/// The head of a message. Requests and results have an `id`, requests and notices a `method`. `params: null` and
/// `error: null` count as absent, because libraries that write every field send them.
#[derive(Debug, Clone)]
pub struct Head<'a> {
    pub body: &'a [u8],
    /// The message's object, without the white space around it.
    pub span: Span,
    pub kind: MessageKind,
    pub id: Option<Id<'a>>,
    pub method: Option<Cow<'a, str>>,
    /// Boxed, since a head is moved often and most messages from servers have no params.
    pub params: Option<Box<Params<'a>>>,
    pub result: Option<Span>,
    pub error: Option<Span>,
    pub(super) marks: Marks,
}

impl<'a> Head<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Self, HeadError> {
        match Self::read(body, Scan::new(body)) {
            Err(HeadError::Invalid { reason, .. }) => {
                // Reading stopped early: the rest may be invalid JSON, or contain the id for the response.
                let span = walk::whole_of_any_depth(body)?;
                Err(HeadError::Invalid { reason, id: answerable_id(body, &span) })
            }
            other => other,
        }
    }

    /// Parses a message that the gateway wrote, which may be one of REST and nested deeper there.
    pub fn of_own(body: &'a [u8]) -> Result<Self, HeadError> {
        Self::read(body, Scan::unbounded(body))
    }

    /// Whether `params._meta` has a protocol version, with any value: that makes the request a modern one.
    pub fn declares_version(&self) -> bool {
        self.meta().is_some_and(|meta| meta.declares_version)
    }

    pub fn meta(&self) -> Option<&Meta<'a>> {
        self.params.as_ref()?.meta.as_ref()
    }

    /// The id of the task that a request or notice of revision 2025-11-25 is related to.
    pub fn related_task(&self) -> Option<Text<'a>> {
        let related = self.meta()?.related_task.as_ref()?;
        let span = walk::member(self.body, related, "taskId")?;
        Some(Text { value: text::unescape(&self.body[span.clone()])?, span })
    }

    pub(super) fn read(body: &'a [u8], mut scan: Scan<'a>) -> Result<Self, HeadError> {
        if scan.peek().is_some_and(|byte| byte != b'{') {
            return Err(HeadError::invalid("a message must be a JSON object"));
        }
        let mut envelope = Envelope::default();
        let mut keys = Keys::new();
        let start = scan.enter()?;
        while let Some(key) = scan.key()? {
            envelope.take(&mut scan, keys.read(body, key)?)?;
        }
        let span = start..scan.position();
        scan.finish()?;
        envelope.into_head(body, span)
    }
}

/// The members of the envelope as read, before they are checked together.
#[derive(Default)]
struct Envelope<'a> {
    versioned: bool,
    id: Option<Span>,
    method: Option<Cow<'a, str>>,
    params: Option<Box<Params<'a>>>,
    result: Option<Span>,
    error: Option<Span>,
    marks: Marks,
}

impl<'a> Envelope<'a> {
    fn take(&mut self, scan: &mut Scan<'a>, key: Option<Key>) -> Result<(), HeadError> {
        let next = scan.peek();
        match key {
            Some(Key::Params) if next == Some(b'{') => return self.params.insert(Box::default()).read(scan),
            Some(Key::Result) if next == Some(b'{') => {
                let (result, marks) = Marks::read(scan)?;
                (self.result, self.marks) = (Some(result), marks);
                return Ok(());
            }
            _ => {}
        }
        let span = scan.value()?;
        let raw = &scan.body[span.clone()];
        match key {
            Some(Key::Jsonrpc) => self.versioned = text::is_string(raw, "2.0"),
            Some(Key::Id) => self.id = Some(span),
            // Most requests are calls.
            Some(Key::Method) if text::is_plainly(raw, CALL) => self.method = Some(Cow::Borrowed(CALL)),
            Some(Key::Method) => {
                let method =
                    text::unescape(raw).ok_or_else(|| HeadError::invalid("method must be a string"))?;
                self.method = Some(method);
            }
            Some(Key::Params) if raw != b"null" => {
                return Err(HeadError::invalid("params must be an object"));
            }
            Some(Key::Result) => self.result = Some(span),
            Some(Key::Error) if raw.starts_with(b"{") => self.error = Some(span),
            Some(Key::Error) if raw != b"null" => return Err(HeadError::invalid("error must be an object")),
            Some(Key::Params | Key::Error) | None => {}
        }
        Ok(())
    }

    fn into_head(mut self, body: &'a [u8], span: Span) -> Result<Head<'a>, HeadError> {
        if !self.versioned {
            return Err(HeadError::invalid("jsonrpc must be \"2.0\""));
        }
        if self.error.is_some() && self.result.as_ref().is_some_and(|span| &body[span.clone()] == b"null") {
            self.result = None;
        }
        let kind = match (&self.method, &self.result, &self.error) {
            (Some(_), None, None) if self.id.is_some() => MessageKind::Request,
            (Some(_), None, None) => MessageKind::Notice,
            (None, Some(_), None) => MessageKind::Result,
            (None, None, Some(_)) => MessageKind::Error,
            (None, None, None) => {
                return Err(HeadError::invalid("none of method, result and error is present"));
            }
            (..) => return Err(HeadError::invalid("only one of method, result and error may be present")),
        };
        let id = match self.id {
            Some(span) if kind == MessageKind::Error && &body[span.clone()] == b"null" => None,
            Some(span) => Some(
                Id::at(body, span)
                    .filter(Id::is_request_id)
                    .ok_or_else(|| HeadError::invalid("id must be a string or an integer"))?,
            ),
            None => None,
        };
        if kind == MessageKind::Result && id.is_none() {
            return Err(HeadError::invalid("a result needs an id"));
        }
        let Self { method, params, result, error, marks, .. } = self;
        Ok(Head { body, span, kind, id, method, params, result, error, marks })
    }
}

/// The id for the response to an invalid message, if it is the only one.
fn answerable_id(body: &[u8], span: &Span) -> Option<Vec<u8>> {
    let mut ids = walk::members(body, span).filter(|(key, ..)| key == "id").map(|(.., value)| value);
    let id = Id::at(body, ids.next()?).filter(Id::is_request_id)?;
    ids.next().is_none().then(|| id.raw().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> (String, Option<String>) {
        match Head::parse(body.as_bytes()) {
            Err(HeadError::Invalid { reason, id }) => (reason, id.map(|id| String::from_utf8(id).unwrap())),
            other => panic!("{body}: {other:?}"),
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        for (body, kind) in [
            (r#" {"jsonrpc":"2.0","id":1,"method":"ping"} "#, MessageKind::Request),
            (r#"{"jsonrpc":"2.0","method":"ping","params":null}"#, MessageKind::Notice),
            (r#"{"jsonrpc":"2.0","id":"a","result":{},"error":null}"#, MessageKind::Result),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#, MessageKind::Error),
            (r#"{"jsonrpc":"2.0","id":4,"result":null,"error":{"code":1}}"#, MessageKind::Error),
        ] {
            let head = Head::parse(body.as_bytes()).unwrap();
            assert_eq!(head.kind, kind, "{body}");
            assert_eq!(&body[head.span], body.trim());
        }
    }

    #[test]
    fn the_parts_that_matter_are_read() {
        let body = br#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"completion/complete","params":{"x":{"name":1},
            "ref":{"type":"ref/prompt","name":"p"},"n\u0061me":"s__\u0074","arguments":{"Name":1,"a":2,"a":3},
            "cursor":null,"level":3,"_meta":{"progressToken":"t",
            "io.modelcontextprotocol/protocolVersion":5,"io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        let head = Head::parse(body).unwrap();
        let params = head.params.as_ref().unwrap();
        let name = params.name.as_ref().unwrap();
        assert_eq!((name.as_str(), &body[name.span.clone()]), ("s__t", &br#""s__\u0074""#[..]));
        assert_eq!(params.reference.as_ref().unwrap().name.as_ref().unwrap().as_str(), "p");
        assert_eq!(&body[params.arguments.clone().unwrap()], br#"{"Name":1,"a":2,"a":3}"#);
        assert_eq!(params.mistyped, ["level", crate::meta::PROTOCOL_VERSION]);
        let meta = head.meta().unwrap();
        assert_eq!(meta.progress_token.as_ref().unwrap().raw(), br#""t""#);
        assert!(head.declares_version() && meta.protocol_version.is_none());
        assert!(meta.client_capabilities.is_some());
    }

    #[test]
    fn keys_that_others_might_read_differently_are_refused() {
        for part in [
            r#""Method":"x""#,
            r#""\u006dethod":"x""#,
            r#""params":{},"params":{}"#,
            r#""params":{"Name":"x"}"#,
            r#""params":{"name":"x","n\u0061me":"y"}"#,
            r#""params":{"a":1,"a":2}"#,
            r#""params":{"_meta":{"ProgressToken":1}}"#,
            r#""params":{"ref":{"name":"a","NAME":"b"}}"#,
            r#""params":{"\ud800":1}"#,
        ] {
            let (_, id) = refusal(&format!(r#"{{"jsonrpc":"2.0","method":"m",{part},"id":7}}"#));
            assert_eq!(id.as_deref(), Some("7"), "{part}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (body, why) in [
            ("[]", "a JSON object"),
            ("{}", "jsonrpc"),
            (r#"{"jsonrpc":"1.0","method":"x"}"#, "jsonrpc"),
            (r#"{"jsonrpc":[2.0],"method":"x"}"#, "jsonrpc"),
            (r#"{"jsonrpc":12.05,"method":"x"}"#, "jsonrpc"),
            (r#"{"jsonrpc":-2.01,"method":"x"}"#, "jsonrpc"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "none of"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#, "only one"),
            (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#, "only one"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, "id must be"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, "id must be"),
            (r#"{"jsonrpc":"2.0","result":1}"#, "needs an id"),
            (r#"{"jsonrpc":"2.0","method":"x","params":[1]}"#, "params must be"),
            (r#"{"jsonrpc":"2.0","method":5}"#, "method must be"),
            (r#"{"jsonrpc":"2.0","id":1,"error":"x"}"#, "error must be"),
        ] {
            assert!(refusal(body).0.contains(why), "{body}");
        }
    }

    #[test]
    fn a_message_that_is_too_deep_is_invalid_and_keeps_its_id() {
        let message = |levels: usize, end: &str| {
            let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"a":{nested}}},"id":7{end}"#)
        };
        assert!(Head::parse(message(998, "}").as_bytes()).is_ok());
        assert!(Head::of_own(message(1200, "}").as_bytes()).is_ok());
        for levels in [999, 100_000] {
            let (reason, id) = refusal(&message(levels, "}"));
            assert!(reason.contains("1,000 levels"), "{reason}");
            assert_eq!(id.as_deref(), Some("7"));
            assert_eq!(Head::parse(message(levels, "").as_bytes()).unwrap_err().code(), -32700);
        }
    }

    #[test]
    fn broken_json_is_a_syntax_error_even_behind_an_invalid_part() {
        for body in [
            "",
            "{",
            r#"{"jsonrpc":"2.0","method":"a","method":"b""#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x"}}"#,
        ] {
            let error = Head::parse(body.as_bytes()).unwrap_err();
            assert_eq!(error.code(), -32700, "{body}: {error}");
        }
    }
}
