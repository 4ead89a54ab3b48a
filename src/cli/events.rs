//! The event stream of a call, event by event, as it arrives.

use reqwest::Response;

use super::remote::{Remote, RemoteError};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub data: String,
}

pub struct Events<'a> {
    remote: &'a Remote,
    response: Response,
    received: Vec<u8>,
}

impl<'a> Events<'a> {
    pub fn new(remote: &'a Remote, response: Response) -> Self {
        Self { remote, response, received: Vec::new() }
    }

    /// The next event; none at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Event>, RemoteError> {
        loop {
            if let Some(event) = take_event(&mut self.received) {
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.received.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.remote.unreachable(&error)),
            }
        }
    }
}

/// Takes a whole event out of what was received; comments between events are nothing.
fn take_event(received: &mut Vec<u8>) -> Option<Event> {
    while let Some(end) = received.windows(2).position(|pair| pair == b"\n\n") {
        let block: Vec<u8> = received.drain(..end + 2).collect();
        let block = String::from_utf8_lossy(&block);
        let mut event = Event::default();
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
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_and_comments_not_at_all() {
        let mut received = b": ping\n\nevent: progress\ndata: {\"a\":\ndata: 1}\n\nevent: res".to_vec();
        let event = take_event(&mut received).unwrap();
        assert_eq!((event.name.as_str(), event.data.as_str()), ("progress", "{\"a\":\n1}"));
        assert_eq!(take_event(&mut received), None);
        received.extend_from_slice(b"ult\ndata: x\n\n");
        assert_eq!(take_event(&mut received).unwrap().name, "result");
    }
}
