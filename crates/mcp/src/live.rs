//! What sessions hold while they hold something: an open stream, a log level, subscriptions, calls that may be
//! cancelled, questions of servers that wait for their answers. A session that holds nothing is not here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use super::stream::Outlet;
use gateway::caller::Viewer;
use gateway::forward::Replier;
use gateway::lists::Fingerprint;
use model::LogLevel;
use wire::{Head, Patch, authored, meta, text};

/// Sessions are spread over this many locks, so that calls of different sessions hardly ever wait for each other.
const SHARDS: usize = 64;

pub struct Lives {
    shards: [Mutex<Shard>; SHARDS],
    last_question: AtomicU64,
}

/// The sessions whose serials fall into one shard, with their calls and questions.
#[derive(Default)]
struct Shard {
    sessions: HashMap<u64, Live>,
    calls: HashMap<CallKey, Cancel>,
    questions: HashMap<(u64, u64), Question>,
}

/// A session, and the id that it gave a call.
type CallKey = (u64, Vec<u8>);

impl Default for Lives {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), last_question: AtomicU64::new(0) }
    }
}

/// The way to cancel what runs under one id of a session. That may be several calls, if a client is careless.
#[derive(Default)]
struct Cancel {
    token: CancellationToken,
    calls: usize,
}

/// One session that holds something.
pub struct Live {
    pub viewer: Viewer,
    pub stream: Option<Stream>,
    pub level: Option<LogLevel>,
    /// By the URI that the client subscribed to: the server and its own URI.
    pub subscriptions: HashMap<String, (String, String)>,
    /// Of a client on HTTP+SSE: what its handshake settled.
    pub handshake: Option<Arc<Session>>,
    pub last_used: Instant,
}

/// An open stream, and the lists that its reader knows of.
pub struct Stream {
    pub outlet: Outlet,
    pub known: Option<Fingerprint>,
    /// Of a modern client: what it asked to hear. Others hear everything.
    pub listening: Option<Listening>,
}

/// One `subscriptions/listen`.
pub struct Listening {
    /// The request's own id, as the client wrote it.
    pub id: Vec<u8>,
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
}

impl Listening {
    /// A notice with the mark of this subscription.
    pub fn notice(&self, method: &str, params: &[(&str, &[u8])]) -> Bytes {
        let mark = authored::object(&[(meta::SUBSCRIPTION_ID, self.id.as_slice())]);
        authored::notice(method, Some(&authored::object(&[params, &[("_meta", &mark)]].concat())))
    }

    /// The result that ends it in good order.
    fn end(&self) -> Bytes {
        let mark = authored::object(&[(meta::SUBSCRIPTION_ID, self.id.as_slice())]);
        let members: [(&str, &[u8]); 2] = [("resultType", br#""complete""#), ("_meta", &mark)];
        authored::result(&self.id, &authored::object(&members))
    }
}

impl Stream {
    /// Says which of the reader's lists are others now, as far as it wants to know.
    pub fn tell_changes(&mut self, now: Fingerprint) {
        let Some(known) = self.known.replace(now) else { return };
        let wants = |pick: fn(&Listening) -> bool| self.listening.as_ref().is_none_or(pick);
        for (differs, is_wanted, method) in [
            (known.tools != now.tools, wants(|it| it.tools), "notifications/tools/list_changed"),
            (known.prompts != now.prompts, wants(|it| it.prompts), "notifications/prompts/list_changed"),
            (
                known.resources != now.resources,
                wants(|it| it.resources),
                "notifications/resources/list_changed",
            ),
        ] {
            if differs && is_wanted {
                self.outlet.send(&match &self.listening {
                    Some(listening) => listening.notice(method, &[]),
                    None => authored::notice(method, None),
                });
            }
        }
    }

    /// A resource was updated that the reader subscribed to under this URI.
    pub fn tell_update(&self, uri: &str) {
        let (method, uri) = ("notifications/resources/updated", text::quote(uri));
        let params: &[(&str, &[u8])] = &[("uri", &uri)];
        self.outlet.send(&match &self.listening {
            Some(listening) => listening.notice(method, params),
            None => authored::notice(method, Some(&authored::object(params))),
        });
    }

    /// Ends it after what was written, in the way that its reader expects.
    pub fn end(&self) {
        if let Some(listening) = &self.listening {
            self.outlet.send(&listening.end());
        }
        self.outlet.finish();
    }
}

/// Something that a server wants to know from a client.
struct Question {
    replier: Replier,
    /// The id that the server gave it.
    id: Vec<u8>,
}

impl Lives {
    fn shard(&self, serial: u64) -> MutexGuard<'_, Shard> {
        let index = (serial % SHARDS as u64) as usize;
        self.shards[index].lock().expect("no code panics while it holds a shard")
    }

    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(|shard| shard.lock().expect("no code panics while it holds a shard"))
    }

    /// Looks at a session that holds something.
    pub fn look<T>(&self, serial: u64, look: impl FnOnce(&mut Live) -> T) -> Option<T> {
        self.shard(serial).sessions.get_mut(&serial).map(look)
    }

    /// What `pick` takes from each session that holds something. It must not do more than that: others wait.
    pub fn collect<T>(&self, pick: impl Fn(u64, &Live) -> Option<T>) -> Vec<T> {
        let mut picked = Vec::new();
        for shard in self.shards() {
            picked.extend(shard.sessions.iter().filter_map(|(serial, live)| pick(*serial, live)));
        }
        picked
    }

    /// The session's entry, made if it holds nothing yet.
    pub fn with<T>(&self, serial: u64, viewer: &Viewer, change: impl FnOnce(&mut Live) -> T) -> T {
        let mut shard = self.shard(serial);
        let live = shard.sessions.entry(serial).or_insert_with(|| Live {
            viewer: viewer.clone(),
            stream: None,
            level: None,
            subscriptions: HashMap::new(),
            handshake: None,
            last_used: Instant::now(),
        });
        live.last_used = Instant::now();
        change(live)
    }

    /// A request of the session came, whatever it is.
    pub fn touch(&self, serial: u64) {
        self.look(serial, |live| live.last_used = Instant::now());
    }

    pub fn level_of(&self, serial: u64) -> Option<LogLevel> {
        self.look(serial, |live| live.level).flatten()
    }

    /// Whether the session has calls under way.
    pub fn is_busy(&self, serial: u64) -> bool {
        self.shard(serial).calls.keys().any(|(session, _)| *session == serial)
    }

    /// Forgets a session that holds nothing, if that is still so.
    pub fn forget_if(&self, serial: u64, is_over: impl FnOnce(&Live) -> bool) {
        let mut shard = self.shard(serial);
        if shard.sessions.get(&serial).is_some_and(is_over) {
            shard.sessions.remove(&serial);
        }
    }

    pub fn remove(&self, serial: u64) -> Option<Live> {
        let mut shard = self.shard(serial);
        let live = shard.sessions.remove(&serial);
        shard.calls.retain(|(session, _), cancel| {
            if *session == serial {
                cancel.token.cancel();
            }
            *session != serial
        });
        drop(shard);
        if let Some(stream) = live.as_ref().and_then(|live| live.stream.as_ref()) {
            stream.end();
        }
        live
    }

    pub fn close_all(&self) {
        for shard in self.shards() {
            for stream in shard.sessions.values().filter_map(|live| live.stream.as_ref()) {
                stream.end();
            }
        }
    }

    /// From now on the call can be cancelled by its id.
    pub fn begin_call(self: &Arc<Self>, serial: u64, id: &[u8]) -> CallInFlight {
        let key = (serial, id.to_vec());
        let mut shard = self.shard(serial);
        let cancel = shard.calls.entry(key.clone()).or_default();
        if cancel.token.is_cancelled() {
            // What was cancelled is about to end; its id may be used again.
            *cancel = Cancel::default();
        }
        cancel.calls += 1;
        let cancelled = cancel.token.clone();
        drop(shard);
        CallInFlight { lives: self.clone(), key, questions: Vec::new(), cancelled }
    }

    /// Deregisters a call, and its id with the last call that has it.
    fn end_call(&self, key: &CallKey, cancelled: &CancellationToken, questions: &[u64]) {
        let mut shard = self.shard(key.0);
        for number in questions {
            shard.questions.remove(&(key.0, *number));
        }
        let Some(cancel) = shard.calls.get_mut(key) else { return };
        // After a call was cancelled its id may be that of another.
        if cancelled.is_cancelled() && !cancel.token.is_cancelled() {
            return;
        }
        cancel.calls -= 1;
        if cancel.calls == 0 {
            shard.calls.remove(key);
        }
    }

    pub fn cancel_call(&self, serial: u64, id: &[u8]) {
        let key = (serial, id.to_vec());
        let token = self.shard(serial).calls.get(&key).map(|cancel| cancel.token.clone());
        if let Some(token) = token {
            token.cancel();
        }
    }

    /// A client answered; the answer goes to the server that asked, under the id that it gave.
    pub fn take_answer(&self, serial: u64, head: &Head<'_>) -> bool {
        let Some((number, span)) = head.id.as_ref().and_then(|id| Some((id.as_u64()?, id.span.clone())))
        else {
            return false;
        };
        let Some(question) = self.shard(serial).questions.remove(&(serial, number)) else { return false };
        let mut patch = Patch::new(head.body);
        patch.replace(span, question.id);
        question.replier.reply(patch.apply());
        true
    }
}

/// Registers a call in flight; dropping it deregisters the call.
pub struct CallInFlight {
    lives: Arc<Lives>,
    key: CallKey,
    questions: Vec<u64>,
    pub cancelled: CancellationToken,
}

impl CallInFlight {
    /// The server's question under a number of our own, ready for the client. `None` if it has no id to answer to.
    pub fn ask(&mut self, message: &Bytes, replier: Replier) -> Option<Bytes> {
        let head = Head::parse(message).ok()?;
        let id = head.id.as_ref()?;
        let number = self.lives.last_question.fetch_add(1, Ordering::Relaxed) + 1;
        let question = Question { replier, id: id.raw().to_vec() };
        self.lives.shard(self.key.0).questions.insert((self.key.0, number), question);
        self.questions.push(number);
        let mut patch = Patch::new(message);
        patch.replace(id.span.clone(), number.to_string().into_bytes());
        Some(patch.apply())
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.lives.end_call(&self.key, &self.cancelled, &self.questions);
    }
}
