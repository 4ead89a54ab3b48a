//! The live state of sessions: an open stream, a log level, subscriptions, calls that may be cancelled, questions of
//! servers that wait for their answers. A session without any of these has no entry here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use foldhash::fast::RandomState;
use tokio::sync::mpsc;

use super::cancel::CancelSignal;
use super::session::Session;
use super::stream::Outlet;
use super::subscriptions::SubscribedTopics;
use gateway::caller::{Profile, Viewer};
use gateway::lists::Fingerprint;
use gateway::question::Question;
use model::LogLevel;
use wire::{Era, Head, MessageKind, OwnedId, Patch, RpcError, authored, meta, text};

/// How many questions of a call may be open at the same time.
const MOST_OPEN: usize = 100;
/// Sessions are spread over this many locks, so that calls of different sessions hardly ever wait for each other.
const SHARDS: usize = 64;

pub struct LiveSessions {
    shards: [Mutex<Shard>; SHARDS],
    last_question: AtomicU64,
}

/// The sessions whose serials fall into one shard, with their calls and questions.
#[derive(Default)]
struct Shard {
    sessions: HashMap<u64, Live, RandomState>,
    calls: HashMap<CallKey, Cancel, RandomState>,
    questions: HashMap<(u64, u64), Awaiting, RandomState>,
}

/// A session, and the id that it gave a call.
type CallKey = (u64, OwnedId);

impl Default for LiveSessions {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), last_question: AtomicU64::new(0) }
    }
}

/// Cancels the calls that have one id in a session. There may be several, if a client reuses an id.
#[derive(Default)]
struct Cancel {
    signal: CancelSignal,
    calls: usize,
}

/// The live state of one session.
pub struct Live {
    pub viewer: Viewer,
    /// Decides which lists it sees.
    pub profile: Profile,
    pub stream: Option<Stream>,
    pub level: Option<LogLevel>,
    pub subscriptions: SubscribedTopics,
    /// The session that the handshake of a client on HTTP+SSE opened; its id was made before.
    pub handshake: Option<Arc<Session>>,
    pub last_used: Instant,
}

/// An open stream, and the fingerprint of the lists that its reader knows; `None` until they are read for the first
/// time.
pub struct Stream {
    pub outlet: Outlet,
    pub known: Option<Fingerprint>,
    /// What a modern client asked to be notified of. Legacy clients are notified of everything.
    pub listening: Option<Listening>,
}

/// One `subscriptions/listen`.
pub struct Listening {
    /// The request's own id, as the client wrote it.
    pub id: OwnedId,
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
}

impl Listening {
    /// A notice that carries the id of this subscription.
    pub fn notice(&self, method: &str, params: &[(&str, &[u8])]) -> Bytes {
        let mark = authored::object(&[(meta::SUBSCRIPTION_ID, &*self.id)]);
        authored::notice(method, Some(&authored::object(&[params, &[("_meta", &mark)]].concat())))
    }

    /// The result that ends the subscription cleanly.
    fn end(&self) -> Bytes {
        let mark = authored::object(&[(meta::SUBSCRIPTION_ID, &*self.id)]);
        let members: [(&str, &[u8]); 2] = [("resultType", br#""complete""#), ("_meta", &mark)];
        authored::result(&self.id, &authored::object(&members))
    }
}

impl Stream {
    /// Notifies the reader of its changed lists, as far as it asked for that.
    pub fn tell_changes(&mut self, now: Fingerprint) {
        let Some(known) = self.known else { return };
        self.known = Some(now);
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

    /// Notifies the reader of an update of a resource that it subscribed to under this URI.
    pub fn tell_update(&self, uri: &str) {
        let (method, uri) = ("notifications/resources/updated", text::quote(uri));
        let params: &[(&str, &[u8])] = &[("uri", &uri)];
        self.outlet.send(&match &self.listening {
            Some(listening) => listening.notice(method, params),
            None => authored::notice(method, Some(&authored::object(params))),
        });
    }

    /// Ends the stream after the queued messages, in the way that its reader expects.
    pub fn end(&self) {
        if let Some(listening) = &self.listening {
            self.outlet.send(&listening.end());
        }
        self.outlet.finish();
    }
}

/// Who waits for the answer to a request that a client got.
enum Awaiting {
    /// A legacy server, whose request it was.
    Server(Question),
    /// The call of a modern server, which asked for several inputs; this is the one with that index.
    Round(mpsc::UnboundedSender<RoundAnswer>, usize),
}

/// A client's answer to one request of a round: its index, and the result or the message of the error.
pub type RoundAnswer = (usize, Result<Bytes, String>);

impl LiveSessions {
    fn shard(&self, serial: u64) -> MutexGuard<'_, Shard> {
        let index = (serial % SHARDS as u64) as usize;
        self.shards[index].lock().expect("no code panics while it holds a shard")
    }

    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(|shard| shard.lock().expect("no code panics while it holds a shard"))
    }

    /// Runs `look` on a session's entry, if it has one.
    pub fn look<T>(&self, serial: u64, look: impl FnOnce(&mut Live) -> T) -> Option<T> {
        self.shard(serial).sessions.get_mut(&serial).map(look)
    }

    /// Collects what `pick` returns for each entry. `pick` must be fast: it runs under a lock.
    pub fn collect<T>(&self, pick: impl Fn(u64, &Live) -> Option<T>) -> Vec<T> {
        let mut picked = Vec::new();
        for shard in self.shards() {
            picked.extend(shard.sessions.iter().filter_map(|(serial, live)| pick(*serial, live)));
        }
        picked
    }

    /// The number of sessions of legacy clients, which are those that have sessions.
    pub fn count(&self) -> usize {
        let is_session = |live: &&Live| live.profile.era == Era::Legacy;
        self.shards().map(|shard| shard.sessions.values().filter(is_session).count()).sum()
    }

    /// Runs `change` on a session's entry, which is created if needed.
    pub fn with<T>(
        &self,
        serial: u64,
        viewer: &Viewer,
        profile: &Profile,
        change: impl FnOnce(&mut Live) -> T,
    ) -> T {
        let mut shard = self.shard(serial);
        let live = shard.sessions.entry(serial).or_insert_with(|| Live {
            viewer: viewer.clone(),
            profile: profile.clone(),
            stream: None,
            level: None,
            subscriptions: SubscribedTopics::default(),
            handshake: None,
            last_used: Instant::now(),
        });
        live.last_used = Instant::now();
        change(live)
    }

    /// Marks the session as used now.
    pub fn touch(&self, serial: u64) {
        self.look(serial, |live| live.last_used = Instant::now());
    }

    pub fn level_of(&self, serial: u64) -> Option<LogLevel> {
        self.look(serial, |live| live.level).flatten()
    }

    /// Whether the session has calls in flight.
    pub fn is_busy(&self, serial: u64) -> bool {
        self.shard(serial).calls.keys().any(|(session, _)| *session == serial)
    }

    /// Removes a session's entry if `is_over` says so.
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
                cancel.signal.cancel();
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

    /// Registers a call, so that it can be cancelled by its id.
    pub fn begin_call(self: &Arc<Self>, serial: u64, id: &[u8]) -> CallInFlight {
        let key = (serial, OwnedId::key_of(id));
        let mut shard = self.shard(serial);
        let cancel = shard.calls.entry(key.clone()).or_default();
        if cancel.signal.is_cancelled() {
            // The cancelled call is about to end; its id may be used again.
            *cancel = Cancel::default();
        }
        cancel.calls += 1;
        let cancelled = cancel.signal.clone();
        drop(shard);
        CallInFlight { lives: self.clone(), key, questions: Vec::new(), cancelled }
    }

    /// Deregisters a call, and its id with the last call that has it.
    fn end_call(&self, key: &CallKey, cancelled: &CancelSignal, questions: &[u64]) {
        let mut shard = self.shard(key.0);
        for number in questions {
            shard.questions.remove(&(key.0, *number));
        }
        let Entry::Occupied(mut cancel) = shard.calls.entry(key.clone()) else { return };
        // After a call was cancelled, another may have its id.
        if cancelled.is_cancelled() && !cancel.get().signal.is_cancelled() {
            return;
        }
        cancel.get_mut().calls -= 1;
        if cancel.get().calls == 0 {
            cancel.remove();
        }
    }

    pub fn cancel_call(&self, serial: u64, id: &[u8]) {
        let key = (serial, OwnedId::key_of(id));
        let signal = self.shard(serial).calls.get(&key).map(|cancel| cancel.signal.clone());
        if let Some(signal) = signal {
            signal.cancel();
        }
    }

    /// Passes a client's answer to whoever asked.
    pub fn take_answer(&self, serial: u64, head: &Head<'_>) {
        let Some((number, span)) = head.id.as_ref().and_then(|id| Some((id.as_u64()?, id.span.clone())))
        else {
            return;
        };
        let Some(awaiting) = self.shard(serial).questions.remove(&(serial, number)) else { return };
        match awaiting {
            Awaiting::Server(question) => {
                let mut patch = Patch::new(head.body);
                // The id that the server gave it.
                patch.replace(span, question.message()[question.id().clone()].to_vec());
                let response = patch.apply();
                question.reply(response);
            }
            Awaiting::Round(answers, index) => {
                let result = head.result.clone().filter(|_| head.kind == MessageKind::Result);
                let answer = match result {
                    Some(result) => Ok(Bytes::copy_from_slice(&head.body[result])),
                    None => Err(error_in(head)),
                };
                let _ = answers.send((index, answer));
            }
        }
    }
}

/// The message and the code of an error response.
fn error_in(head: &Head<'_>) -> String {
    let error = head.error.clone().and_then(|span| RpcError::parse(&head.body[span]));
    error.map(|error| format!("{} (code {})", error.message, error.code)).unwrap_or_default()
}

/// Registers a call in flight; dropping it deregisters the call.
pub struct CallInFlight {
    lives: Arc<LiveSessions>,
    key: CallKey,
    questions: Vec<u64>,
    pub cancelled: CancelSignal,
}

impl CallInFlight {
    /// Registers a server's question and returns it for the client, with a number of our own as its id.
    pub fn ask(&mut self, question: Question) -> Bytes {
        let number = self.next_number();
        let message = question.message().clone();
        let mut patch = Patch::new(&message);
        patch.replace(question.id().clone(), number.to_string().into_bytes());
        let asked = patch.apply();
        self.register(number, Awaiting::Server(question));
        asked
    }

    /// Registers one request of a round and returns it for the client.
    pub fn ask_for_round(
        &mut self,
        method: &str,
        params: Option<&[u8]>,
        answers: mpsc::UnboundedSender<RoundAnswer>,
        index: usize,
    ) -> Bytes {
        let number = self.next_number();
        self.register(number, Awaiting::Round(answers, index));
        authored::request(number, method, params)
    }

    /// Whether the call may have another open question.
    pub fn may_ask(&self) -> bool {
        let shard = self.lives.shard(self.key.0);
        let is_open = |number: &&u64| shard.questions.contains_key(&(self.key.0, **number));
        self.questions.iter().filter(is_open).count() < MOST_OPEN
    }

    /// Tells the server of each open question that nobody answers it.
    pub fn refuse_questions(&mut self) {
        for number in self.questions.drain(..) {
            let awaiting = self.lives.shard(self.key.0).questions.remove(&(self.key.0, number));
            match awaiting {
                Some(Awaiting::Server(question)) => question.refuse(),
                // The call itself notices that its stream is closed.
                Some(Awaiting::Round(..)) | None => {}
            }
        }
    }

    fn next_number(&self) -> u64 {
        self.lives.last_question.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn register(&mut self, number: u64, awaiting: Awaiting) {
        let mut shard = self.lives.shard(self.key.0);
        if self.questions.len() >= MOST_OPEN {
            self.questions.retain(|number| shard.questions.contains_key(&(self.key.0, *number)));
        }
        shard.questions.insert((self.key.0, number), awaiting);
        self.questions.push(number);
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.lives.end_call(&self.key, &self.cancelled, &self.questions);
    }
}
