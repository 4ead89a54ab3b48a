//! What sessions hold while they hold something: an open stream, a log level, subscriptions, calls that may be
//! cancelled, questions of servers that wait for their answers. A session that holds nothing is not here.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use super::stream::Outlet;
use crate::gateway::caller::Viewer;
use crate::gateway::forward::Replier;
use crate::gateway::lists::Lists;
use crate::model::LogLevel;
use crate::wire::{Head, Patch, authored, meta, text};

#[derive(Default)]
pub struct Lives {
    sessions: Mutex<HashMap<u64, Live>>,
    calls: Mutex<HashMap<(u64, Vec<u8>), Cancel>>,
    questions: Mutex<HashMap<(u64, u64), Question>>,
    last_question: AtomicU64,
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
    pub lists: Option<Arc<Lists>>,
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
    pub fn tell_changes(&mut self, lists: &Arc<Lists>) {
        let Some(known) = self.lists.replace(lists.clone()) else { return };
        if Arc::ptr_eq(&known, lists) {
            return;
        }
        let wants = |pick: fn(&Listening) -> bool| self.listening.as_ref().is_none_or(pick);
        let resources_changed = known.resources.result != lists.resources.result
            || known.templates.result != lists.templates.result;
        for (is_told, method) in [
            (
                known.tools.result != lists.tools.result && wants(|it| it.tools),
                "notifications/tools/list_changed",
            ),
            (
                known.prompts.result != lists.prompts.result && wants(|it| it.prompts),
                "notifications/prompts/list_changed",
            ),
            (resources_changed && wants(|it| it.resources), "notifications/resources/list_changed"),
        ] {
            if is_told {
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
    pub fn sessions(&self) -> MutexGuard<'_, HashMap<u64, Live>> {
        self.sessions.lock().expect("no code panics while it holds the sessions")
    }

    /// The session's entry, made if it holds nothing yet.
    pub fn with<T>(&self, serial: u64, viewer: &Viewer, change: impl FnOnce(&mut Live) -> T) -> T {
        let mut sessions = self.sessions();
        let live = sessions.entry(serial).or_insert_with(|| Live {
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
        if let Some(live) = self.sessions().get_mut(&serial) {
            live.last_used = Instant::now();
        }
    }

    pub fn level_of(&self, serial: u64) -> Option<LogLevel> {
        self.sessions().get(&serial)?.level
    }

    /// The sessions that have calls under way.
    pub fn busy(&self) -> HashSet<u64> {
        let calls = self.calls.lock().expect("no code panics while it holds the calls");
        calls.keys().map(|(serial, _)| *serial).collect()
    }

    pub fn remove(&self, serial: u64) -> Option<Live> {
        let live = self.sessions().remove(&serial);
        if let Some(stream) = live.as_ref().and_then(|live| live.stream.as_ref()) {
            stream.end();
        }
        let mut calls = self.calls.lock().expect("no code panics while it holds the calls");
        calls.retain(|(session, _), cancel| {
            if *session == serial {
                cancel.token.cancel();
            }
            *session != serial
        });
        live
    }

    pub fn close_all(&self) {
        for live in self.sessions().values() {
            if let Some(stream) = &live.stream {
                stream.end();
            }
        }
    }

    /// From now on the call can be cancelled by its id.
    pub fn begin_call(self: &Arc<Self>, serial: u64, id: &[u8]) -> CallInFlight {
        let key = (serial, id.to_vec());
        let mut calls = self.calls.lock().expect("no code panics while it holds the calls");
        let cancel = calls.entry(key.clone()).or_default();
        if cancel.token.is_cancelled() {
            // What was cancelled is about to end; its id may be used again.
            *cancel = Cancel::default();
        }
        cancel.calls += 1;
        let cancelled = cancel.token.clone();
        drop(calls);
        CallInFlight { lives: self.clone(), key, questions: Vec::new(), cancelled }
    }

    /// Strikes out a call, and its id with the last call that has it.
    fn end_call(&self, key: &(u64, Vec<u8>), cancelled: &CancellationToken) {
        let mut calls = self.calls.lock().expect("no code panics while it holds the calls");
        let Some(cancel) = calls.get_mut(key) else { return };
        // After a call was cancelled its id may be that of another.
        if cancelled.is_cancelled() && !cancel.token.is_cancelled() {
            return;
        }
        cancel.calls -= 1;
        if cancel.calls == 0 {
            calls.remove(key);
        }
    }

    pub fn cancel_call(&self, serial: u64, id: &[u8]) {
        let key = (serial, id.to_vec());
        if let Some(cancel) = self.calls.lock().expect("no code panics while it holds the calls").get(&key) {
            cancel.token.cancel();
        }
    }

    /// A client answered; the answer goes to the server that asked, under the id that it gave.
    pub fn take_answer(&self, serial: u64, head: &Head<'_>) -> bool {
        let Some((number, span)) = head.id.as_ref().and_then(|id| Some((id.as_u64()?, id.span.clone())))
        else {
            return false;
        };
        let mut questions = self.questions.lock().expect("no code panics while it holds the questions");
        let Some(question) = questions.remove(&(serial, number)) else { return false };
        let mut patch = Patch::new(head.body);
        patch.replace(span, question.id);
        question.replier.reply(patch.apply());
        true
    }
}

/// Holds a call's place in the books; dropping it strikes the call out.
pub struct CallInFlight {
    lives: Arc<Lives>,
    key: (u64, Vec<u8>),
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
        let mut questions = self.lives.questions.lock().expect("no code panics while it holds the questions");
        questions.insert((self.key.0, number), question);
        self.questions.push(number);
        let mut patch = Patch::new(message);
        patch.replace(id.span.clone(), number.to_string().into_bytes());
        Some(patch.apply())
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        self.lives.end_call(&self.key, &self.cancelled);
        if !self.questions.is_empty() {
            let mut questions =
                self.lives.questions.lock().expect("no code panics while it holds the questions");
            for number in &self.questions {
                questions.remove(&(self.key.0, *number));
            }
        }
    }
}
