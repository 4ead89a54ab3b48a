//! The last lines that a server wrote to its standard error, for people who want to know why it failed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use model::Redactor;

const KEPT_LINES: usize = 200;
/// How much of a line is kept, and how much is read: secrets are redacted before it is shortened.
const KEPT_LENGTH: usize = 4096;
const READ_LENGTH: usize = 64 * 1024;

/// The last lines of all processes of a server, which may have several. It outlives them, so that the lines of a dead
/// process are still there when the next one starts.
#[derive(Clone, Default)]
pub struct StderrTail(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    /// Each with the number of the process that wrote it.
    kept: VecDeque<(u64, String)>,
    /// The number of the process that was started last.
    latest: u64,
    /// How many lines there were, including those that are not kept any more.
    count: u64,
}

/// The standard error of one process.
#[derive(Clone)]
pub struct ProcessStderr {
    tail: StderrTail,
    process: u64,
}

impl StderrTail {
    /// The standard error of a process that is about to start.
    pub fn of_next_process(&self) -> ProcessStderr {
        let mut lines = self.lock();
        lines.latest += 1;
        ProcessStderr { process: lines.latest, tail: self.clone() }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lock().kept.iter().map(|(_, line)| line.clone()).collect()
    }

    /// The kept lines after the first `seen` ones, and how many lines there were. Lines are counted from the beginning
    /// of the supervision; a larger `seen` is from an earlier one, and gets all lines.
    pub fn lines_after(&self, seen: u64) -> (Vec<String>, u64) {
        let lines = self.lock();
        let first = lines.count - lines.kept.len() as u64;
        let seen = if seen > lines.count { 0 } else { seen };
        let skipped = usize::try_from(seen.saturating_sub(first)).unwrap_or(usize::MAX);
        (lines.kept.iter().skip(skipped).map(|(_, line)| line.clone()).collect(), lines.count)
    }

    /// The last few lines of the process that was started last, for an error.
    pub fn last_words(&self, count: usize) -> String {
        let lines = self.lock();
        lines.last_words(lines.latest, count)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.0.lock().expect("no code panics while it holds the lines")
    }
}

impl Lines {
    fn last_words(&self, process: u64, count: usize) -> String {
        let written = self.kept.iter().rev().filter(|(by, _)| *by == process).take(count);
        let mut words: Vec<_> = written.map(|(_, line)| line.trim()).collect();
        words.reverse();
        words.join("\n")
    }
}

impl ProcessStderr {
    /// The last few lines of this process, for an error.
    pub fn last_words(&self, count: usize) -> String {
        self.tail.lock().last_words(self.process, count)
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
            let mut lines = self.tail.lock();
            if lines.kept.len() == KEPT_LINES {
                lines.kept.pop_front();
            }
            lines.kept.push_back((self.process, text));
            lines.count += 1;
        }
    }
}
