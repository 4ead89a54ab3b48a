//! A summary of the gateway: what is registered, whether it works, and which calls failed lately.

use std::time::SystemTime;

use super::Gateway;
use super::catalog::Catalog;
use super::record::state_of;
use model::Status;

/// How many servers, tools and so on are registered, including disabled ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub servers: usize,
    pub tools: usize,
    pub prompts: usize,
    pub resources: usize,
    pub templates: usize,
    pub groups: usize,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub struct FailedCall {
    pub at: SystemTime,
    pub server: String,
    /// The full name of the tool.
    pub tool: String,
    pub reason: String,
}

impl Gateway {
    /// Whether changes can be stored and every enabled server can be used.
    pub fn is_healthy(&self) -> bool {
        self.store_problem().is_none() && self.catalog().is_healthy()
    }

    /// One sentence if changes cannot be stored.
    pub fn store_problem(&self) -> Option<String> {
        let reason = self.store_health().borrow().reason.clone()?;
        Some(format!("changes cannot be saved: {reason}; what is registered keeps working"))
    }

    /// One sentence for each problem that somebody should look at.
    pub fn troubles(&self) -> Vec<String> {
        self.store_problem().into_iter().chain(self.catalog().troubles()).collect()
    }
}

impl Catalog {
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { groups: self.groups().count(), ..Counts::default() };
        for entry in self.entries() {
            let offering = entry.everything();
            counts.servers += 1;
            counts.tools += offering.tools.len();
            counts.prompts += offering.prompts.len();
            counts.resources += offering.resources.len();
            counts.templates += offering.templates.len();
        }
        counts
    }

    /// Whether every enabled server can be used.
    fn is_healthy(&self) -> bool {
        self.entries().all(|entry| match state_of(entry).0 {
            Status::Connected | Status::Connecting | Status::Disabled => true,
            Status::Degraded | Status::Failed => false,
        })
    }

    /// One sentence for each server that somebody should look at.
    fn troubles(&self) -> Vec<String> {
        let trouble = |name: &str, status: Status, reason: &str| match status {
            Status::Failed => Some(format!("server {name:?} failed: {reason}")),
            Status::Degraded => Some(format!("server {name:?} is degraded: {reason}")),
            Status::Connected | Status::Connecting | Status::Disabled => None,
        };
        self.entries()
            .filter_map(|entry| {
                let (status, reason) = state_of(entry);
                trouble(entry.name().as_str(), status, &reason)
            })
            .collect()
    }

    /// The last calls that failed, newest first.
    pub fn failed_calls(&self, most: usize) -> Vec<FailedCall> {
        let mut calls = Vec::new();
        for entry in self.entries() {
            let failures = entry.upstream.as_ref().map(|upstream| upstream.failures()).unwrap_or_default();
            calls.extend(failures.into_iter().map(|failure| FailedCall {
                at: failure.at,
                server: entry.name().to_string(),
                tool: entry.name().qualify(&failure.tool),
                reason: failure.reason,
            }));
        }
        calls.sort_by_key(|call| std::cmp::Reverse(call.at));
        calls.truncate(most);
        calls
    }
}
