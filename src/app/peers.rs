//! Requests between gateways on the same database, at `POST /internal/requests`. Every message is sealed with a key that is
//! derived from the secret key, and bound to its receiver, its time and a number, so that nobody else can read, make or
//! repeat one. The response begins at once and consists of sealed frames: the head of the reply, then its body.

#![allow(clippy::disallowed_types)] // Status codes are chosen here.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::body::Body as RouterBody;
use axum::response::IntoResponse;
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::elsewhere::{OtherGateways, RestRequest};
use crate::http::error::ErrorResponse;
use crate::routes::LateRouter;
use budget::Budgets;
use gateway::{Gateway, Replica, now_ms};
use mcp::{BodyKind, Forwarded, Mcp, Outlet, Peers, Reply, ReplyBody, ReplyHead, Unreached};
use seal::{PurposeSeal, RandomPool};

/// The path of forwarded requests.
pub const PATH: &str = "/internal/requests";

/// How long connecting to another gateway may take.
const CONNECTING: Duration = Duration::from_secs(2);
/// How long the first byte of a response may take.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// How far the clocks of two gateways may differ, and how long a message can be under way.
const CLOCKS: Duration = Duration::from_secs(30);
/// How often it is checked whether a gateway that owes a response is still alive.
const LOOK: Duration = Duration::from_secs(5);
/// Frames that wait for the other gateway to read them.
const QUEUE: usize = 16;
/// The largest frame; longer bodies are cut into several.
const LARGEST_FRAME: usize = 1024 * 1024;
/// Length of the number of the request and of the frame, at the beginning of each frame.
const FRAME_HEAD: usize = 12;

/// Where a message is from and whom it is for.
#[derive(Serialize, Deserialize)]
struct Envelope {
    target: u16,
    sender: u16,
    at_ms: i64,
    number: u64,
    request: Request,
}

/// A request for what another gateway has.
#[derive(Serialize, Deserialize)]
enum Request {
    Mcp(Forwarded),
    Rest(RestRequest),
}

impl Request {
    /// Whether it begins something, instead of belonging to a call in flight.
    fn begins(&self) -> bool {
        match self {
            Request::Mcp(request) => request.begins(),
            Request::Rest(request) => !request.answers_question(),
        }
    }

    fn body(&mut self) -> &mut Bytes {
        match self {
            Request::Mcp(request) => &mut request.body,
            Request::Rest(request) => &mut request.body,
        }
    }
}

/// What a response of the REST API has beside its body.
#[derive(Serialize, Deserialize)]
struct RestHead {
    status: u16,
    headers: Vec<(String, String)>,
}

/// The seals of messages in the two directions.
pub struct InternalSeals {
    pub requests: PurposeSeal,
    pub responses: PurposeSeal,
}

/// The other gateways.
pub struct Internal {
    gateway: Arc<Gateway>,
    requests: PurposeSeal,
    responses: Arc<PurposeSeal>,
    /// Created when it is needed, since reading the system's certificates takes time.
    client: OnceLock<reqwest::Client>,
    tls: upstream::Tls,
    numbers: AtomicU64,
    random: RandomPool,
    received: Mutex<Received>,
    faces: OnceLock<Faces>,
    /// Whether only what belongs to calls in flight is accepted.
    is_finishing: AtomicBool,
    /// The connections of links through other gateways, which last until all links are closed.
    connections: TaskTracker,
    stop: CancellationToken,
}

/// What answers forwarded requests.
struct Faces {
    mcp: Weak<Mcp>,
    router: LateRouter,
}

impl Internal {
    pub fn new(gateway: Arc<Gateway>, seals: InternalSeals, tls: upstream::Tls) -> Arc<Self> {
        // The numbers of another process on the same slot must not be those of this one.
        let first = u64::try_from(now_ms()).unwrap_or_default() << 20;
        Arc::new(Self {
            gateway,
            requests: seals.requests,
            responses: Arc::new(seals.responses),
            client: OnceLock::new(),
            tls,
            numbers: AtomicU64::new(first),
            random: RandomPool::default(),
            received: Mutex::default(),
            faces: OnceLock::new(),
            is_finishing: AtomicBool::new(false),
            connections: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    fn client(&self) -> reqwest::Result<&reqwest::Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECTING)
            .tls_backend_preconfigured(self.tls.config().as_ref().clone())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        Ok(self.client.get_or_init(|| client))
    }

    /// Sets what answers forwarded requests.
    pub fn serve(&self, mcp: &Arc<Mcp>, router: LateRouter) {
        let _ = self.faces.set(Faces { mcp: Arc::downgrade(mcp), router });
    }

    fn mcp(&self) -> Option<Arc<Mcp>> {
        self.faces.get()?.mcp.upgrade()
    }

    /// Accepts only what belongs to calls in flight from now on. The clients of sessions come back elsewhere.
    pub fn finish(&self) {
        self.is_finishing.store(true, Ordering::Release);
    }

    /// A number that no gateway has used.
    pub fn random_number(&self) -> u64 {
        u64::from_le_bytes(self.random.take())
    }

    /// Serves a connection of a link until it or the gateway ends.
    pub fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.connections.spawn(async move { stop.run_until_cancelled(connection).await });
    }

    /// Ends the connections of links, which are closed by then.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.connections.close();
        self.connections.wait().await;
    }

    pub fn budgets(&self) -> &Budgets {
        self.gateway.budgets()
    }

    /// Answers a request of another gateway.
    pub fn answer(self: &Arc<Self>, sealed: &[u8]) -> Response<RouterBody> {
        let refuse = |status| {
            let mut response = Response::new(RouterBody::empty());
            *response.status_mut() = status;
            response
        };
        let Some((envelope, mcp)) = self.open(sealed).zip(self.mcp()) else {
            return refuse(StatusCode::FORBIDDEN);
        };
        if self.is_finishing.load(Ordering::Acquire) && envelope.request.begins() {
            return refuse(StatusCode::SERVICE_UNAVAILABLE);
        }
        let (sender, frames) = mpsc::channel(QUEUE);
        let (internal, number) = (self.clone(), envelope.number);
        self.gateway.spawn(async move {
            let closed = sender.clone();
            let mut frames = FrameWriter { seal: &internal.responses, number, index: 0, sender };
            let answered = async {
                match envelope.request {
                    Request::Mcp(request) => frames.write(mcp.serve_forwarded(request).await).await,
                    Request::Rest(request) => frames.write_rest(internal.answer_rest(request).await).await,
                }
            };
            // A client that goes away cancels its request, if it is of a kind that ends with its connection.
            tokio::select! {
                () = answered => {}
                () = closed.closed() => {}
            }
        });
        Response::new(RouterBody::new(Pieces(frames)))
    }

    /// Opens a message, if it is for this gateway, new, and was not received before.
    fn open(&self, sealed: &[u8]) -> Option<Envelope> {
        let plain = self.requests.open(sealed).ok()?;
        let (length, rest) = plain.split_first_chunk()?;
        let (head, body) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let mut envelope: Envelope = serde_json::from_slice(head).ok()?;
        *envelope.request.body() = Bytes::copy_from_slice(body);
        let (now, limit) = (now_ms(), i64::try_from(CLOCKS.as_millis()).unwrap_or(i64::MAX));
        if envelope.target != self.gateway.slot() || (now - envelope.at_ms).abs() > limit {
            return None;
        }
        let mut received = self.received.lock().expect("no code panics while it holds the numbers");
        received.insert((envelope.sender, envelope.number)).then_some(envelope)
    }

    async fn answer_rest(&self, request: RestRequest) -> Response<RouterBody> {
        let request = request.into_request(&self.gateway);
        match self.faces.get().zip(request) {
            Some((faces, request)) => faces.router.answer(request).await,
            // Its token was revoked meanwhile.
            None => ErrorResponse::wrong_token().into_response(),
        }
    }

    /// Sends a request, and returns the frames of the response; it fails if the other gateway cannot be reached.
    async fn ask(&self, slot: u16, request: Request) -> Result<FrameReader, Unreached> {
        let replica = self.gateway.find_replica(slot).await.ok_or(Unreached::NotSent)?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let sealed = Bytes::from(self.seal(slot, number, request));
        let sending = async {
            match self.send(&replica, &sealed).await {
                // It closes its port when it is about to stop, and is reached at another one until then.
                Err(error) if error.is_connect() => match self.gateway.find_moved(&replica).await {
                    Some(moved) => self.send(&moved, &sealed).await,
                    None => Err(error),
                },
                sent => sent,
            }
        };
        let response = match tokio::time::timeout(FIRST_BYTE, sending).await {
            Ok(Ok(response)) if response.status() == StatusCode::OK => response,
            Ok(Ok(response)) if response.status() == StatusCode::SERVICE_UNAVAILABLE => {
                tracing::debug!(slot, "another gateway is about to stop");
                return Err(Unreached::NotSent);
            }
            Ok(Ok(response)) => {
                tracing::warn!(
                    slot,
                    status = response.status().as_u16(),
                    "another gateway refused a request"
                );
                return Err(Unreached::NotSent);
            }
            Ok(Err(error)) => {
                tracing::warn!(slot, %error, "another gateway cannot be reached");
                return Err(if error.is_connect() { Unreached::NotSent } else { Unreached::Lost });
            }
            Err(_) => {
                tracing::warn!(slot, "another gateway did not answer in time");
                return Err(Unreached::Lost);
            }
        };
        Ok(FrameReader {
            gateway: self.gateway.clone(),
            seal: self.responses.clone(),
            slot,
            number,
            index: 0,
            buffer: BytesMut::new(),
            response,
        })
    }

    async fn send(&self, replica: &Replica, sealed: &Bytes) -> reqwest::Result<reqwest::Response> {
        let url = format!("{}{PATH}", replica.address.trim_end_matches('/'));
        self.client()?.post(url).body(sealed.clone()).send().await
    }

    fn seal(&self, target: u16, number: u64, mut request: Request) -> Vec<u8> {
        let body = std::mem::take(request.body());
        let envelope = Envelope { target, sender: self.gateway.slot(), at_ms: now_ms(), number, request };
        let head = serde_json::to_vec(&envelope).expect("an envelope can be written as JSON");
        let length = u32::try_from(head.len()).expect("a head is short").to_le_bytes();
        self.requests.seal(&[&length[..], &head, &body].concat())
    }
}

/// The senders and numbers of messages that were received lately.
struct Received {
    current: HashSet<(u16, u64)>,
    /// Those of the time before.
    previous: HashSet<(u16, u64)>,
    since: Instant,
}

impl Default for Received {
    fn default() -> Self {
        Self { current: HashSet::new(), previous: HashSet::new(), since: Instant::now() }
    }
}

impl Received {
    /// Notes a message. False if it was received before.
    fn insert(&mut self, message: (u16, u64)) -> bool {
        // A message may come early or late, each by the difference of the clocks.
        if self.since.elapsed() > 2 * CLOCKS {
            self.previous = std::mem::take(&mut self.current);
            self.since = Instant::now();
        }
        !self.previous.contains(&message) && self.current.insert(message)
    }
}

#[async_trait]
impl Peers for Internal {
    async fn forward(&self, slot: u16, request: Forwarded) -> Result<Reply, Unreached> {
        let frames = self.ask(slot, Request::Mcp(request)).await?;
        self.read(frames).await.ok_or(Unreached::Lost)
    }
}

impl Internal {
    /// Reads a reply; `None` if the response breaks off.
    async fn read(&self, mut frames: FrameReader) -> Option<Reply> {
        let head: ReplyHead = serde_json::from_slice(&frames.next().await?).ok()?;
        let body = match head.kind() {
            BodyKind::Empty => ReplyBody::Empty,
            BodyKind::Json => {
                let mut pieces = Vec::new();
                // An empty frame ends the body; without it, something is missing.
                loop {
                    match frames.next().await? {
                        piece if piece.is_empty() => break,
                        piece => pieces.push(piece),
                    }
                }
                ReplyBody::Json(pieces)
            }
            BodyKind::Events => {
                let (outlet, body) = self.mcp()?.open_forwarded();
                self.gateway.spawn(pump(frames, outlet));
                body
            }
        };
        Some(head.into_reply(body))
    }
}

#[async_trait]
impl OtherGateways for Internal {
    async fn forward(&self, slot: u16, request: RestRequest) -> Option<Response<RouterBody>> {
        let mut frames = self.ask(slot, Request::Rest(request)).await.ok()?;
        let head: RestHead = serde_json::from_slice(&frames.next().await?).ok()?;
        let (sender, pieces) = mpsc::channel(QUEUE);
        self.gateway.spawn(pass_body(frames, sender));
        let mut response = Response::builder().status(head.status);
        for (name, value) in head.headers {
            response = response.header(name, value);
        }
        response.body(RouterBody::new(Pieces(pieces))).ok()
    }
}

/// Passes a body on until one of the two sides ends.
async fn pass_body(mut frames: FrameReader, sender: mpsc::Sender<std::io::Result<Bytes>>) {
    let passing = async {
        loop {
            let piece = match frames.next().await {
                // It ends the body; without it, something is missing.
                Some(piece) if piece.is_empty() => return,
                Some(piece) => Ok(piece),
                None => Err(std::io::ErrorKind::UnexpectedEof.into()),
            };
            if piece.is_err() | sender.send(piece).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = passing => {}
        () = sender.closed() => {}
    }
}

/// Passes events on until one of the two sides ends.
async fn pump(mut frames: FrameReader, outlet: Outlet) {
    let passing = async {
        while let Some(frame) = frames.next().await.filter(|frame| !frame.is_empty()) {
            outlet.room().await;
            outlet.pass(frame);
        }
    };
    outlet.gone.run_until_cancelled(passing).await;
    outlet.finish();
}

/// Writes a reply as sealed frames.
struct FrameWriter<'a> {
    seal: &'a PurposeSeal,
    number: u64,
    index: u32,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
}

impl FrameWriter<'_> {
    async fn write(&mut self, reply: Reply) {
        let head = serde_json::to_vec(&ReplyHead::of(&reply)).expect("a head can be written as JSON");
        if !self.send(&head).await {
            return;
        }
        match reply.body {
            ReplyBody::Empty => {}
            ReplyBody::Json(pieces) => {
                for piece in pieces.iter().flat_map(|piece| piece.chunks(LARGEST_FRAME)) {
                    if !self.send(piece).await {
                        return;
                    }
                }
                self.send(&[]).await;
            }
            ReplyBody::Events(events) => self.write_body(*events).await,
        }
    }

    async fn write_rest(&mut self, response: Response<RouterBody>) {
        let (head, body) = response.into_parts();
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        let headers = head.headers.iter().filter(|(name, _)| **name != CONTENT_LENGTH).filter_map(header);
        let head = RestHead { status: head.status.as_u16(), headers: headers.collect() };
        let head = serde_json::to_vec(&head).expect("a head can be written as JSON");
        if self.send(&head).await {
            self.write_body(body).await;
        }
    }

    /// Sends a body as it comes. An empty frame ends it, if it is complete.
    async fn write_body(&mut self, mut body: impl Body<Data = Bytes> + Unpin) {
        let closed = self.sender.clone();
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = closed.closed() => return,
            };
            let data = match frame {
                None => break,
                Some(Err(_)) => return,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            for piece in data.chunks(LARGEST_FRAME) {
                if !self.send(piece).await {
                    return;
                }
            }
        }
        self.send(&[]).await;
    }

    /// Sends a frame; false if nobody reads.
    async fn send(&mut self, payload: &[u8]) -> bool {
        let plain = [&self.number.to_le_bytes()[..], &self.index.to_le_bytes(), payload].concat();
        self.index += 1;
        let sealed = self.seal.seal(&plain);
        let length = u32::try_from(sealed.len()).expect("a frame is short").to_le_bytes();
        self.sender.send(Ok([&length[..], &sealed].concat().into())).await.is_ok()
    }
}

/// Reads the frames of a response.
struct FrameReader {
    gateway: Arc<Gateway>,
    seal: Arc<PurposeSeal>,
    slot: u16,
    number: u64,
    index: u32,
    buffer: BytesMut,
    response: reqwest::Response,
}

impl FrameReader {
    /// The payload of the next frame; `None` if the response has ended, is damaged, or comes from a gateway that is gone.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(sealed) = self.take_frame()? {
                let plain = self.seal.open(&sealed).ok()?;
                let expected = [&self.number.to_le_bytes()[..], &self.index.to_le_bytes()].concat();
                self.index += 1;
                let payload = plain.strip_prefix(expected.as_slice())?;
                return Some(Bytes::copy_from_slice(payload));
            }
            match tokio::time::timeout(LOOK, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) => self.buffer.extend_from_slice(&chunk),
                Ok(Ok(None) | Err(_)) => return None,
                Err(_) if self.gateway.replica(self.slot).is_none() => return None,
                Err(_) => {}
            }
        }
    }

    /// A whole frame in the buffer; `None` if it can be none.
    fn take_frame(&mut self) -> Option<Option<Bytes>> {
        let Some(length) = self.buffer.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
        else {
            return Some(None);
        };
        if length > 2 * LARGEST_FRAME + FRAME_HEAD {
            return None;
        }
        if self.buffer.len() < 4 + length {
            return Some(None);
        }
        self.buffer.advance(4);
        Some(Some(self.buffer.split_to(length).freeze()))
    }
}

/// A body whose pieces come one by one.
struct Pieces(mpsc::Receiver<std::io::Result<Bytes>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
