//! Somebody who stores things all the time while a test breaks something, and knows what must be there afterwards.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::gateways::Gateways;
use super::support::{ModernAgent, TestApp, eventually};
use super::{epoch, get_since};

/// How many more changes show that changes are stored.
const ROUNDS: usize = 5;

/// How many of them were started.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Creates groups, clients and servers, one after the other.
pub struct Writes {
    progress: Arc<Progress>,
    writing: JoinHandle<Vec<Written>>,
}

#[derive(Default)]
struct Progress {
    has_ended: AtomicBool,
    stored: AtomicUsize,
}

/// A change that was requested.
struct Written {
    name: String,
    kind: Kind,
    /// The token, if it was a client.
    token: Option<String>,
    is_stored: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Group,
    Client,
    Server,
}

impl Kind {
    /// Servers are few, because each is connected.
    fn of(number: usize) -> Self {
        match number {
            number if number % 10 == 0 => Kind::Server,
            number if number % 2 == 0 => Kind::Group,
            _ => Kind::Client,
        }
    }

    fn collection(self) -> &'static str {
        match self {
            Kind::Group => "tool-groups",
            Kind::Client => "clients",
            Kind::Server => "servers",
        }
    }

    fn input(self, name: &str, server: &str) -> Value {
        let mut input = json!({ "name": name, "description": name });
        match self {
            Kind::Group => input["included_tools"] = json!(["s__echo"]),
            Kind::Client => input["allow_list"] = json!(["s"]),
            Kind::Server => {
                input["transport"] = json!("streamable_http");
                input["url"] = json!(server);
            }
        }
        input
    }
}

impl Writes {
    /// Through the balancer.
    pub fn start(gateways: &Gateways) -> Self {
        Self::start_at(gateways, &gateways.all)
    }

    /// At one of the gateways.
    pub fn start_at(gateways: &Gateways, gateway: &TestApp) -> Self {
        let progress = Arc::new(Progress::default());
        let gateway = TestApp::elsewhere(&gateway.address, gateway.authorization.clone());
        let writing = tokio::spawn(write(gateway, gateways.fake.url(), progress.clone()));
        Self { progress, writing }
    }

    /// Waits until more changes were stored.
    pub async fn go_on(&self) {
        let stored = || self.progress.stored.load(Ordering::Relaxed);
        let before = stored();
        eventually("changes are stored", || async { stored() >= before + ROUNDS }).await;
    }

    /// Ends, and checks that all gateways show the same: every change that was confirmed, and of the others each as a whole or
    /// nothing of it.
    pub async fn check(self, gateways: &Gateways) {
        self.progress.has_ended.store(true, Ordering::Relaxed);
        let written = self.writing.await.expect("every change is stored or refused with a reason");
        let last = gateways.each[0]
            .create_group(&format!("last-{}", COUNT.fetch_add(1, Ordering::Relaxed)))
            .await
            .expect(201);
        let mut views = Vec::new();
        for gateway in &gateways.each {
            let mut view = Vec::new();
            for kind in [Kind::Group, Kind::Client, Kind::Server] {
                let path = format!("/api/v0/{}", kind.collection());
                view.push(read_since(&gateway.app, &epoch(&last), &path).await);
            }
            view.push(gateway.app.get("/api/v0/tools").await.expect(200).json());
            views.push(view);
        }
        for change in &written {
            let shown: Vec<_> = views.iter().map(|view| change.is_in(view)).collect();
            assert!(shown.iter().all(|is_there| *is_there == shown[0]), "{}: {shown:?}", change.name);
            assert!(shown[0] || !change.is_stored, "{} was confirmed and is not there", change.name);
        }
        let tokens = written.iter().filter_map(|change| change.token.as_deref());
        for token in tokens.take(1).chain(written.iter().rev().find_map(|change| change.token.as_deref())) {
            let agent = ModernAgent::at(&gateways.all, "/mcp").using(token);
            assert_eq!(agent.call_text("s__echo", json!({ "text": "hi" })).await, "hi");
        }
    }
}

impl Written {
    /// Whether it is in what a gateway shows; if so, as a whole.
    fn is_in(&self, view: &[Value]) -> bool {
        let find = |list: &Value, name: &str| {
            list.as_array().unwrap().iter().find(|row| row["name"] == name).cloned()
        };
        let Some(row) = find(&view[self.kind as usize], &self.name) else { return false };
        assert_eq!(row["description"], json!(self.name), "{row}");
        match self.kind {
            Kind::Group => assert_eq!(row["included_tools"], json!(["s__echo"]), "{row}"),
            Kind::Client => assert_eq!(row["allow_list"], json!(["s"]), "{row}"),
            Kind::Server => {
                let tool = format!("{}__echo", self.name);
                assert!(find(&view[3], &tool).is_some(), "{} has no tools", self.name);
            }
        }
        true
    }
}

/// What a gateway shows once it knows all changes up to an epoch.
async fn read_since(gateway: &TestApp, epoch: &str, path: &str) -> Value {
    let shown = Mutex::new(Value::Null);
    eventually("the changes are known", || async {
        let answer = get_since(gateway, epoch, path).await;
        *shown.lock().unwrap() = answer.json();
        answer.status == 200
    })
    .await;
    shown.into_inner().unwrap()
}

async fn write(gateway: TestApp, server: String, progress: Arc<Progress>) -> Vec<Written> {
    let (mut written, own) = (Vec::new(), COUNT.fetch_add(1, Ordering::Relaxed));
    while !progress.has_ended.load(Ordering::Relaxed) {
        let number = written.len();
        // Unique among all that write at the same time.
        let (name, kind) = (format!("w{number}-{own}"), Kind::of(number));
        let path = format!("/api/v0/{}", kind.collection());
        let answer = gateway.post(&path, kind.input(&name, &server)).await;
        let token = match answer.status {
            201 => answer.json()["access_token"].as_str().map(str::to_owned),
            503 => {
                assert!(!answer.error().is_empty());
                None
            }
            other => panic!("{kind:?} {name}: {other} {}", answer.text()),
        };
        let is_stored = answer.status == 201;
        progress.stored.fetch_add(is_stored.into(), Ordering::Relaxed);
        written.push(Written { name, kind, token, is_stored });
    }
    written
}
