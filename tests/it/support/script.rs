//! A gateway that plays a script: one call whose events the test sends, and the answers that the command line posts.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub struct ScriptedGateway {
    pub address: String,
    /// Sends events of the call; dropping it ends the stream.
    events: UnboundedSender<String>,
    requests: UnboundedReceiver<(String, Value)>,
    refusals: Arc<Mutex<Vec<(u16, String)>>>,
}

impl ScriptedGateway {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (events, mut played) = unbounded_channel::<String>();
        let (seen, requests) = unbounded_channel();
        let refusals: Arc<Mutex<Vec<(u16, String)>>> = Arc::default();
        let planned = refusals.clone();
        tokio::spawn(async move {
            // The call comes first; its connection stays open while answers come on others.
            let (mut call, _) = listener.accept().await.unwrap();
            seen.send(receive(&mut call).await).unwrap();
            call.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await.unwrap();
            loop {
                tokio::select! {
                    event = played.recv() => match event {
                        Some(event) => drop(call.write_all(event.as_bytes()).await),
                        None => break,
                    },
                    connection = listener.accept() => {
                        let mut connection = connection.unwrap().0;
                        let request = receive(&mut connection).await;
                        let refusal = planned.lock().unwrap().pop();
                        let (status, body) = match refusal {
                            Some((status, sentence)) => (status, json!({ "error": sentence })),
                            None => (200, json!({ "open": [] })),
                        };
                        let body = body.to_string();
                        let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                        connection.write_all((head + &body).as_bytes()).await.unwrap();
                        seen.send(request).unwrap();
                    }
                }
            }
        });
        Self { address, events, requests, refusals }
    }

    pub fn send(&self, name: &str, data: &Value) {
        self.events.send(format!("event: {name}\ndata: {data}\n\n")).unwrap();
    }

    /// Refuses the next answer.
    pub fn refuse(&self, status: u16, sentence: &str) {
        self.refusals.lock().unwrap().push((status, sentence.to_owned()));
    }

    /// The next request: its method and path, and its body.
    pub async fn request(&mut self) -> (String, Value) {
        self.requests.recv().await.expect("the gateway runs")
    }
}

async fn receive(connection: &mut TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(connection);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).await.unwrap();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    let first = first.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    (first, serde_json::from_slice(&body).unwrap())
}
