//! The state of the fake upstream: received messages, listeners, running calls.
//! It is shared by all transports and independent of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot, watch};

use super::behaviour::Behaviour;
use super::tasks::Task;

pub type Sender = UnboundedSender<Out>;
pub type Receiver = UnboundedReceiver<Out>;

/// One item of what a call sends to its client, in order; each transport writes it in its own way.
#[derive(Debug)]
pub enum Out {
    /// A notification or a request that comes before the response.
    Note(Value),
    /// Raw text in place of a message.
    Verbatim(String),
    /// The stream ends here; the rest is kept for a client that resumes it.
    Cut,
    Answer {
        status: u16,
        text: String,
    },
    /// An HTTP status without a message.
    Status(u16),
    /// The connection closes without a response.
    HangUp,
}

/// What ends with the server: its process, or only its listener if it runs in-process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    Process,
    Test,
}

/// One message or HTTP request as received.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The JSON-RPC method; `GET` or `DELETE` for those requests; empty for a client's response.
    pub method: String,
    pub id: Value,
    pub params: Value,
    /// Names in lower case; empty on stdio.
    pub headers: BTreeMap<String, String>,
}

/// The notifications that a listener gets.
pub enum Audience {
    /// A legacy stream gets everything except updates of resources that its session did not subscribe to.
    All,
    /// A `subscriptions/listen` request gets what its filter names, tagged with its id.
    Filter { wanted: Value, id: Value },
}

/// A request that is being served.
pub struct Running {
    pub method: String,
    pub cancel: Arc<Notify>,
}

pub struct Listener {
    pub session: String,
    pub audience: Audience,
    pub out: Sender,
}

/// A cut stream, with the number of its next event.
pub struct Parked {
    pub rest: Receiver,
    pub next: u64,
}

#[derive(Default)]
pub struct Memory {
    pub seen: Vec<Seen>,
    pub sessions: BTreeSet<String>,
    /// Sessions that sent `notifications/initialized`; on stdio the one called "".
    pub initialized: BTreeSet<String>,
    pub deleted: Vec<String>,
    /// How often each tool really ran.
    pub ran: BTreeMap<String, u64>,
    pub cancelled: Vec<Value>,
    /// The requests that are being served, by session and request id.
    pub running: HashMap<(String, String), Running>,
    /// Requests of ours that the client has not answered yet.
    pub asked: HashMap<String, oneshot::Sender<Value>>,
    pub listeners: Vec<Listener>,
    /// Streams of the legacy SSE transport by session.
    pub streams: HashMap<String, Sender>,
    pub parked: HashMap<u64, Parked>,
    /// The capabilities that the client of each session declared.
    pub declared: HashMap<String, Value>,
    /// Tools that only one session has.
    pub learned: BTreeSet<(String, String)>,
    /// Session and URI of `resources/subscribe`.
    pub subscribed: BTreeSet<(String, String)>,
    /// Tasks by the session and the id.
    pub tasks: BTreeMap<(String, String), Task>,
}

pub struct State {
    pub home: Home,
    behaviour: Mutex<Behaviour>,
    memory: Mutex<Memory>,
    serial: AtomicU64,
    /// Each new value closes every open connection.
    pub cut: watch::Sender<u64>,
    /// Held by every connection since the last cut.
    pub open: Mutex<Arc<()>>,
    /// Becomes true when the listener must close too.
    pub dead: watch::Sender<bool>,
}

impl State {
    pub fn new(behaviour: Behaviour, home: Home) -> Self {
        Self {
            home,
            behaviour: Mutex::new(behaviour),
            memory: Mutex::default(),
            serial: AtomicU64::new(1),
            cut: watch::Sender::new(0),
            open: Mutex::default(),
            dead: watch::Sender::new(false),
        }
    }

    pub fn behaviour(&self) -> Behaviour {
        self.behaviour.lock().expect("no thread panicked with the behaviour").clone()
    }

    pub fn update<T>(&self, change: impl FnOnce(&mut Behaviour) -> T) -> T {
        change(&mut self.behaviour.lock().expect("no thread panicked with the behaviour"))
    }

    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no thread panicked with the memory")
    }

    /// Writes the outcome of a call with this mark into the journal.
    pub fn record(&self, what: &str, mark: &Value) {
        let (Some(path), Some(mark)) = (self.behaviour().journal, mark.as_str()) else { return };
        let journal = OpenOptions::new().create(true).append(true).open(path);
        let written =
            journal.and_then(|mut journal| journal.write_all(format!("{what} {mark}\n").as_bytes()));
        written.expect("the test made a folder for the journal");
    }

    /// How often the journal contains this outcome.
    pub fn recorded(&self, what: &str, mark: &Value) -> usize {
        let (Some(path), Some(mark)) = (self.behaviour().journal, mark.as_str()) else { return 0 };
        recorded(&path, what, mark)
    }

    pub fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// A session id that is unique across processes, so that a restarted server does not know old ids.
    pub fn new_session(&self) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        format!("fake-{}-{:x}-{}", std::process::id(), now.as_nanos(), self.next_serial())
    }

    pub fn see(&self, message: &Value, headers: &BTreeMap<String, String>) {
        let seen = Seen {
            method: message["method"].as_str().unwrap_or_default().to_owned(),
            id: message["id"].clone(),
            params: message["params"].clone(),
            headers: headers.clone(),
        };
        self.memory().seen.push(seen);
    }

    /// Adds a listener and sends its first message in one step, so that no notification comes before it or is missed.
    pub fn listen(&self, session: &str, audience: Audience, out: &Sender, greeting: Option<Out>) {
        let mut memory = self.memory();
        if let Some(greeting) = greeting {
            // A listener that is gone is dropped with the next notification.
            let _ = out.send(greeting);
        }
        memory.listeners.push(Listener { session: session.into(), audience, out: out.clone() });
    }

    /// Sends a notification to all listeners that want it.
    pub fn notify(&self, method: &str, params: &Value) {
        let mut memory = self.memory();
        memory.listeners.retain(|listener| !listener.out.is_closed());
        for listener in &memory.listeners {
            let mut params = params.clone();
            match &listener.audience {
                Audience::All if !memory.hears(&listener.session, method, &params) => continue,
                Audience::All => {}
                Audience::Filter { wanted, .. } if !wants(wanted, method, &params) => continue,
                Audience::Filter { id, .. } => {
                    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
                }
            }
            let notice = json!({"jsonrpc": "2.0", "method": method, "params": params});
            // If a listener has just gone, the error does not matter.
            let _ = listener.out.send(Out::Note(notice));
        }
    }

    /// Sends a notification to the streams of one session.
    pub fn notify_session(&self, session: &str, method: &str) {
        for listener in self.memory().listeners.iter().filter(|listener| listener.session == session) {
            // If a listener has just gone, the error does not matter.
            let _ = listener.out.send(Out::Note(json!({"jsonrpc": "2.0", "method": method})));
        }
    }

    pub fn open_streams(&self) -> usize {
        self.memory().listeners.iter().filter(|listener| !listener.out.is_closed()).count()
    }

    /// Forgets every session; their streams end.
    pub fn drop_sessions(&self) {
        let mut memory = self.memory();
        memory.sessions.clear();
        memory.streams.clear();
        memory.subscribed.clear();
        memory.listeners.retain(|listener| matches!(listener.audience, Audience::Filter { .. }));
    }

    /// Closes all connections; the returned value can be used to wait until they are closed.
    pub fn drop_connections(&self) -> Arc<()> {
        let open = std::mem::take(&mut *self.open.lock().expect("no thread panicked with the connections"));
        self.cut.send_modify(|generation| *generation += 1);
        open
    }

    /// Ends the process or, if the server runs in-process, its listener and all connections.
    pub fn die(&self, code: i32) {
        match self.home {
            Home::Process => std::process::exit(code),
            Home::Test => {
                self.dead.send_replace(true);
            }
        }
    }
}

/// How often a journal contains this outcome for calls with this mark.
pub fn recorded(journal: &Path, what: &str, mark: &str) -> usize {
    let (journal, line) = (std::fs::read_to_string(journal).unwrap_or_default(), format!("{what} {mark}"));
    journal.lines().filter(|written| *written == line).count()
}

/// Text as bytes to send: U+F8FF becomes a byte that is not UTF-8.
pub fn bytes_of(text: String) -> Vec<u8> {
    let mut parts = text.split('\u{f8ff}');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(0xff);
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

impl Memory {
    fn hears(&self, session: &str, method: &str, params: &Value) -> bool {
        let uri = params["uri"].as_str().unwrap_or_default();
        match method {
            "notifications/resources/updated" => {
                self.subscribed.contains(&(session.to_owned(), uri.to_owned()))
            }
            // Of the modern era.
            "notifications/tasks" => false,
            _ => true,
        }
    }
}

fn wants(filter: &Value, method: &str, params: &Value) -> bool {
    match method {
        "notifications/tools/list_changed" => filter["toolsListChanged"] == true,
        "notifications/prompts/list_changed" => filter["promptsListChanged"] == true,
        "notifications/resources/list_changed" => filter["resourcesListChanged"] == true,
        "notifications/resources/updated" => {
            filter["resourceSubscriptions"].as_array().is_some_and(|uris| uris.contains(&params["uri"]))
        }
        "notifications/tasks" => {
            filter["taskIds"].as_array().is_some_and(|ids| ids.contains(&params["taskId"]))
        }
        _ => false,
    }
}
