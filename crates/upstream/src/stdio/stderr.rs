//! What the processes of a server write to standard error: goes to its journal, and the last lines into errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use crate::journal::{Journal, LineSource};
use model::Redactor;

/// How much of a line is read: secrets are redacted before it is shortened.
const READ_LENGTH: usize = 64 * 1024;

/// The standard error of all processes of an upstream, which may have several.
#[derive(Clone)]
pub struct Stderr {
    pub journal: Journal,
    /// The number of the process that was started last.
    latest: Arc<AtomicU64>,
}

/// The standard error of one process.
#[derive(Clone)]
pub struct ProcessStderr {
    journal: Journal,
    process: u64,
}

impl Stderr {
    pub fn new(journal: Journal) -> Self {
        Self { journal, latest: Arc::default() }
    }

    /// The standard error of a process that is about to start.
    pub fn of_next_process(&self) -> ProcessStderr {
        let process = self.journal.next_process();
        self.latest.store(process, Ordering::Relaxed);
        ProcessStderr { journal: self.journal.clone(), process }
    }

    /// The last few lines of the process that was started last, for an error.
    pub fn last_words(&self, count: usize) -> String {
        self.journal.last_words(self.latest.load(Ordering::Relaxed), count)
    }
}

impl ProcessStderr {
    /// Notes in the journal what happened to the process.
    pub fn note(&self, happened: &str) {
        self.journal.note(&format!("process {} {happened}", self.process));
    }

    /// The last few lines of this process, for an error.
    pub fn last_words(&self, count: usize) -> String {
        self.journal.last_words(self.process, count)
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
            let text = redactor.redact(String::from_utf8_lossy(&line).trim_end());
            self.journal.write(LineSource::Stderr(self.process), text);
        }
    }
}
