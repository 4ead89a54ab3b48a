//! A load balancer without stickiness: each connection goes to the next gateway that accepts it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub struct Balancer {
    pub address: String,
    backends: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Balancer {
    pub async fn start(backends: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let backends = Arc::new(Mutex::new(backends));
        let accepting = tokio::spawn(accept(listener, backends.clone()));
        Self { address, backends, accepting }
    }

    /// Also sends connections to a gateway.
    pub fn add(&self, backend: &str) {
        self.backends.lock().unwrap().push(backend.to_owned());
    }

    /// Sends no more connections to a gateway.
    pub fn remove(&self, backend: &str) {
        self.backends.lock().unwrap().retain(|address| address != backend);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, backends: Arc<Mutex<Vec<String>>>) {
    let turn = AtomicUsize::new(0);
    while let Ok((mut client, _)) = listener.accept().await {
        let mut backends = backends.lock().unwrap().clone();
        let next = turn.fetch_add(1, Ordering::Relaxed) % backends.len().max(1);
        backends.rotate_left(next);
        tokio::spawn(async move {
            for backend in backends {
                if let Ok(mut server) = TcpStream::connect(backend).await {
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                    return;
                }
            }
        });
    }
}
