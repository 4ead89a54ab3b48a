//! Notices about tasks that came on a link outside of any call, until they are passed on.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;

/// The most notices that wait, and the most bytes of them. A task can be asked for its state, so older ones may be lost.
const MOST_NOTICES: usize = 1000;
const MOST_BYTES: usize = 4 << 20;

#[derive(Default)]
pub struct TaskNotices(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    notices: VecDeque<Bytes>,
    bytes: usize,
}

impl TaskNotices {
    /// Adds a notice; the oldest ones are dropped if there are too many.
    pub fn add(&self, notice: Bytes) {
        let mut waiting = self.lock();
        waiting.bytes += notice.len();
        waiting.notices.push_back(notice);
        while waiting.notices.len() > 1
            && (waiting.notices.len() > MOST_NOTICES || waiting.bytes > MOST_BYTES)
        {
            let dropped = waiting.notices.pop_front().map_or(0, |notice| notice.len());
            waiting.bytes -= dropped;
        }
    }

    /// Takes all notices, in the order in which they came.
    pub fn take(&self) -> VecDeque<Bytes> {
        std::mem::take(&mut *self.lock()).notices
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("no code panics while it holds the notices")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_notices_push_out_the_oldest() {
        let notices = TaskNotices::default();
        for number in 0..MOST_NOTICES + 2 {
            notices.add(Bytes::from(number.to_string()));
        }
        let taken = notices.take();
        assert_eq!((taken.len(), &taken[0][..]), (MOST_NOTICES, &b"2"[..]));
        notices.add(Bytes::from_static(b"small"));
        notices.add(Bytes::from(vec![b'x'; MOST_BYTES + 1]));
        assert_eq!(notices.take().len(), 1, "the newest is kept, however large");
        assert!(notices.take().is_empty());
    }
}
