//! Reads the event stream of a call.

use reqwest::Response;

use super::remote::{Remote, RemoteError};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct CallEvent {
    pub name: String,
    pub data: String,
}

pub struct CallEvents<'a> {
    remote: &'a Remote,
    response: Response,
    received: EventBuffer,
}

/// Received bytes that were not yet returned as events.
#[derive(Default)]
struct EventBuffer {
    bytes: Vec<u8>,
    /// How many bytes were searched for the end of an event, so that a large event is searched only once.
    searched: usize,
}

impl<'a> CallEvents<'a> {
    pub fn new(remote: &'a Remote, response: Response) -> Self {
        Self { remote, response, received: EventBuffer::default() }
    }

    /// Returns the next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<CallEvent>, RemoteError> {
        loop {
            if let Some(event) = self.received.take_event() {
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.received.bytes.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.remote.unreachable(&error)),
            }
        }
    }
}

impl EventBuffer {
    /// Removes and returns a complete event; skips comments.
    fn take_event(&mut self) -> Option<CallEvent> {
        while let Some(end) = memchr::memmem::find(&self.bytes[self.searched..], b"\n\n") {
            let block: Vec<u8> = self.bytes.drain(..self.searched + end + 2).collect();
            self.searched = 0;
            let block = String::from_utf8_lossy(&block);
            let mut event = CallEvent::default();
            let mut data = Vec::new();
            for line in block.lines() {
                let (field, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match field {
                    "event" => event.name = value.to_owned(),
                    "data" => data.push(value),
                    _ => {}
                }
            }
            if !data.is_empty() {
                event.data = data.join("\n");
                return Some(event);
            }
        }
        self.searched = self.bytes.len().saturating_sub(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_and_comments_not_at_all() {
        let bytes = b": ping\n\nevent: progress\ndata: {\"a\":\ndata: 1}\n\nevent: res".to_vec();
        let mut received = EventBuffer { bytes, searched: 0 };
        let event = received.take_event().unwrap();
        assert_eq!((event.name.as_str(), event.data.as_str()), ("progress", "{\"a\":\n1}"));
        for piece in [&b"ult\ndata: x\n"[..], b"\nevent: more"] {
            assert_eq!(received.take_event(), None);
            received.bytes.extend_from_slice(piece);
        }
        assert_eq!(received.take_event().unwrap().name, "result");
    }
}
