//! The queue of messages for one caller: notices in order, then the answer. The code that routes the messages of a link
//! adds them, the caller's task takes them out.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::error::CallError;
use super::inbound::Inbound;
use wire::Response;

/// The most notices queued for a caller; more are dropped. The answer is never dropped.
const NOTICE_BACKLOG: usize = 256;

/// The queue of one call; clones share it.
#[derive(Clone, Default)]
pub struct Ticket(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    notices: VecDeque<Inbound>,
    answer: Option<Result<Bytes, CallError>>,
    reader: Option<Waker>,
}

impl Ticket {
    /// Queues a notice or a request; false when the queue is full and it is dropped.
    pub fn add(&self, notice: Inbound) -> bool {
        let mut waiting = self.lock();
        let has_room = waiting.notices.len() < NOTICE_BACKLOG;
        if has_room {
            waiting.notices.push_back(notice);
            waiting.wake();
        }
        has_room
    }

    /// Ends the call with its answer or an error; only the first is kept.
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

    /// Waits until the call has ended, without taking the answer.
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

/// Parses an answer in the task of its caller, so that a large one delays no other call on the link. Only a complete
/// response may reach a caller.
fn read(answer: Bytes) -> Result<Inbound, CallError> {
    match Response::read(answer) {
        Ok(response) => Ok(Inbound::Answer(response)),
        Err(error) => Err(CallError::Lost(format!("the response cannot be parsed: {error}"))),
    }
}
