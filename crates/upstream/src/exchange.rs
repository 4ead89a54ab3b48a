//! One request to an upstream and everything that comes back for it, until its answer.
//! Dropping an exchange before its answer cancels the call at the upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error::CallError;
use super::http::AnswerStream;
use super::inbound::{Inbound, answered_id};
use super::link::Link;
use super::ticket::Ticket;
use wire::{Response, Version};

pub struct Exchange {
    pub(super) link: Arc<Link>,
    pub(super) id: u64,
    pub(super) ticket: Ticket,
    /// Over streamable HTTP every request has a stream of its own; this task reads it.
    pub(super) stream: Option<AnswerStream>,
    /// The revision it was sent under.
    pub(super) version: Option<Version>,
    pub(super) answered: bool,
}

impl Exchange {
    pub async fn next(&mut self) -> Result<Inbound, CallError> {
        loop {
            tokio::select! {
                biased;
                inbound = self.ticket.next() => {
                    self.answered |= !matches!(inbound, Ok(Inbound::Notice(_) | Inbound::Request(_)));
                    return inbound;
                }
                message = read(&mut self.stream) => match message {
                    // By far the most usual case needs no sorting.
                    Ok(message) if answered_id(&message) == Some(self.id) => self.ticket.settle(Ok(message)),
                    Ok(message) => self.link.take_in(message, Some(self.id)),
                    Err(error) => {
                        self.answered = true;
                        self.link.calls.signals.doubt();
                        return Err(error);
                    }
                },
            }
        }
    }

    /// Whether the upstream met the request with a status that is no success, or broke off.
    pub(super) fn is_refused(&self, sent: &Result<(), CallError>) -> bool {
        self.refused_with().is_some()
            || matches!(sent, Err(CallError::Status { .. } | CallError::Unauthorized(_) | CallError::Lost(_)))
    }

    /// The HTTP status that the answer came with, where it was no success.
    pub fn refused_with(&self) -> Option<u16> {
        match &self.stream {
            Some(AnswerStream::Refused { status, .. }) => Some(*status),
            Some(AnswerStream::Json { .. } | AnswerStream::Events(_)) | None => None,
        }
    }

    /// Waits for the answer and drops what comes before it.
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

    /// The way for an answer to something that the upstream asked.
    pub fn replier(&self) -> Replier {
        Replier(self.link.clone())
    }

    /// Tells the upstream that what it asked for is not to be had from this caller.
    pub fn refuse(&self, request: &[u8]) {
        self.link.refuse(request);
    }
}

/// Answers the questions of an upstream, also from another task than that of the call.
pub struct Replier(Arc<Link>);

impl Replier {
    /// `answer` carries the id that the upstream gave its question.
    pub fn reply(&self, answer: Bytes) {
        self.0.post(answer);
    }

    pub fn refuse(&self, question: &[u8]) {
        self.0.refuse(question);
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
