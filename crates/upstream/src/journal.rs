//! The log of a server: what its processes write to standard error, and what the gateway has to say about it. Kept in
//! memory and bounded; it belongs to the server, so it outlives processes, links and upstreams.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use tokio::sync::watch;

/// What comes before the last lines in the sentence of an error.
pub const LAST_LINES: &str = "; last lines of stderr:\n";

/// The most lines that are kept.
pub const KEPT_LINES: usize = 1000;
/// The most bytes that are kept, each line counted with its overhead.
const KEPT_BYTES: usize = 256 * 1024;
/// How much of a line is kept.
const KEPT_LENGTH: usize = 4096;
/// The memory that a line needs besides its text.
const OVERHEAD: usize = 96;

/// The log of one server; clones share it.
#[derive(Clone, Default)]
pub struct Journal(Arc<Ring>);

#[derive(Default)]
struct Ring {
    lines: Mutex<Lines>,
    /// Signals that there are new lines.
    written: watch::Sender<()>,
}

#[derive(Default)]
struct Lines {
    kept: VecDeque<Arc<JournalLine>>,
    bytes: usize,
    /// How many lines there were, including those that are not kept any more.
    count: u64,
    /// The number of the process that was started last.
    processes: u64,
}

#[derive(Debug)]
pub struct JournalLine {
    pub at: SystemTime,
    pub source: LineSource,
    /// Without secrets.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSource {
    /// The standard error of the process with this number.
    Stderr(u64),
    Gateway,
}

impl LineSource {
    pub fn as_str(self) -> &'static str {
        match self {
            LineSource::Stderr(_) => "stderr",
            LineSource::Gateway => "gateway",
        }
    }
}

impl Journal {
    /// Adds what the gateway has to say about the server. The caller has removed secrets from it.
    pub fn note(&self, text: &str) {
        // The lines themselves are in the journal already.
        self.write(LineSource::Gateway, without_output(text).replace(['\n', '\r'], " "));
    }

    /// Adds a line. The caller has removed secrets from it.
    pub(super) fn write(&self, source: LineSource, mut text: String) {
        if text.len() > KEPT_LENGTH {
            text.truncate(text.floor_char_boundary(KEPT_LENGTH));
        }
        text.shrink_to_fit();
        let mut lines = self.lock();
        lines.bytes += text.len() + OVERHEAD;
        lines.kept.push_back(Arc::new(JournalLine { at: SystemTime::now(), source, text }));
        lines.count += 1;
        while lines.kept.len() > KEPT_LINES || lines.bytes > KEPT_BYTES {
            let Some(oldest) = lines.kept.pop_front() else { break };
            lines.bytes -= oldest.text.len() + OVERHEAD;
        }
        drop(lines);
        self.0.written.send_replace(());
    }

    /// The last lines, oldest first.
    pub fn tail(&self, count: usize) -> Vec<Arc<JournalLine>> {
        let lines = self.lock();
        lines.kept.iter().skip(lines.kept.len().saturating_sub(count)).cloned().collect()
    }

    /// The last kept lines of standard error, oldest first.
    pub fn stderr(&self, count: usize) -> Vec<String> {
        self.last_of(count, |source| matches!(source, LineSource::Stderr(_)))
    }

    /// The last lines that a process wrote to standard error, for an error.
    pub(super) fn last_words(&self, process: u64, count: usize) -> String {
        let words = self.last_of(count, |source| source == LineSource::Stderr(process));
        words.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n")
    }

    /// Returns a number for a process that is about to start.
    pub(super) fn next_process(&self) -> u64 {
        let mut lines = self.lock();
        lines.processes += 1;
        lines.processes
    }

    /// Reads the last lines, and then every new one.
    pub fn follow(&self, tail: usize) -> JournalReader {
        let written = self.0.written.subscribe();
        let lines = self.lock();
        let next = lines.count - tail.min(lines.kept.len()) as u64;
        JournalReader { journal: self.clone(), next, written }
    }

    pub fn is(&self, other: &Journal) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn last_of(&self, count: usize, is_wanted: impl Fn(LineSource) -> bool) -> Vec<String> {
        let lines = self.lock();
        let wanted = lines.kept.iter().rev().filter(|line| is_wanted(line.source)).take(count);
        let mut texts: Vec<_> = wanted.map(|line| line.text.clone()).collect();
        texts.reverse();
        texts
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lines.lock().expect("no code panics while it holds the lines")
    }
}

/// The sentence of an error without what the process wrote, which is in the journal: it may be anything, also the
/// arguments of a call.
pub fn without_output(sentence: &str) -> &str {
    sentence.split(LAST_LINES.trim_end()).next().unwrap_or_default()
}

/// Reads a journal as it is written. It holds no lines: a reader that is too slow misses those that are dropped
/// meanwhile.
pub struct JournalReader {
    journal: Journal,
    /// The number of the next line.
    next: u64,
    written: watch::Receiver<()>,
}

/// Some lines in a row.
#[derive(Debug)]
pub struct JournalLines {
    /// How many lines before these were dropped unread.
    pub missed: u64,
    pub lines: Vec<Arc<JournalLine>>,
}

impl JournalReader {
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Waits for lines, and returns at most `most` of them. Can be cancelled without losing a line.
    pub async fn read(&mut self, most: usize) -> JournalLines {
        loop {
            self.written.borrow_and_update();
            let read = self.read_now(most);
            if !read.lines.is_empty() {
                return read;
            }
            // The journal is held here, so its sender is never gone.
            let _ = self.written.changed().await;
        }
    }

    fn read_now(&mut self, most: usize) -> JournalLines {
        let lines = self.journal.lock();
        let first = lines.count - lines.kept.len() as u64;
        let missed = first.saturating_sub(self.next);
        let start = self.next.max(first);
        let skipped = usize::try_from(start - first).unwrap_or(usize::MAX);
        let read: Vec<_> = lines.kept.iter().skip(skipped).take(most).cloned().collect();
        self.next = start + read.len() as u64;
        JournalLines { missed, lines: read }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Arc<JournalLine>]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn the_oldest_lines_go_when_there_are_too_many() {
        let journal = Journal::default();
        for number in 0..KEPT_LINES + 5 {
            journal.note(&number.to_string());
        }
        let all = journal.tail(usize::MAX);
        assert_eq!((all.len(), all[0].text.as_str()), (KEPT_LINES, "5"));
        assert_eq!(texts(&journal.tail(2)), ["1003", "1004"]);
    }

    #[test]
    fn long_lines_are_cut_and_many_of_them_are_not_kept() {
        let journal = Journal::default();
        for _ in 0..KEPT_LINES {
            journal.write(LineSource::Stderr(1), "ä".repeat(KEPT_LENGTH));
        }
        let all = journal.tail(usize::MAX);
        assert!(all.iter().all(|line| line.text.len() == KEPT_LENGTH));
        assert_eq!(all.len(), KEPT_BYTES / (KEPT_LENGTH + OVERHEAD));
        let lines = journal.lock();
        assert_eq!(lines.bytes, lines.kept.len() * (KEPT_LENGTH + OVERHEAD));
    }

    #[test]
    fn a_note_is_one_line_and_does_not_repeat_the_output_of_the_process() {
        let journal = Journal::default();
        journal.note("npx ended (exit status: 1); last lines of stderr:\nno such package");
        journal.note("it said\nmuch");
        assert_eq!(texts(&journal.tail(9)), ["npx ended (exit status: 1)", "it said much"]);
    }

    #[test]
    fn the_last_words_are_those_of_one_process() {
        let journal = Journal::default();
        let (one, two) = (journal.next_process(), journal.next_process());
        for (process, text) in [(one, "a"), (two, "b"), (one, " c "), (one, "d")] {
            journal.write(LineSource::Stderr(process), text.to_owned());
            journal.note("between");
        }
        assert_eq!((journal.last_words(one, 2), journal.last_words(two, 2)), ("c\nd".into(), "b".into()));
        assert_eq!(journal.stderr(2), [" c ", "d"]);
    }

    #[tokio::test]
    async fn a_reader_gets_the_tail_then_every_new_line_and_learns_what_it_missed() {
        let journal = Journal::default();
        for text in ["a", "b", "c"] {
            journal.note(text);
        }
        let mut reader = journal.follow(2);
        assert_eq!(texts(&reader.read(1).await.lines), ["b"]);
        assert_eq!(texts(&reader.read(9).await.lines), ["c"]);
        let writer = journal.clone();
        let (read, ()) = tokio::join!(reader.read(9), async { writer.note("d") });
        assert_eq!((texts(&read.lines), read.missed), (vec!["d"], 0));
        for number in 0..KEPT_LINES + 7 {
            journal.note(&number.to_string());
        }
        let read = reader.read(1).await;
        assert_eq!((texts(&read.lines), read.missed), (vec!["7"], 7));
        assert_eq!((texts(&reader.read(1).await.lines), reader.read(1).await.missed), (vec!["8"], 0));
    }
}
