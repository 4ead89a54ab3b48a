//! A server's HTTP response as bytes, framed correctly or, for some faults, wrongly.

use super::fault::Fault;

/// The head of an event stream.
pub const EVENTS_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

pub enum Reply {
    Status { status: u16, text: String, header: &'static str },
    Messages { messages: Vec<Vec<u8>>, as_events: bool, session: Option<String> },
}

impl Reply {
    pub fn status(status: u16, text: &str) -> Self {
        Self::Status { status, text: text.to_owned(), header: "" }
    }

    /// The last message is the response.
    pub fn messages(messages: Vec<Vec<u8>>, as_events: bool, session: Option<String>) -> Self {
        Self::Messages { messages, as_events, session }
    }

    /// A response that refuses the request by its status.
    pub fn refusal(fault: Fault) -> Option<Self> {
        match fault {
            Fault::ServerError => Some(Self::status(500, "out of order")),
            Fault::LostSession => Some(Self::status(404, "session not found")),
            Fault::Unavailable => Some(Self::status(503, "<html>busy</html>")),
            Fault::TooMany => Some(Self::Status {
                status: 429,
                text: "too many requests".into(),
                header: "Retry-After: 1\r\n",
            }),
            Fault::Circle => {
                Some(Self::Status { status: 307, text: String::new(), header: "Location: /mcp\r\n" })
            }
            Fault::Away => {
                let header = "Location: http://localhost:9/mcp\r\n";
                Some(Self::Status { status: 308, text: String::new(), header })
            }
            _ => None,
        }
    }

    pub fn to_bytes(&self, fault: Option<Fault>) -> Vec<u8> {
        if fault == Some(Fault::Garbage) {
            return b"\x16\x03\x01 SSH-2.0-nothing\r\n\0\0\xff\xfe and so on\r\n\r\n".to_vec();
        }
        match self {
            Self::Status { status, text, header } => {
                let length = length_of(text.len(), fault);
                format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: text/plain\r\n{header}Content-Length: {length}\r\n\r\n{text}"
                )
                .into_bytes()
            }
            Self::Messages { messages, as_events, session } => {
                let session =
                    session.as_ref().map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
                let answer = messages.last().map(Vec::as_slice).unwrap_or_default();
                match fault {
                    // Faults of the length need a `Content-Length`.
                    Some(Fault::LongLength | Fault::ShortLength | Fault::EmptyBody) => {
                        plain(answer, &session, fault)
                    }
                    Some(Fault::CutUnframed) => {
                        let head =
                            format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{session}\r\n");
                        [head.as_bytes(), &answer[..answer.len() * 2 / 3]].concat()
                    }
                    Some(Fault::Endless) => endless(answer, *as_events, &session),
                    Some(Fault::BrokenChunk) => [&events_head(&session)[..], b"ZZ\r\nwhat"].concat(),
                    Some(Fault::CutStream) => events(messages, &session, fault),
                    Some(Fault::Twice) => {
                        let twice: Vec<_> = messages.iter().cloned().chain([answer.to_vec()]).collect();
                        events(&twice, &session, fault)
                    }
                    _ if *as_events => events(messages, &session, fault),
                    _ => plain(answer, &session, fault),
                }
            }
        }
    }
}

/// One event with this data.
pub fn event(data: &[u8]) -> Vec<u8> {
    [b"event: message\ndata: ", data, b"\n\n"].concat()
}

/// One chunk of a chunked body.
pub fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

fn plain(answer: &[u8], session: &str, fault: Option<Fault>) -> Vec<u8> {
    let kind = if fault == Some(Fault::WrongType) { "text/html" } else { "application/json" };
    let answer = if fault == Some(Fault::EmptyBody) { b"" } else { answer };
    let length = length_of(answer.len(), fault);
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{session}Content-Length: {length}\r\n\r\n");
    [head.as_bytes(), answer].concat()
}

fn length_of(length: usize, fault: Option<Fault>) -> usize {
    match fault {
        Some(Fault::LongLength) => length + 40,
        Some(Fault::ShortLength) => length.saturating_sub(12),
        _ => length,
    }
}

fn events(messages: &[Vec<u8>], session: &str, fault: Option<Fault>) -> Vec<u8> {
    let mut whole = events_head(session);
    if fault == Some(Fault::WrongType) {
        whole = String::from_utf8_lossy(&whole).replace("text/event-stream", "text/html").into_bytes();
    }
    for (index, message) in messages.iter().enumerate() {
        let event = event(message);
        let is_cut = fault == Some(Fault::CutStream) && index + 1 == messages.len();
        whole.extend(chunk(if is_cut { &event[..event.len() / 2] } else { &event }));
    }
    whole.extend(b"0\r\n\r\n");
    whole
}

/// A response that begins like a correct one and has no end.
fn endless(answer: &[u8], as_events: bool, session: &str) -> Vec<u8> {
    let beginning = &answer[..answer.len() / 2];
    if as_events {
        return [events_head(session), chunk(&[b"data: ", beginning].concat())].concat();
    }
    let head =
        String::from_utf8_lossy(&events_head(session)).replace("text/event-stream", "application/json");
    [head.into_bytes(), chunk(beginning)].concat()
}

fn events_head(session: &str) -> Vec<u8> {
    String::from_utf8_lossy(EVENTS_HEAD).replacen("Transfer", &format!("{session}Transfer"), 1).into_bytes()
}
