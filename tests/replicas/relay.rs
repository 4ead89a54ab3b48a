//! A path to a database that a test can lead elsewhere, or cut.

use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Relay {
    pub address: String,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
    /// Connections that were open during a silence. They are neither served nor closed, whatever happens after it.
    silent: Arc<Mutex<Vec<TcpStream>>>,
}

#[derive(Clone)]
struct State {
    server: String,
    is_silent: bool,
}

impl Relay {
    pub async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = watch::Sender::new(State { server: server.to_owned(), is_silent: false });
        let silent = Arc::new(Mutex::new(Vec::new()));
        let accepting = tokio::spawn(accept(listener, state.subscribe(), silent.clone()));
        Self { address, state, accepting, silent }
    }

    /// The URL of a database that is reached through this relay.
    pub fn url(&self, database: &str) -> String {
        let (scheme, place) = database.rsplit_once('@').expect("the URL names a user");
        let (_, name) = place.split_once('/').expect("the URL names a database");
        format!("{scheme}@{}/{name}", self.address)
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, server: &str) {
        self.state.send_modify(|state| server.clone_into(&mut state.server));
    }

    /// Passes nothing on any more, and closes nothing.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.is_silent = true);
    }

    /// Serves new connections again.
    pub fn mend(&self) {
        self.state.send_modify(|state| state.is_silent = false);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<State>, silent: Arc<Mutex<Vec<TcpStream>>>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(serve(client, state.clone(), silent.clone()));
    }
}

async fn serve(mut client: TcpStream, mut state: watch::Receiver<State>, silent: Arc<Mutex<Vec<TcpStream>>>) {
    let State { server, is_silent } = state.borrow_and_update().clone();
    if is_silent {
        return silent.lock().unwrap().push(client);
    }
    // A server that is not there: the connection is closed.
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        Ok(_) = state.wait_for(|state| state.is_silent) => silent.lock().unwrap().extend([client, server]),
    }
}
