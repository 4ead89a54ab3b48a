//! A request of a legacy server to the caller of a call: input of a person (elicitation), a completion of a model
//! (sampling), its roots. Until it is answered, the time limit of the call stands still.

use bytes::Bytes;

use super::clock::Pause;
use upstream::Replier;
use wire::{Head, Span, authored};

pub struct Question {
    message: Bytes,
    /// The id that the server gave it.
    id: Span,
    method: String,
    params: Option<Span>,
    replier: Replier,
    _pause: Pause,
}

impl Question {
    /// `None` if the message has no id to answer to.
    pub fn read(message: Bytes, replier: Replier, pause: Pause) -> Option<Self> {
        let head = Head::parse(&message).ok()?;
        let id = head.id.as_ref()?.span.clone();
        let method = head.method.as_deref()?.to_owned();
        let params = head.params.as_ref().map(|params| params.span.clone());
        drop(head);
        Some(Self { message, id, method, params, replier, _pause: pause })
    }

    /// The whole request, as the server wrote it.
    pub fn message(&self) -> &Bytes {
        &self.message
    }

    /// Where the message has its id.
    pub fn id(&self) -> &Span {
        &self.id
    }

    pub fn method(&self) -> &str {
        &self.method
    }

    pub fn params(&self) -> Option<&[u8]> {
        Some(&self.message[self.params.clone()?])
    }

    /// Answers with a result.
    pub fn answer(self, result: &[u8]) {
        self.replier.reply(authored::result(&self.message[self.id.clone()], result));
    }

    /// Answers with an error.
    pub fn fail(self, code: i32, reason: &str) {
        self.replier.reply(authored::error(Some(&self.message[self.id.clone()]), code, reason, None));
    }

    /// Sends a response that has the server's own id already.
    pub fn reply(self, response: Bytes) {
        self.replier.reply(response);
    }

    /// Tells the server that this caller cannot be asked.
    pub fn refuse(self) {
        self.replier.refuse(&self.message);
    }
}
