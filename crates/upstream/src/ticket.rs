//! What waits for one caller: notices in their order, then the answer. Whoever sorts the messages of a link puts them
//! in, the caller's task takes them out.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::error::CallError;
use super::inbound::Inbound;
use wire::Response;

/// A caller who does not read loses notices, never the answer.
const NOTICE_BACKLOG: usize = 256;

/// Both ends of one call; clones are the same.
#[derive(Clone, Default)]
pub struct Ticket(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    notices: VecDeque<Inbound>,
    answer: Option<Result<Bytes, CallError>>,
    reader: Option<Waker>,
}

impl Ticket {
    /// False when so many wait already that this one is dropped.
    pub fn add(&self, notice: Inbound) -> bool {
        let mut waiting = self.lock();
        let has_room = waiting.notices.len() < NOTICE_BACKLOG;
        if has_room {
            waiting.notices.push_back(notice);
            waiting.wake();
        }
        has_room
    }

    /// The call is over; only the first end counts.
    pub fn settle(&self, answer: Result<Bytes, CallError>) {
        let mut waiting = self.lock();
        waiting.answer.get_or_insert(answer);
        waiting.wake();
    }

    /// The next notice, and after the last one the answer.
    pub async fn next(&self) -> Result<Inbound, CallError> {
        poll_fn(|context| {
            let mut waiting = self.lock();
            if let Some(notice) = waiting.notices.pop_front() {
                return Poll::Ready(Ok(notice));
            }
            if let Some(answer) = waiting.answer.take() {
                return Poll::Ready(answer.and_then(read));
            }
            waiting.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits until the call is over, and takes nothing.
    pub async fn settled(&self) {
        poll_fn(|context| {
            let mut waiting = self.lock();
            if waiting.answer.is_some() {
                return Poll::Ready(());
            }
            waiting.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("no code panics while it holds a ticket")
    }
}

impl Waiting {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// Reads an answer here, in the task of its caller, so that a large one delays nobody else on the link. What is no whole
/// response must not reach a caller.
fn read(answer: Bytes) -> Result<Inbound, CallError> {
    match Response::read(answer) {
        Ok(response) => Ok(Inbound::Answer(response)),
        Err(error) => Err(CallError::Lost(format!("the answer is not understood: {error}"))),
    }
}
