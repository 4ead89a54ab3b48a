//! A response of a server, read once: checked to be one complete message, with the positions of the parts that the
//! gateway uses. Everything else in it is passed on as bytes.

use bytes::Bytes;

use super::error::RpcError;
use super::head::{Head, MessageKind};
use super::head_error::HeadError;
use super::id::Id;
use super::marks::Marks;
use super::scan::{Scan, Span};

/// A JSON-RPC response: one JSON object with a result, which is an object, or an error.
#[derive(Debug, Clone)]
pub struct Response {
    message: Bytes,
    id: Option<Span>,
    body: Payload,
}

#[derive(Debug, Clone)]
enum Payload {
    Result(Span, Marks),
    Error(Span),
}

impl Response {
    pub fn read(message: Bytes) -> Result<Self, HeadError> {
        let head = Head::read(&message, Scan::new(&message))?;
        let body = match (head.kind, head.result, head.error) {
            (MessageKind::Result, Some(result), _) if message[result.start] == b'{' => {
                Payload::Result(result, head.marks)
            }
            (MessageKind::Result, ..) => return Err(HeadError::invalid("result must be an object")),
            (MessageKind::Error, _, Some(error)) => Payload::Error(error),
            (MessageKind::Error | MessageKind::Request | MessageKind::Notice, ..) => {
                return Err(HeadError::invalid("it is not a response"));
            }
        };
        let id = head.id.map(|id| id.span);
        Ok(Self { message, id, body })
    }

    pub fn message(&self) -> &Bytes {
        &self.message
    }

    /// The id; `None` for an error without one.
    pub fn id(&self) -> Option<Id<'_>> {
        Id::at(&self.message, self.id.clone()?)
    }

    pub fn result(&self) -> Option<&[u8]> {
        Some(&self.message[self.result_span()?.clone()])
    }

    pub fn result_span(&self) -> Option<&Span> {
        match &self.body {
            Payload::Result(result, _) => Some(result),
            Payload::Error(_) => None,
        }
    }

    /// The error; `None` for a result, and for an error without an integer code.
    pub fn error(&self) -> Option<RpcError<'_>> {
        RpcError::parse(&self.message[self.error_span()?.clone()])
    }

    pub fn error_span(&self) -> Option<&Span> {
        match &self.body {
            Payload::Result(..) => None,
            Payload::Error(error) => Some(error),
        }
    }

    /// Whether the result reports that a tool failed.
    pub fn is_tool_error(&self) -> bool {
        self.mark(|marks| marks.is_error.as_ref()) == Some(b"true")
    }

    /// The `resultType` of the result, as the server wrote it.
    pub fn result_type(&self) -> Option<&[u8]> {
        self.mark(|marks| marks.result_type.as_ref())
    }

    /// Whether a modern server requests input before it can respond.
    pub fn asks_for_input(&self) -> bool {
        self.result_type() == Some(br#""input_required""#)
    }

    /// Whether a modern server runs the request as a task and will have its result later.
    pub fn is_task(&self) -> bool {
        self.result_type() == Some(br#""task""#)
    }

    fn mark(&self, pick: impl Fn(&Marks) -> Option<&Span>) -> Option<&[u8]> {
        match &self.body {
            Payload::Result(_, marks) => pick(marks).map(|span| &self.message[span.clone()]),
            Payload::Error(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &str) -> Result<Response, HeadError> {
        Response::read(Bytes::copy_from_slice(message.as_bytes()))
    }

    #[test]
    fn only_whole_responses_are_read() {
        assert!(read(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).is_ok());
        assert!(read(r#" {"error":{"code":1},"result":null,"id":null,"jsonrpc":"2.0"} "#).is_ok());
        for broken in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}0"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"id":2}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        ] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_result_is_found_wherever_it_stands() {
        for message in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#,
            r#"{"result": {"a":1},"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","x":{"result":5},"result":{"a":1},"id":1}"#,
        ] {
            let response = read(message).unwrap();
            assert_eq!(response.result().unwrap(), br#"{"a":1}"#);
            assert_eq!(response.id().unwrap().raw(), b"1");
        }
        let error = read(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"data":{"result":{}}}}"#).unwrap();
        assert!(error.result().is_none() && error.error_span().is_some());
    }

    #[test]
    fn only_the_top_level_of_a_result_marks_it() {
        let result =
            |result: &str| read(&format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)).unwrap();
        assert!(result(r#"{"content":[],"isError":true}"#).is_tool_error());
        assert!(result(r#"{"is\u0045rror" : true}"#).is_tool_error());
        assert!(!result(r#"{"isError":false,"isError":true}"#).is_tool_error());
        assert!(!result(r#"{"x":{"isError":true,"resultType":"input_required"}}"#).is_tool_error());
        assert!(result(r#"{"resultType":"input_required"}"#).asks_for_input());
        assert_eq!(result(r#"{"x":{"resultType":1}}"#).result_type(), None);
    }
}
