//! Event streams to clients. The queue of a stream is limited in messages and in bytes; one that is read slowly or not
//! at all is closed at the limit, without effect on others. The largest message does not count, so one of any size
//! passes. What is queued is charged to the budget of bytes in transit.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::{Interval, interval};
use tokio_util::sync::CancellationToken;

use budget::{Budget, Exceeded, Taken};
use wire::error::code;
use wire::{authored, find_answer_id, sse};

const MAX_MESSAGES: usize = 1000;
const MAX_BYTES: usize = 1024 * 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A message larger than this is charged by itself until it is sent; smaller ones are charged together, in steps of this
/// size, and a queue with less than one step is free.
const CHARGED: usize = 16 * 1024;
/// How long a writer waits for a slow reader.
const PATIENCE: Duration = Duration::from_secs(2);

/// The writing end; clones write to the same stream.
#[derive(Clone)]
pub struct Outlet {
    queue: Arc<Mutex<Queue>>,
    /// Cancelled when the stream has ended, by either side.
    pub gone: CancellationToken,
}

struct Queue {
    frames: VecDeque<Bytes>,
    bytes: usize,
    budget: Budget,
    /// What the small messages take of the budget.
    charge: Option<Taken>,
    small_bytes: usize,
    reader: Option<Waker>,
    /// Writers that wait until there is room again.
    writers: Vec<Waker>,
    /// A writer timed out waiting for room; no writer waits until the reader reads again.
    is_stalled: bool,
    /// No more messages are accepted; queued ones are still sent.
    is_finished: bool,
    is_gone: bool,
}

/// The reading end, which is the body of an HTTP response.
pub struct EventBody {
    queue: Arc<Mutex<Queue>>,
    gone: CancellationToken,
    keep_alive: Interval,
    /// The part of the budget that an open stream takes; the answer of a call takes none.
    _slot: Option<Taken>,
}

/// Opens the answer of a call.
pub fn open(budget: &Budget) -> (Outlet, EventBody) {
    open_with(budget, None)
}

/// Opens a stream that lasts, with the part of its principal's budget that it takes until its body is dropped.
pub fn open_in(budget: &Budget, slot: Taken) -> (Outlet, EventBody) {
    open_with(budget, Some(slot))
}

fn open_with(budget: &Budget, slot: Option<Taken>) -> (Outlet, EventBody) {
    let (queue, gone) = (Arc::new(Mutex::new(Queue::new(budget.clone()))), CancellationToken::new());
    let mut keep_alive = interval(KEEP_ALIVE);
    keep_alive.reset();
    (Outlet { queue: queue.clone(), gone: gone.clone() }, EventBody { queue, gone, keep_alive, _slot: slot })
}

impl Outlet {
    pub fn send(&self, message: &[u8]) {
        self.send_event("message", message);
    }

    pub fn send_event(&self, event: &str, data: &[u8]) {
        let mut queue = self.queue.lock().expect("no code panics while it holds a stream");
        if queue.is_finished || queue.is_gone {
            return;
        }
        let queued = queue.push(sse::frame(Some(event), data)).or_else(|exceeded| match exceeded {
            Some(exceeded) => queue.push(instead_of(data, exceeded).ok_or(Some(exceeded))?),
            None => Err(None),
        });
        if queued.is_err() {
            tracing::warn!(waiting = queue.frames.len(), "closed an event stream that is not read");
            queue.clear();
            queue.is_gone = true;
            self.gone.cancel();
        }
        queue.wake();
    }

    /// Passes on what is framed already.
    pub fn pass(&self, frames: Bytes) {
        let mut queue = self.queue.lock().expect("no code panics while it holds a stream");
        if queue.is_finished || queue.is_gone {
            return;
        }
        if queue.push(frames).is_err() {
            queue.clear();
            queue.is_gone = true;
            self.gone.cancel();
        }
        queue.wake();
    }

    /// Waits until the queue has room, before a message of a kind that may be very frequent. The timeout is short,
    /// because a reader may never read.
    pub async fn room(&self) {
        let room = poll_fn(|context| {
            let mut queue = self.queue.lock().expect("no code panics while it holds a stream");
            if queue.has_room() || queue.is_stalled || queue.is_finished || queue.is_gone {
                return Poll::Ready(());
            }
            queue.writers.push(context.waker().clone());
            Poll::Pending
        });
        if tokio::time::timeout(PATIENCE, room).await.is_err() {
            self.queue.lock().expect("no code panics while it holds a stream").is_stalled = true;
        }
    }

    /// Ends the stream after the queued messages.
    pub fn finish(&self) {
        let mut queue = self.queue.lock().expect("no code panics while it holds a stream");
        queue.is_finished = true;
        queue.wake();
    }
}

/// The event in place of an answer that does not fit into the budget; `None` for other messages.
fn instead_of(message: &[u8], exceeded: Exceeded) -> Option<Bytes> {
    let id = find_answer_id(message)?;
    let error = authored::error(Some(&message[id]), code::INTERNAL_ERROR, &exceeded.to_string(), None);
    Some(sse::frame(Some("message"), &error))
}

impl Queue {
    fn new(budget: Budget) -> Self {
        Self {
            frames: VecDeque::new(),
            bytes: 0,
            budget,
            charge: None,
            small_bytes: 0,
            reader: None,
            writers: Vec::new(),
            is_stalled: false,
            is_finished: false,
            is_gone: false,
        }
    }

    /// Queues a frame, unless the queue is full (`None`) or the budget is.
    fn push(&mut self, frame: Bytes) -> Result<(), Option<Exceeded>> {
        if self.frames.len() >= MAX_MESSAGES || self.is_too_large_with(frame.len()) {
            return Err(None);
        }
        let length = frame.len();
        let frame = match length > CHARGED {
            true => budget::charged(frame, self.budget.take(length as u64)?),
            false => {
                self.charge_small(self.small_bytes + length)?;
                self.small_bytes += length;
                frame
            }
        };
        self.bytes += length;
        self.frames.push_back(frame);
        Ok(())
    }

    fn pop(&mut self) -> Option<Bytes> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len();
        if frame.len() <= CHARGED {
            self.small_bytes -= frame.len();
            if self.small_bytes == 0 {
                self.charge = None;
            }
        }
        Some(frame)
    }

    fn charge_small(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let needed = (bytes / CHARGED * CHARGED) as u64;
        match &mut self.charge {
            _ if needed == 0 => {}
            None => self.charge = Some(self.budget.take(needed)?),
            Some(charge) => charge.grow(needed.saturating_sub(charge.amount()))?,
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.frames.clear();
        (self.bytes, self.small_bytes, self.charge) = (0, 0, None);
    }

    /// The largest message does not count, so that one of any size passes wherever it is in the queue.
    fn is_too_large_with(&self, more: usize) -> bool {
        let all = self.bytes + more;
        let largest = || self.frames.iter().map(Bytes::len).fold(more, usize::max);
        all > MAX_BYTES && all - largest() > MAX_BYTES
    }

    fn has_room(&self) -> bool {
        self.frames.len() < MAX_MESSAGES / 2 && self.bytes < MAX_BYTES / 2
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_writers(&mut self) {
        for writer in self.writers.drain(..) {
            writer.wake();
        }
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        {
            let mut queue = self.queue.lock().expect("no code panics while it holds a stream");
            if let Some(frame) = queue.pop() {
                queue.is_stalled = false;
                if !queue.writers.is_empty() && queue.has_room() {
                    queue.wake_writers();
                }
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            if queue.is_finished || queue.is_gone {
                return Poll::Ready(None);
            }
            queue.reader = Some(context.waker().clone());
        }
        if self.keep_alive.poll_tick(context).is_ready() {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": still here\n\n")))));
        }
        Poll::Pending
    }
}

impl Drop for EventBody {
    fn drop(&mut self) {
        let mut queue = self.queue.lock().expect("no code panics while it holds a stream");
        queue.is_gone = true;
        queue.clear();
        queue.wake_writers();
        drop(queue);
        self.gone.cancel();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use budget::Budgets;

    fn plenty() -> Budget {
        Budgets::default().buffered
    }

    #[tokio::test]
    async fn what_is_queued_is_charged_until_it_is_sent() {
        let budget = plenty();
        let (outlet, mut body) = open(&budget);
        outlet.send(b"small");
        assert_eq!(budget.used(), 0);
        outlet.send(&[b'x'; 2 * CHARGED]);
        let large = budget.used();
        assert!(large >= 2 * CHARGED as u64);
        for _ in 0..20 {
            outlet.send(&[b'x'; 1000]);
        }
        assert_eq!(budget.used(), large + CHARGED as u64);
        body.frame().await.unwrap().unwrap();
        let sent = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(budget.used(), large + CHARGED as u64);
        drop((sent, body));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_is_an_error_and_another_message_ends_the_stream() {
        let limits = budget::Limits { buffered_bytes: 1000, ..budget::Limits::default() };
        let (outlet, mut body) = open(&Budgets::new(limits).buffered);
        let text = "x".repeat(CHARGED);
        outlet.send(format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{text}"}}}}"#).as_bytes());
        let sent = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let sent = str::from_utf8(&sent).unwrap();
        assert!(
            sent.contains(r#""id":7"#) && sent.contains("-32603") && !outlet.gone.is_cancelled(),
            "{sent}"
        );
        outlet.send(
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"text":"{text}"}}}}"#)
                .as_bytes(),
        );
        assert!(outlet.gone.is_cancelled());
    }

    #[tokio::test]
    async fn an_unread_stream_is_closed_when_it_is_full() {
        let (outlet, mut body) = open(&plenty());
        for _ in 0..MAX_MESSAGES {
            outlet.send(b"x");
        }
        assert!(!outlet.gone.is_cancelled());
        outlet.send(b"x");
        assert!(outlet.gone.is_cancelled());
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_reader_who_reads_gets_any_number_of_messages() {
        let (outlet, mut body) = open(&plenty());
        let all = 5 * MAX_MESSAGES;
        let writing = tokio::spawn(async move {
            for _ in 0..all {
                outlet.room().await;
                outlet.send(b"x");
            }
            outlet.finish();
            outlet.gone.is_cancelled()
        });
        let mut read = 0;
        while body.frame().await.is_some() {
            read += 1;
        }
        assert_eq!((read, writing.await.unwrap()), (all, false));
    }

    #[tokio::test]
    async fn a_single_message_of_any_size_passes() {
        let (outlet, mut body) = open(&plenty());
        outlet.send(&vec![b'x'; 3 * MAX_BYTES]);
        let sent = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(sent.len() > 3 * MAX_BYTES);
        // Also with other messages before and after it.
        outlet.send(b"first");
        outlet.send(&vec![b'x'; 3 * MAX_BYTES]);
        outlet.send(b"last");
        outlet.finish();
        assert!(body.frame().await.is_some());
        assert!(body.frame().await.is_some());
        assert!(body.frame().await.is_some());
        assert!(body.frame().await.is_none());
    }
}
