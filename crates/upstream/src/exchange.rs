//! One request to an upstream and all messages that come back for it, up to its answer.
//! Dropping an exchange before its answer cancels the call at the upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error::CallError;
use super::http::AnswerStream;
use super::inbound::{Inbound, answered_id};
use super::link::Link;
use super::ticket::Ticket;
use wire::{Head, Patch, Response, Version, meta, text};

pub struct Exchange {
    pub(super) link: Arc<Link>,
    pub(super) id: u64,
    pub(super) ticket: Ticket,
    /// Over streamable HTTP every request has a stream of its own, which the caller's task reads.
    pub(super) stream: Option<AnswerStream>,
    /// The protocol revision that the request was sent with.
    pub(super) version: Option<Version>,
    pub(super) answered: bool,
}

impl Exchange {
    /// The id by which the upstream knows the request.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub async fn next(&mut self) -> Result<Inbound, CallError> {
        loop {
            tokio::select! {
                biased;
                inbound = self.ticket.next() => {
                    self.answered |= !matches!(inbound, Ok(Inbound::Notice(_) | Inbound::Request(_)));
                    return inbound;
                }
                message = read(&mut self.stream) => match message {
                    // By far the most common case needs no routing: this is the answer, and everything that came before
                    // it was taken out of the ticket.
                    Ok(message) if let Some(answer) = self.answer_in(&message) => {
                        self.answered = true;
                        return Ok(Inbound::Answer(answer));
                    }
                    Ok(message) if answered_id(&message) == Some(self.id) => self.ticket.settle(Ok(message)),
                    Ok(message) => self.link.take_in(message, Some(self.id)),
                    Err(error) => {
                        self.answered = true;
                        // An answer that is too large does not mean a broken link.
                        if !matches!(error, CallError::Exceeded(_) | CallError::NoRoom(_)) {
                            self.link.calls.signals.doubt();
                        }
                        return Err(error);
                    }
                },
            }
        }
    }

    /// The answer to this request, if the message is one.
    fn answer_in(&self, message: &Bytes) -> Option<Response> {
        let response = Response::read(message.clone()).ok()?;
        let is_own = response.id().and_then(|id| id.as_u64()) == Some(self.id);
        is_own.then_some(response)
    }

    /// Whether the upstream refused the request with an HTTP status, or the connection broke.
    pub(super) fn is_refused(&self, sent: &Result<(), CallError>) -> bool {
        self.refused_with().is_some()
            || matches!(sent, Err(CallError::Status { .. } | CallError::Unauthorized(_) | CallError::Lost(_)))
    }

    /// Whether the response has begun: over streamable HTTP its head has arrived when the request is sent.
    pub fn has_begun(&self) -> bool {
        self.stream.is_some()
    }

    /// The HTTP status of the answer, if it was not a success.
    pub fn refused_with(&self) -> Option<u16> {
        match &self.stream {
            Some(AnswerStream::Refused { status, .. }) => Some(*status),
            Some(AnswerStream::Json { .. } | AnswerStream::Events(_)) | None => None,
        }
    }

    /// Waits for the answer; drops notices and refuses requests that come before it.
    pub async fn answer(mut self, limit: Option<Duration>) -> Result<Response, CallError> {
        let answer = async {
            loop {
                match self.next().await? {
                    Inbound::Answer(answer) => return Ok(answer),
                    Inbound::Notice(_) => {}
                    Inbound::Request(request) => self.link.refuse(&request),
                }
            }
        };
        match limit {
            None => answer.await,
            Some(limit) => {
                tokio::time::timeout(limit, answer).await.unwrap_or(Err(CallError::TimedOut(limit)))
            }
        }
    }

    /// A handle for answering the upstream's requests.
    pub fn replier(&self) -> Replier {
        Replier { link: self.link.clone(), call: self.id, task: None }
    }

    /// Notes whether the upstream waits for the caller, who was told so and is gone meanwhile.
    pub fn set_parked(&self, is_parked: bool) {
        self.link.calls.set_parked(self.id, is_parked);
    }

    /// Refuses a request of the upstream that this caller cannot answer.
    pub fn refuse(&self, request: &[u8]) {
        self.link.refuse(request);
    }
}

/// Answers requests of an upstream; may be used from other tasks than that of the call.
pub struct Replier {
    link: Arc<Link>,
    /// The call during which the upstream asked.
    call: u64,
    /// The task that the request is related to.
    task: Option<RelatedTask>,
}

/// A task that clients know under another id than its server.
pub struct RelatedTask {
    pub shown_as: String,
    pub known_as: String,
}

impl Replier {
    /// Gives the answer the id under which the upstream knows the task.
    pub fn about(self, task: Option<RelatedTask>) -> Self {
        Self { task, ..self }
    }

    /// Sends an answer, which must carry the id that the upstream gave its request.
    pub fn reply(&self, answer: Bytes) {
        let renamed = self.task.as_ref().and_then(|task| task.rename_in(&answer));
        self.link.post_answer(renamed.unwrap_or(answer), self.call);
    }

    pub fn refuse(&self, question: &[u8]) {
        self.link.refuse(question);
    }
}

impl RelatedTask {
    /// The answer with the upstream's own id of the task; `None` if it does not name the task.
    fn rename_in(&self, answer: &Bytes) -> Option<Bytes> {
        let id = meta::related_task_id(answer, &Head::parse(answer).ok()?.result?)?;
        text::unescape(&answer[id.clone()]).filter(|id| *id == self.shown_as)?;
        let mut patch = Patch::new(answer);
        patch.replace(id, text::quote(&self.known_as));
        Some(patch.apply())
    }
}

async fn read(stream: &mut Option<AnswerStream>) -> Result<Bytes, CallError> {
    match stream {
        Some(stream) => stream.next_message().await,
        None => std::future::pending().await,
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.link.calls.end(self.id);
        if !self.answered {
            self.link.cancel(self.id, self.version);
        }
    }
}
