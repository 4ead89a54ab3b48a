//! The answer to a batch: one array, whose size is bounded whatever the answers in it are.

use bytes::Bytes;

use super::reply::{Message, Reply};
use budget::{BATCH_ANSWER_BYTES, Exceeded};
use wire::authored;
use wire::error::code;

/// The most bytes of an error that replaces an answer, without the id of its request.
const ERROR_BYTES: usize = 256;

/// The answers so far. Room for an error is reserved for each message that has no answer yet, so the whole never
/// exceeds its bound.
pub struct BatchAnswer {
    written: Vec<u8>,
    reserved: usize,
    limit: usize,
}

impl BatchAnswer {
    /// The answer to these messages.
    pub fn to(messages: &[Bytes]) -> Self {
        Self::within(BATCH_ANSWER_BYTES, messages)
    }

    fn within(limit: usize, messages: &[Bytes]) -> Self {
        let reserved = messages.iter().map(reserve).sum();
        Self { written: Vec::new(), reserved, limit }
    }

    /// Adds the reply to the next message, if it has one. A reply that does not fit becomes an error with the id of its
    /// request.
    pub fn add(
        &mut self,
        message: &Bytes,
        id: Option<&[u8]>,
        reply: Option<Reply>,
        exceeded: impl FnOnce() -> Exceeded,
    ) {
        self.reserved -= reserve(message);
        let mut pieces = reply.map(Reply::into_pieces).unwrap_or_default();
        if pieces.is_empty() {
            return;
        }
        // Bracket or comma before it, and the bracket at the end.
        let length = pieces.iter().map(Bytes::len).sum::<usize>() + 2;
        if self.written.len() + self.reserved + length > self.limit {
            pieces = vec![authored::error(id, code::INTERNAL_ERROR, &exceeded().to_string(), None)];
        }
        self.written.push(if self.written.is_empty() { b'[' } else { b',' });
        for piece in pieces {
            self.written.extend_from_slice(&piece);
        }
    }

    pub fn into_reply(mut self) -> Reply {
        if self.written.is_empty() {
            return Reply::accepted();
        }
        self.written.push(b']');
        Reply::message(Message::whole(self.written.into()))
    }
}

/// The room for an error in response to a message. The id is a part of the message.
fn reserve(message: &Bytes) -> usize {
    message.len() + ERROR_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::Bound;

    #[test]
    fn answers_that_do_not_fit_are_errors_with_their_ids() {
        let ids: Vec<String> = (0..100).map(|number| format!("\"{}{number}\"", "x".repeat(50))).collect();
        let messages: Vec<Bytes> = ids.iter().map(|id| format!(r#"{{"id":{id}}}"#).into()).collect();
        let limit = 64 * 1024;
        let mut answer = BatchAnswer::within(limit, &messages);
        let (mut refused, big) = (0, Bytes::from(format!("{:?}", "x".repeat(10_000))));
        for (number, (message, id)) in messages.iter().zip(&ids).enumerate() {
            let whole = if number == 99 { Bytes::from_static(b"7") } else { big.clone() };
            answer.add(message, Some(id.as_bytes()), Some(Reply::whole(whole)), || {
                refused += 1;
                Exceeded { bound: Bound::BatchAnswer, limit: limit as u64 }
            });
        }
        let whole = answer.into_reply().into_message().unwrap();
        assert!(whole.len() <= limit, "{}", whole.len());
        let answers: Vec<serde_json::Value> = serde_json::from_slice(&whole).unwrap();
        assert_eq!(answers.len(), 100);
        assert!((90..97).contains(&refused), "{refused}");
        assert_eq!(answers[50]["error"]["code"], -32603);
        assert_eq!(format!("\"{}\"", answers[50]["id"].as_str().unwrap()), ids[50]);
        assert_eq!(answers[99], 7);
    }

    #[test]
    fn a_batch_without_answers_is_accepted() {
        let message = Bytes::from_static(b"{}");
        let mut answer = BatchAnswer::to(std::slice::from_ref(&message));
        answer.add(&message, None, Some(Reply::accepted()), || unreachable!("nothing is refused"));
        assert!(answer.into_reply().into_message().is_none());
    }
}
