//! The end of a call in the engine: its outcome is reported once, to the metrics, the log, people, and the trail from which
//! its record is made. Limits on calls do not belong here: `Gateway::begin_call` checks them before a call gets its slot.

use std::sync::Arc;

use super::Gateway;
use super::catalog::{Entry, ToolPosition};
use super::result::said_in;
use super::stopwatch::{Spent, Stopwatch};
use super::trail::{Ended, Trail};
use telemetry::{CallTime, Metrics, Outcome};
use wire::{Era, Response};

/// The outcome of a call, reported on drop. The call counts as cancelled unless another outcome is set.
pub struct Ending {
    metrics: Arc<Metrics>,
    /// `None` if the call was denied.
    entry: Option<Arc<Entry>>,
    /// The tool that was called; other requests are not counted.
    tool: Option<CalledTool>,
    pub watch: Stopwatch,
    outcome: Outcome,
    /// Why it failed, for people.
    reason: Option<String>,
    trail: Trail,
    /// How often it was sent.
    pub attempts: u32,
    /// How often the server asked for input.
    pub rounds: u32,
    /// The era of the server that it was sent to.
    pub server_era: Option<Era>,
}

/// A tool that is called.
pub enum CalledTool {
    /// A tool that the server lists.
    Listed(ToolPosition),
    /// A tool of a server that does not list its tools, or that does not exist.
    Unlisted(String),
}

impl CalledTool {
    pub fn of(entry: &Entry, name: &str) -> Self {
        entry.tool_position(name).map_or_else(|| CalledTool::Unlisted(name.to_owned()), CalledTool::Listed)
    }
}

impl Ending {
    pub fn new(gateway: &Gateway, entry: Option<Arc<Entry>>, tool: Option<CalledTool>, trail: Trail) -> Self {
        Self {
            metrics: gateway.metrics.clone(),
            entry,
            tool,
            watch: Stopwatch::start(),
            outcome: Outcome::Cancelled,
            reason: None,
            trail,
            attempts: 0,
            rounds: 0,
            server_era: None,
        }
    }

    /// The tool that is called, if it is one.
    pub fn tool(&self) -> Option<&str> {
        match (self.tool.as_ref()?, &self.entry) {
            (CalledTool::Listed(position), Some(entry)) => Some(&entry.tool_at(*position).name),
            (CalledTool::Unlisted(name), _) => Some(name),
            (CalledTool::Listed(_), None) => Some(""),
        }
    }

    /// Sets the outcome, replacing any earlier one.
    pub fn set(&mut self, outcome: Outcome, reason: impl FnOnce() -> String) {
        self.outcome = outcome;
        let is_told = self.tool.is_some() || self.trail.is_recorded();
        self.reason = is_told.then(reason);
    }

    /// Takes back the outcome: the response was not the last one.
    pub fn reopen(&mut self) {
        (self.outcome, self.reason) = (Outcome::Cancelled, None);
    }

    /// Sets the outcome of a call whose target is disabled or does not exist for the caller.
    pub fn denied(&mut self) {
        (self.outcome, self.reason, self.entry) = (Outcome::Denied, None, None);
    }

    /// Hands over to the trail what is to be recorded.
    fn record(&mut self, spent: Spent) {
        // What a tool says is a part of its result, which is not for every record.
        let reason = self.reason.take().filter(|_| self.outcome != Outcome::ToolError);
        self.trail.end(Ended {
            entry: self.entry.take(),
            called: self.tool.take(),
            outcome: self.outcome,
            reason,
            spent,
            attempts: self.attempts,
            rounds: self.rounds,
            server_era: self.server_era,
            sent: self.watch.sent,
            heard: self.watch.heard,
        });
    }

    /// Sets the outcome from the server's response.
    pub fn answered(&mut self, response: &Response) {
        match (response.is_tool_error(), response.result()) {
            (true, _) => self.set(Outcome::ToolError, || said_by(response)),
            (false, Some(_)) => (self.outcome, self.reason) = (Outcome::Ok, None),
            (false, None) => self.set(Outcome::UpstreamError, || said_by(response)),
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let spent = self.watch.spent();
        let _logged_with = self.trail.enter();
        self.report(spent);
        self.record(spent);
    }
}

impl Ending {
    /// Reports the outcome of a call to a tool to the metrics, the log and people.
    fn report(&self, spent: Spent) {
        let Some(tool) = self.tool() else { return };
        let server = self.entry.as_ref().map_or("", |entry| entry.name().as_str());
        let Spent { total: elapsed, gateway, .. } = spent;
        let time = CallTime { total: elapsed, gateway };
        match (&self.tool, &self.entry) {
            (Some(CalledTool::Listed(position)), Some(entry)) => {
                let meter = entry.tool_meter(*position, &self.metrics);
                self.metrics.tool_called(meter, self.outcome, time);
            }
            // Only listed tools become labels: callers can invent any number of names.
            (_, _) => self.metrics.unlisted_called(server, self.outcome, time),
        }
        let upstream = self.entry.as_ref().and_then(|entry| entry.upstream.as_ref());
        if let (Some(upstream), Some(reason)) = (upstream, &self.reason) {
            upstream.note_failure(tool, reason);
        }
        tracing::debug!(server, tool, outcome = self.outcome.as_str(), ?elapsed, "a call ended");
    }
}

impl Gateway {
    /// Counts a call to a tool that does not exist for this caller.
    pub fn deny_call(&self) {
        Ending::new(self, None, Some(CalledTool::Unlisted(String::new())), Trail::default()).denied();
    }
}

/// The text of an error response or a tool error.
fn said_by(response: &Response) -> String {
    match response.error() {
        Some(error) => format!("{} (code {})", error.message, error.code),
        None => said_in(response.result().unwrap_or_default()),
    }
}
