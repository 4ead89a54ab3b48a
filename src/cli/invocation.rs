//! One run of a command that talks to a gateway.

use serde_json::Value;

use super::output::{self, Format};
use super::remote::{ApiResponse, Remote};

/// One run of a command: which gateway, and how to write results.
pub struct Invocation {
    pub remote: Remote,
    pub format: Format,
}

impl Invocation {
    /// Shows an answer: as it is, or as a page for people.
    pub fn show(&self, answer: &ApiResponse, page: impl FnOnce(&Value) -> String) -> anyhow::Result<()> {
        match self.format {
            Format::Json => output::json(&answer.text),
            Format::Table => output::page(&page(&answer.json()?)),
        }
    }
}
