//! The trace that a request belongs to, as W3C Trace Context writes it in `traceparent` and `tracestate`.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

/// The longest `tracestate` that is passed on. The standard requires 512 characters.
const LONGEST_STATE: usize = 4096;
/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// The flag of a trace that is exported.
const SAMPLED: u8 = 1;
/// The flag of a trace whose id is random. Whoever continues the trace passes it on.
const RANDOM: u8 = 2;

/// The id of a trace; it shows as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub NonZeroU128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The id of a span; it shows as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub NonZeroU64);

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A span and the trace that it belongs to. It shows as a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    flags: u8,
}

impl TraceContext {
    pub fn new(trace: TraceId, span: SpanId, is_sampled: bool) -> Self {
        Self { trace, span, flags: if is_sampled { SAMPLED } else { 0 } }
    }

    /// Reads a `traceparent`. One that is malformed counts as none; later versions may have more after the flags.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let bytes = traceparent.as_bytes();
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let has_form = bytes.len() >= LENGTH
            && bytes[..LENGTH].iter().enumerate().all(|(at, byte)| match at {
                2 | 35 | 52 => *byte == b'-',
                _ => is_hex(byte),
            });
        if !has_form {
            return None;
        }
        let is_complete = match &traceparent[..2] {
            "ff" => false,
            "00" => bytes.len() == LENGTH,
            _ => bytes.get(LENGTH).is_none_or(|next| *next == b'-'),
        };
        let trace = u128::from_str_radix(&traceparent[3..35], 16).ok().and_then(NonZeroU128::new)?;
        let span = u64::from_str_radix(&traceparent[36..52], 16).ok().and_then(NonZeroU64::new)?;
        let flags = u8::from_str_radix(&traceparent[53..LENGTH], 16).ok()?;
        is_complete.then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            flags: flags & (SAMPLED | RANDOM),
        })
    }

    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Another span of the same trace.
    pub fn with_span(&self, span: SpanId) -> Self {
        Self { span, ..*self }
    }

    pub fn with_sampled(&self, is_sampled: bool) -> Self {
        let sampled = if is_sampled { SAMPLED } else { 0 };
        Self { flags: self.flags & !SAMPLED | sampled, ..*self }
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// Reads a `tracestate`. One that cannot be passed on counts as none.
pub fn read_trace_state(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_readable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    let has_form = text.len() <= LONGEST_STATE && text.bytes().all(is_readable);
    (has_form && text.contains('=')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_traceparent_is_read_and_written_as_it_is() {
        let context = TraceContext::parse(VALID).unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), VALID);
        let unsampled = context.with_sampled(false);
        assert_eq!(unsampled.to_string(), VALID.replace("-01", "-00"));
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn unknown_flags_are_left_out_and_later_versions_are_read() {
        let flags = |text: &str| TraceContext::parse(text).unwrap().flags();
        assert_eq!(flags(&VALID.replace("-01", "-ff")), 3);
        assert_eq!(flags(&VALID.replace("-01", "-02")), 2);
        let later = format!("cc{}-what-will-be", &VALID[2..]);
        assert_eq!(TraceContext::parse(&later).unwrap().to_string(), VALID);
        assert!(TraceContext::parse(&format!("cc{}.more", &VALID[2..])).is_none());
    }

    #[test]
    fn a_malformed_traceparent_counts_as_none() {
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn no_input_is_read_wrongly() {
        // Every text that differs in one character is either malformed or means what it says; nothing panics.
        for at in 0..VALID.len() {
            for other in ["0", "f", "F", "-", "g", " ", "\u{e9}", "\u{1f600}", ""] {
                let text = format!("{}{other}{}", &VALID[..at], &VALID[at + 1..]);
                if let Some(context) = TraceContext::parse(&text) {
                    assert_eq!(context.to_string()[3..52], text[3..52], "{text}");
                }
            }
        }
    }

    #[test]
    fn a_state_that_cannot_be_passed_on_counts_as_none() {
        assert_eq!(read_trace_state(" rojo=1,congo=t61 "), Some("rojo=1,congo=t61"));
        let long = format!("a={}", "x".repeat(LONGEST_STATE));
        for wrong in ["", "rojo", "rojo=\u{e9}", "rojo=1\r\nx: y", "rojo=\0", &long] {
            assert_eq!(read_trace_state(wrong), None, "{wrong:?}");
        }
    }
}
