//! The last lines that a server wrote to its standard error, for people who want to know why it failed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use crate::model::Redactor;

const KEPT_LINES: usize = 200;
/// What is kept of a line, and what is read of it: secrets are found before it is shortened.
const KEPT_LENGTH: usize = 4096;
const READ_LENGTH: usize = 64 * 1024;

/// Outlives the process, so that the words of the one that died are still there when the next one starts.
#[derive(Clone, Default)]
pub struct StderrTail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl StderrTail {
    pub fn lines(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    /// The last few lines in one, for a sentence.
    pub fn last_words(&self, count: usize) -> String {
        let lines = self.lock();
        let skipped = lines.len().saturating_sub(count);
        lines.iter().skip(skipped).map(|line| line.trim()).collect::<Vec<_>>().join(" | ")
    }

    /// Forgets what an earlier process said.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// Reads until the last writer is gone; lines are kept without the server's secrets.
    pub async fn collect(self, stderr: impl AsyncRead + Unpin, redactor: Redactor) {
        let mut reader = BufReader::new(stderr);
        let (mut line, mut is_rest) = (Vec::new(), false);
        loop {
            line.clear();
            let limited = (&mut reader).take(READ_LENGTH as u64).read_until(b'\n', &mut line).await;
            if !matches!(limited, Ok(1..)) {
                return;
            }
            let was_rest = std::mem::replace(&mut is_rest, line.last() != Some(&b'\n'));
            if was_rest {
                continue;
            }
            let mut text = redactor.redact(String::from_utf8_lossy(&line).trim_end());
            text.truncate(text.floor_char_boundary(KEPT_LENGTH));
            let mut lines = self.lock();
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(text);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().expect("no code panics while it holds the lines")
    }
}
