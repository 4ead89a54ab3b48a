//! Which tools are labels of metrics. Servers may list any number of tools, and every label costs memory here and in
//! the database of whoever collects the metrics, so only the first ones that are called get one.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

/// The most tools, of all servers together, that are labels.
pub const MOST_TOOLS: usize = 2000;
/// The label of all other tools.
pub const OTHER: &str = "other";

/// The tools that are labels.
#[derive(Default)]
pub struct ToolLabels(Mutex<Labels>);

#[derive(Default)]
struct Labels {
    by_server: HashMap<String, HashSet<String>>,
    count: usize,
}

impl ToolLabels {
    /// The label of a listed tool. The label of no tool is empty.
    pub fn of(&self, server: &str, tool: &str) -> String {
        if tool.is_empty() {
            return String::new();
        }
        let mut labels = self.lock();
        if labels.by_server.get(server).is_some_and(|tools| tools.contains(tool)) {
            return tool.to_owned();
        }
        if labels.count >= MOST_TOOLS {
            return OTHER.to_owned();
        }
        labels.count += 1;
        labels.by_server.entry(server.to_owned()).or_default().insert(tool.to_owned());
        tool.to_owned()
    }

    /// Makes room for others; returns all labels that the tools of a server may have had.
    pub fn forget(&self, server: &str) -> impl Iterator<Item = String> {
        let mut labels = self.lock();
        let tools = labels.by_server.remove(server).unwrap_or_default();
        labels.count -= tools.len();
        tools.into_iter().chain([String::new(), OTHER.to_owned()])
    }

    fn lock(&self) -> MutexGuard<'_, Labels> {
        self.0.lock().expect("no code panics while it holds the labels")
    }
}
