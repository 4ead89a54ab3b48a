//! A collector of traces: takes spans over OTLP and HTTP, and reads them with a decoder of its own. It can be told to refuse
//! requests, or not to answer at all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use toolgate::config::TraceSettings;

use super::eventually;

pub struct Collector {
    pub address: String,
    shared: Arc<Mutex<Taken>>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Taken {
    spans: Vec<SentSpan>,
    /// The headers of all requests, also of those that were refused.
    requests: Vec<BTreeMap<String, String>>,
    /// The statuses of the next responses; after them, everything is accepted.
    statuses: VecDeque<u16>,
    is_silent: bool,
}

/// A span as it arrived. Ids are hexadecimal, and empty if there is none.
#[derive(Clone, Debug, Default)]
pub struct SentSpan {
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub state: String,
    pub name: String,
    /// 2 for a server span, 3 for a client span.
    pub kind: u64,
    pub begun: u64,
    pub ended: u64,
    pub attributes: BTreeMap<String, String>,
    /// The spans that it is linked to.
    pub links: Vec<String>,
    /// 2 for an error.
    pub status: u64,
    pub flags: u32,
    pub resource: BTreeMap<String, String>,
}

impl SentSpan {
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    /// The context that a server gets in `traceparent`.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.id, self.flags & 0xff)
    }
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, serving }
    }

    /// The settings of a gateway that exports to it, without a long delay.
    pub fn settings(&self) -> TraceSettings {
        let url = format!("http://{}/v1/traces", self.address).parse().unwrap();
        TraceSettings { delay: Duration::from_millis(20), ..TraceSettings::new(url) }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.shared.lock().unwrap()
    }

    /// Answers the next requests with these statuses.
    pub fn refuse(&self, statuses: &[u16]) {
        self.taken().statuses.extend(statuses);
    }

    /// Answers nothing from now on.
    pub fn fall_silent(&self) {
        self.taken().is_silent = true;
    }

    pub fn requests(&self) -> Vec<BTreeMap<String, String>> {
        self.taken().requests.clone()
    }

    pub fn spans(&self) -> Vec<SentSpan> {
        self.taken().spans.clone()
    }

    /// Waits for the spans of one call that reached a server, which must be all that are there, and forgets them. The first
    /// one is that of the server, the second one that of the client.
    pub async fn take_call(&self, what: &str) -> [SentSpan; 2] {
        let spans = self.take(2, what).await;
        spans.try_into().unwrap_or_else(|spans| panic!("{what}: {spans:?}"))
    }

    /// Waits for this many spans, which must be all that are there, and forgets them. Server spans come first.
    pub async fn take(&self, count: usize, what: &str) -> Vec<SentSpan> {
        eventually(what, async || self.taken().spans.len() >= count).await;
        let mut spans = std::mem::take(&mut self.taken().spans);
        assert_eq!(spans.len(), count, "{what}: {spans:?}");
        spans.sort_by_key(|span| (span.kind, span.begun));
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(State(shared): State<Arc<Mutex<Taken>>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let is_silent = {
        let mut taken = shared.lock().unwrap();
        let text = |value: &axum::http::HeaderValue| value.to_str().unwrap().to_owned();
        taken.requests.push(headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect());
        taken.is_silent
    };
    if is_silent {
        std::future::pending::<()>().await;
    }
    let mut taken = shared.lock().unwrap();
    if let Some(status) = taken.statuses.pop_front() {
        return StatusCode::from_u16(status).unwrap();
    }
    taken.spans.extend(read_request(&body));
    StatusCode::OK
}

/// The value of a field of a protobuf message.
#[derive(Clone, Debug)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(bytes) => panic!("not a number: {bytes:?}"),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Number(number) => panic!("not bytes: {number}"),
            Field::Bytes(bytes) => bytes,
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The fields of a protobuf message, in order.
fn fields(mut rest: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let value = match tag & 7 {
            0 => Field::Number(varint(&mut rest)),
            1 => Field::Number(u64::from_le_bytes(split(&mut rest, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut rest);
                Field::Bytes(split(&mut rest, usize::try_from(length).unwrap()))
            }
            5 => Field::Number(u32::from_le_bytes(split(&mut rest, 4).try_into().unwrap()).into()),
            other => panic!("unknown wire type {other}"),
        };
        found.push((tag >> 3, value));
    }
    found
}

fn split<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (head, tail) = rest.split_at(length);
    *rest = tail;
    head
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = split(rest, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number is too long");
}

fn of(field: u64, message: &[u8]) -> Vec<Field<'_>> {
    fields(message).into_iter().filter(|(number, _)| *number == field).map(|(_, value)| value).collect()
}

fn read_request(body: &[u8]) -> Vec<SentSpan> {
    let mut spans = Vec::new();
    for group in of(1, body) {
        let resource =
            of(1, group.bytes()).iter().flat_map(|resource| attributes(1, resource.bytes())).collect();
        for scope in of(2, group.bytes()) {
            for span in of(2, scope.bytes()) {
                spans.push(SentSpan { resource: BTreeMap::clone(&resource), ..read_span(span.bytes()) });
            }
        }
    }
    spans
}

fn read_span(message: &[u8]) -> SentSpan {
    let mut span = SentSpan { attributes: attributes(9, message), ..SentSpan::default() };
    for (number, field) in fields(message) {
        match number {
            1 => span.trace = field.hex(),
            2 => span.id = field.hex(),
            3 => span.state = field.text(),
            4 => span.parent = field.hex(),
            5 => span.name = field.text(),
            6 => span.kind = field.number(),
            7 => span.begun = field.number(),
            8 => span.ended = field.number(),
            9 => {}
            13 => span.links.extend(of(2, field.bytes()).iter().map(Field::hex)),
            15 => span.status = of(3, field.bytes())[0].number(),
            16 => span.flags = u32::try_from(field.number()).unwrap(),
            other => panic!("a span has the unknown field {other}"),
        }
    }
    span
}

/// The attributes in this field; numbers as text.
fn attributes(field: u64, message: &[u8]) -> BTreeMap<String, String> {
    let read = |attribute: &Field<'_>| {
        let (key, value) = (of(1, attribute.bytes()), of(2, attribute.bytes()));
        let value = match fields(value[0].bytes()).as_slice() {
            [(1, text)] => text.text(),
            [(3, number)] => number.number().cast_signed().to_string(),
            other => panic!("not a value: {other:?}"),
        };
        (key[0].text(), value)
    };
    let all = of(field, message);
    let read: BTreeMap<_, _> = all.iter().map(read).collect();
    assert_eq!(read.len(), all.len(), "an attribute is there twice: {read:?}");
    read
}
