//! A stand-in for a gateway behind the balancer. It answers each request with what arrived: which stand-in it is, which of its
//! connections, and the head of the request. The response to `/stream` has two events, and goes on after each of them only when
//! the check says so.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result};

/// The events of a stream. Two, because a proxy that buffers sends the first one with the head.
pub const EVENTS: [&str; 2] = ["first", "second"];

pub struct Fake {
    pub port: u16,
    shared: Arc<Shared>,
    go_on: Sender<()>,
}

struct Shared {
    name: usize,
    connections: AtomicUsize,
    requests: AtomicUsize,
    is_closed: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
    may_go_on: Mutex<Receiver<()>>,
}

impl Fake {
    pub fn start(name: usize) -> Result<Fake> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (go_on, may_go_on) = channel();
        let shared = Arc::new(Shared {
            name,
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            streams: Mutex::new(Vec::new()),
            may_go_on: Mutex::new(may_go_on),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                if let (Ok(copy), Ok(mut streams)) = (stream.try_clone(), accepting.streams.lock()) {
                    streams.push(copy);
                }
                let serving = accepting.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        Ok(Fake { port, shared, go_on })
    }

    /// How many connections and how many requests it has had.
    pub fn seen(&self) -> (usize, usize) {
        (self.shared.connections.load(Ordering::SeqCst), self.shared.requests.load(Ordering::SeqCst))
    }

    /// Lets the response to `/stream` go on.
    pub fn go_on(&self) -> Result<()> {
        self.go_on.send(()).context("the stand-in has ended")
    }

    /// Closes its port and its connections, as a gateway that has ended.
    pub fn close(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections, which then drops the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Ok(streams) = self.shared.streams.lock() {
            for stream in streams.iter() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Shared {
    /// Answers the requests of one connection until it is closed.
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        loop {
            let head = read_head(&mut reader).ok().filter(|head| !head.is_empty())?;
            let length = header(&head, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
            let body = reader.by_ref().take(length);
            let received = std::io::copy(&mut { body }, &mut std::io::sink()).ok()?;
            self.requests.fetch_add(1, Ordering::SeqCst);
            if head.starts_with("GET /stream ") {
                // Without chunks: in this form a proxy that buffers holds events back.
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n").ok()?;
                write!(stream, "Connection: close\r\n\r\n").ok()?;
                for name in EVENTS {
                    // In one piece: each piece may become a chunk of its own.
                    stream.write_all(format!("data: {name}\n\n").as_bytes()).ok()?;
                    self.may_go_on.lock().ok()?.recv().ok()?;
                }
                return stream.shutdown(Shutdown::Both).ok();
            } else {
                let answer = format!("gateway {}\nreceived {received}\n{head}", self.name);
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).ok()?;
            }
        }
    }
}

/// Reads the head of a message, without the empty line at its end.
pub fn read_head(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            return Ok(head);
        }
        head.push_str(&line);
    }
}

/// The value of a header, by its name in lower case.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
