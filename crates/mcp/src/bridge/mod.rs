//! Joins clients and servers of different eras or of different capabilities. Input that a legacy server asks a modern
//! client for parks the call (`parking`, `open_questions`); input that a modern server asks a legacy client for becomes
//! requests to the client (`asking`). `state` is what a client keeps meanwhile, `need` what it must have declared.

pub mod asking;
mod fingerprint;
pub mod need;
pub mod open_questions;
pub mod parking;
pub mod state;

use gateway::caller::Logs;
use model::LogLevel;
use wire::{Head, text, walk};

/// Whether a notice passes the log level that a client wants; notices other than log messages always pass.
pub fn log_passes(notice: &[u8], wanted: Logs) -> bool {
    if wanted == Logs::All {
        return true;
    }
    let Ok(head) = Head::parse(notice) else { return false };
    if head.method.as_deref() != Some("notifications/message") {
        return true;
    }
    let Logs::From(wanted) = wanted else { return false };
    let level = head.params.and_then(|params| walk::member(notice, &params.span, "level"));
    let level = level.and_then(|span| text::unescape(&notice[span]));
    level.and_then(|level| LogLevel::parse(&level)).is_none_or(|level| level >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_below_the_wanted_level_are_held_back() {
        let log = |level: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":1}}}}"#
            )
        };
        let from = |level: &str| Logs::From(LogLevel::parse(level).unwrap());
        assert!(log_passes(log("error").as_bytes(), from("warning")));
        assert!(log_passes(log("warning").as_bytes(), from("warning")));
        assert!(!log_passes(log("info").as_bytes(), from("warning")));
        assert!(log_passes(log("debug").as_bytes(), Logs::All));
        assert!(!log_passes(log("emergency").as_bytes(), Logs::None));
        let progress = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
        assert!(log_passes(progress, from("emergency")));
        assert!(log_passes(progress, Logs::None));
    }
}
