//! The context of a command that talks to a gateway.

use serde_json::Value;

use super::output::{self, Format};
use super::remote::{ApiResponse, Remote};

/// One run of a command: the gateway it talks to, and the output format.
pub struct Invocation {
    pub remote: Remote,
    pub format: Format,
}

impl Invocation {
    /// Returns a command that a person can run next, against the same gateway.
    pub fn command(&self, arguments: &str) -> String {
        self.remote.command(arguments)
    }

    /// Prints a response: as JSON, or as the text that `page` makes of it.
    pub fn show(&self, answer: &ApiResponse, page: impl FnOnce(&Value) -> String) -> anyhow::Result<()> {
        match self.format {
            Format::Json => output::json(&answer.text),
            Format::Table => output::page(&page(&answer.json()?)),
        }
    }
}
