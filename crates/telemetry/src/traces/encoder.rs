//! Writes spans as the protobuf message `ExportTraceServiceRequest` of OTLP. The message is small and stable, so it is
//! written by hand: the numbers below are those of the fields in `opentelemetry/proto/trace/v1/trace.proto` and the files
//! that it imports. A field with its default value is left out.

use super::context::TraceContext;
use super::span::{AttributeValue, FinishedSpan, SpanKind};

/// The scope of all spans: the program that makes them.
const SCOPE: &str = "toolgate";

/// The bits of `Span.flags` above those of the trace: whether the span says if its parent is remote, and if it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The value of `Status.code` for a span that failed.
const ERROR: u64 = 2;

/// A request with these spans of one resource.
pub fn encode(resource: &[(String, String)], version: &str, spans: &[FinishedSpan]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |written| {
            resource.iter().for_each(|(key, value)| written.attribute(1, key, &value.as_str().into()));
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.text(1, SCOPE);
                scope.text(2, version);
            });
            spans.iter().for_each(|span| scope_spans.message(2, |written| write_span(written, span)));
        });
    });
    request.0
}

fn write_span(written: &mut Message, span: &FinishedSpan) {
    write_ids(written, &span.context, span.state.as_deref());
    if let Some(parent) = span.parent {
        written.bytes(4, &parent.0.get().to_be_bytes());
    }
    written.text(5, &span.name);
    written.number(
        6,
        match span.kind {
            SpanKind::Server => 2,
            SpanKind::Client => 3,
        },
    );
    written.fixed64(7, span.begun_ns);
    written.fixed64(8, span.ended_ns);
    span.attributes.iter().for_each(|(key, value)| written.attribute(9, key, value));
    if let Some(link) = &span.link {
        written.message(13, |written| {
            write_ids(written, link, None);
            written.fixed32(6, u32::from(link.flags()) | HAS_IS_REMOTE | IS_REMOTE);
        });
    }
    if span.is_error {
        written.message(15, |status| status.number(3, ERROR));
    }
    let remote = if span.is_parent_remote { IS_REMOTE } else { 0 };
    written.fixed32(16, u32::from(span.context.flags()) | HAS_IS_REMOTE | remote);
}

/// The fields that spans and links have in common.
fn write_ids(written: &mut Message, context: &TraceContext, state: Option<&str>) {
    written.bytes(1, &context.trace.0.get().to_be_bytes());
    written.bytes(2, &context.span.0.get().to_be_bytes());
    written.text(3, state.unwrap_or_default());
}

/// A protobuf message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

/// How a field is written.
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
    Fixed32 = 5,
}

impl Message {
    fn tag(&mut self, field: u64, wire_type: WireType) {
        self.varint(field << 3 | wire_type as u64);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.tag(field, WireType::Varint);
        self.varint(value);
    }

    fn fixed64(&mut self, field: u64, value: u64) {
        self.tag(field, WireType::Fixed64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, value: u32) {
        self.tag(field, WireType::Fixed32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.tag(field, WireType::Length);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, field: u64, value: &str) {
        if !value.is_empty() {
            self.bytes(field, value.as_bytes());
        }
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attribute(&mut self, field: u64, key: &str, value: &AttributeValue) {
        self.message(field, |attribute| {
            attribute.text(1, key);
            // A value that is empty text is written nevertheless: without it there would be no value.
            attribute.message(2, |written| match value {
                AttributeValue::Text(text) => written.bytes(1, text.as_bytes()),
                AttributeValue::Number(number) => written.number(3, *number as u64),
            });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACEPARENT: &str = "00-000102030405060708090a0b0c0d0e0f-1011121314151617-01";

    /// The bytes of a text in which each part is hexadecimal digits, or characters in quotes.
    fn bytes(text: &str) -> Vec<u8> {
        let mut written = Vec::new();
        for part in text.split_whitespace() {
            match part.strip_prefix('"') {
                Some(quoted) => written.extend_from_slice(quoted.trim_end_matches('"').as_bytes()),
                None => written.extend(
                    (0..part.len()).step_by(2).map(|at| u8::from_str_radix(&part[at..at + 2], 16).unwrap()),
                ),
            }
        }
        written
    }

    fn span() -> FinishedSpan {
        let context = TraceContext::parse(TRACEPARENT).unwrap();
        FinishedSpan {
            context,
            parent: None,
            is_parent_remote: false,
            state: None,
            link: None,
            kind: SpanKind::Client,
            name: "a".into(),
            begun_ns: 1,
            ended_ns: 0x0102_0304_0506_0708,
            attributes: Vec::new(),
            is_error: false,
        }
    }

    #[test]
    fn the_smallest_span_has_exactly_these_bytes() {
        let written = encode(&[], "1", &[span()]);
        let expected = "0a 4e \
            0a 00 \
            12 4a \
              0a 0d  0a 08 \"toolgate\" 12 01 \"1\" \
              12 39 \
                0a 10 000102030405060708090a0b0c0d0e0f \
                12 08 1011121314151617 \
                2a 01 \"a\" \
                30 03 \
                39 0100000000000000 \
                41 0807060504030201 \
                8501 01010000";
        assert_eq!(written, bytes(expected), "{written:02x?}");
    }

    #[test]
    fn a_span_with_everything_has_exactly_these_bytes() {
        let span = FinishedSpan {
            parent: Some(TraceContext::parse(TRACEPARENT).unwrap().span),
            is_parent_remote: true,
            state: Some("a=b".into()),
            link: TraceContext::parse(TRACEPARENT),
            kind: SpanKind::Server,
            attributes: vec![("k", "v".into()), ("n", 300.into()), ("m", (-1).into()), ("e", "".into())],
            is_error: true,
            ..span()
        };
        let mut written = Message::default();
        write_span(&mut written, &span);
        let expected = "0a 10 000102030405060708090a0b0c0d0e0f \
            12 08 1011121314151617 \
            1a 03 \"a=b\" \
            22 08 1011121314151617 \
            2a 01 \"a\" \
            30 02 \
            39 0100000000000000 \
            41 0807060504030201 \
            4a 08 0a01 \"k\" 12 03 0a01 \"v\" \
            4a 08 0a01 \"n\" 12 03 18 ac02 \
            4a 10 0a01 \"m\" 12 0b 18 ffffffffffffffffff01 \
            4a 07 0a01 \"e\" 12 02 0a00 \
            6a 21 0a 10 000102030405060708090a0b0c0d0e0f 12 08 1011121314151617 35 01030000 \
            7a 02 18 02 \
            8501 01030000";
        assert_eq!(written.0, bytes(expected), "{:02x?}", written.0);
    }

    #[test]
    fn a_resource_comes_before_its_spans() {
        let written = encode(&[("service.name".into(), "x".into())], "", &[]);
        let expected = "0a 25 \
            0a 15  0a 13 0a 0c \"service.name\" 12 03 0a 01 \"x\" \
            12 0c  0a 0a 0a 08 \"toolgate\"";
        assert_eq!(written, bytes(expected), "{written:02x?}");
    }
}
