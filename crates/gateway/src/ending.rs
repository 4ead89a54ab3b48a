//! The end of a call: what came of it, told once to everything that keeps count. Quotas, records and traces belong here.

use std::sync::Arc;
use std::time::Instant;

use super::Gateway;
use super::catalog::Entry;
use super::result::said_in;
use telemetry::{Metrics, Outcome};
use wire::Response;

/// A call that was asked for. It counts as cancelled unless it is said how it ended.
pub struct Ending {
    metrics: Arc<Metrics>,
    /// None where nobody knows what was asked for.
    entry: Option<Arc<Entry>>,
    /// The tool that was called; other requests are not counted.
    tool: Option<String>,
    begun: Instant,
    outcome: Outcome,
    /// Why it failed, for people.
    reason: Option<String>,
}

impl Ending {
    pub fn new(gateway: &Gateway, entry: Option<Arc<Entry>>, tool: Option<String>) -> Self {
        let (begun, outcome) = (Instant::now(), Outcome::Cancelled);
        Self { metrics: gateway.metrics.clone(), entry, tool, begun, outcome, reason: None }
    }

    /// The call ended with this outcome. What is said last counts.
    pub fn set(&mut self, outcome: Outcome, reason: impl FnOnce() -> String) {
        self.outcome = outcome;
        self.reason = self.tool.as_ref().map(|_| reason());
    }

    /// What was asked for does not exist for the caller, or is switched off.
    pub fn denied(&mut self) {
        (self.outcome, self.reason, self.entry) = (Outcome::Denied, None, None);
    }

    /// The server answered.
    pub fn answered(&mut self, response: &Response) {
        match (response.is_tool_error(), response.result()) {
            (true, _) => self.set(Outcome::ToolError, || said_by(response)),
            (false, Some(_)) => (self.outcome, self.reason) = (Outcome::Ok, None),
            (false, None) => self.set(Outcome::Failed, || said_by(response)),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(tool) = self.tool.take() else { return };
        let server = self.entry.as_ref().map_or("", |entry| entry.name().as_str());
        // Only what a server lists becomes a label: callers can invent any number of names.
        let is_listed = self.entry.as_ref().is_some_and(|entry| entry.tool(&tool).is_some());
        let label = if is_listed { tool.as_str() } else { "" };
        self.metrics.call_ended(server, label, self.outcome, self.begun.elapsed());
        let upstream = self.entry.as_ref().and_then(|entry| entry.upstream.as_ref());
        if let (Some(upstream), Some(reason)) = (upstream, self.reason.take()) {
            upstream.note_failure(&tool, &reason);
        }
        tracing::debug!(server, tool, outcome = ?self.outcome, elapsed = ?self.begun.elapsed(), "a call ended");
    }
}

impl Gateway {
    /// A call was asked for that nobody can make: there is no such thing, or not for this caller.
    pub fn deny_call(&self) {
        Ending::new(self, None, Some(String::new())).denied();
    }
}

/// The words of a response that tells of a failure.
fn said_by(response: &Response) -> String {
    match response.error() {
        Some(error) => format!("{} (code {})", error.message, error.code),
        None => said_in(response.result().unwrap_or_default()),
    }
}
