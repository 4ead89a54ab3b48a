//! The last failed calls of a server, for people who look for the cause. Kept in memory only, without secrets.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::SystemTime;

use model::Redactor;

const KEPT: usize = 20;
const KEPT_LENGTH: usize = 400;

#[derive(Clone, Debug)]
pub struct FailureNote {
    pub at: SystemTime,
    /// The name of the tool at the server.
    pub tool: String,
    pub reason: String,
}

#[derive(Default)]
pub struct Failures(Mutex<VecDeque<FailureNote>>);

impl Failures {
    /// Records a failed call; returns the reason as it is kept.
    pub fn note(&self, tool: &str, reason: &str, redactor: &Redactor) -> String {
        let mut reason = redactor.redact(reason);
        reason.truncate(reason.floor_char_boundary(KEPT_LENGTH));
        let mut kept = self.0.lock().expect("no code panics while it holds the failures");
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(FailureNote { at: SystemTime::now(), tool: tool.to_owned(), reason: reason.clone() });
        reason
    }

    /// Oldest first.
    pub fn all(&self) -> Vec<FailureNote> {
        self.0.lock().expect("no code panics while it holds the failures").iter().cloned().collect()
    }
}
