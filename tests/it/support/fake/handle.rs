//! The handle of the fake upstream for tests: starts it in-process on a free port, changes it while it runs, and reads
//! what arrived. `stdio_command` starts it as a child process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

use super::behaviour::Behaviour;
use super::net;
use super::state::{Home, Seen, State};
use super::tasks;

pub struct Fake {
    state: Arc<State>,
    address: SocketAddr,
    /// Keeps the port bound while the server does not listen, so that no other test gets it.
    _port: TcpSocket,
    serving: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Fake {
    pub async fn start(behaviour: Behaviour) -> Self {
        let state = Arc::new(State::new(behaviour, Home::Test));
        let port = bind("127.0.0.1:0".parse().expect("an address")).expect("loopback has a free port");
        let address = port.local_addr().expect("a bound socket has an address");
        let listener = listen(address).expect("the port is ours");
        let serving = Some(tokio::spawn(net::serve(listener, state.clone())));
        Self { state, address, _port: port, serving }
    }

    /// Streamable HTTP.
    pub fn url(&self) -> String {
        self.url_of("/mcp")
    }

    /// Legacy HTTP+SSE.
    pub fn sse_url(&self) -> String {
        self.url_of("/sse")
    }

    /// Another route: `/moved` and `/away` redirect.
    pub fn url_of(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Everything that arrived, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.memory().seen.clone()
    }

    pub fn seen_of(&self, method: &str) -> Vec<Seen> {
        self.state.memory().seen.iter().filter(|seen| seen.method == method).cloned().collect()
    }

    pub fn forget_seen(&self) {
        self.state.memory().seen.clear();
    }

    /// Open sessions of legacy streamable HTTP.
    pub fn sessions(&self) -> Vec<String> {
        self.state.memory().sessions.iter().cloned().collect()
    }

    pub fn deleted_sessions(&self) -> Vec<String> {
        self.state.memory().deleted.clone()
    }

    /// How often the tool really ran.
    pub fn calls_of(&self, tool: &str) -> u64 {
        self.state.memory().ran.get(tool).copied().unwrap_or_default()
    }

    /// The request ids of calls that were cancelled.
    pub fn cancelled(&self) -> Vec<Value> {
        self.state.memory().cancelled.clone()
    }

    /// Calls of tools that are being served now.
    pub fn running_calls(&self) -> usize {
        self.state.memory().running.values().filter(|running| running.method == "tools/call").count()
    }

    /// Open GET, `/sse` and `subscriptions/listen` streams.
    pub fn open_streams(&self) -> usize {
        self.state.open_streams()
    }

    /// For tasks that change the behaviour later, while the test continues.
    pub fn handle(&self) -> Arc<State> {
        self.state.clone()
    }

    /// Changes the behaviour from now on; announces nothing.
    pub fn update(&self, change: impl FnOnce(&mut Behaviour)) {
        self.state.update(change);
    }

    /// Shows exactly these tools and announces the change.
    pub fn set_tools(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.state.update(|behaviour| behaviour.show_tools(&names));
        self.notify_tools_changed();
    }

    pub fn notify_tools_changed(&self) {
        self.state.notify("notifications/tools/list_changed", &json!({}));
    }

    pub fn notify_prompts_changed(&self) {
        self.state.notify("notifications/prompts/list_changed", &json!({}));
    }

    pub fn notify_resources_changed(&self) {
        self.state.notify("notifications/resources/list_changed", &json!({}));
    }

    pub fn notify_resource_updated(&self, uri: &str) {
        self.state.notify("notifications/resources/updated", &json!({"uri": uri}));
    }

    /// Finishes a task, whatever session has it, and announces that to everybody who may be told.
    pub fn finish_task(&self, id: &str, said: &str) {
        tasks::finish(&self.state, id, said);
    }

    /// The ids of all tasks that it has, in any session.
    pub fn tasks(&self) -> Vec<String> {
        self.state.memory().tasks.keys().map(|(_, id)| id.clone()).collect()
    }

    /// Forgets all sessions: their next use is 404 and their streams end.
    pub fn drop_sessions(&self) {
        self.state.drop_sessions();
    }

    /// Closes every connection immediately; the listener stays open.
    pub fn drop_connections(&self) {
        drop(self.state.drop_connections());
    }

    /// The same, and waits until all of them are closed.
    pub async fn cut_connections(&self) {
        let open = self.state.drop_connections();
        let deadline = Instant::now() + Duration::from_secs(20);
        while Arc::strong_count(&open) > 1 {
            assert!(Instant::now() < deadline, "a connection is still open");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Closes the listener and every connection, as if the process had died; sessions are gone with it.
    pub async fn stop(&mut self) {
        self.state.die(0);
        if let Some(serving) = self.serving.take() {
            // It ends by itself; a failure of the listener is an end, too.
            let _ = serving.await;
        }
        self.state.drop_sessions();
    }

    /// Starts again on the same port; stops first if it still runs.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.state.dead.send_replace(false);
        let deadline = Instant::now() + Duration::from_secs(20);
        let listener = loop {
            match listen(self.address) {
                Ok(listener) => break listener,
                // A process that another test is starting may have a copy of the old listener for a moment.
                Err(error) => assert!(Instant::now() < deadline, "the port is still ours: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        self.serving = Some(tokio::spawn(net::serve(listener, self.state.clone())));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.state.die(0);
    }
}

/// With a large backlog for bursts: connections beyond the usual 128 would be retried only after a second.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    bind(address)?.listen(1024)
}

fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// The program and arguments of a fake upstream that speaks on standard input and output. Cargo builds
/// examples before it runs tests and puts them beside the test binary's folder.
pub fn stdio_command(behaviour: &Behaviour) -> (String, Vec<String>) {
    let here = std::env::current_exe().expect("a running test has a path");
    let folder = here.parent().and_then(|deps| deps.parent()).expect("tests run in target/<profile>/deps");
    let program = folder.join("examples").join(format!("fake_upstream{}", std::env::consts::EXE_SUFFIX));
    let config = serde_json::to_string(behaviour).expect("a behaviour is JSON");
    (program.display().to_string(), vec!["--stdio".into(), "--config".into(), config])
}
