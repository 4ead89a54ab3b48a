//! How much an endpoint shows to somebody, in numbers: for the page on which they decide whether an agent may use it.

use std::collections::HashSet;

use super::Gateway;
use super::caller::Viewer;

/// The number of servers and tools that a viewer sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    pub servers: usize,
    pub tools: usize,
}

impl Gateway {
    pub fn reached(&self, viewer: &Viewer) -> Reached {
        let catalog = self.catalog();
        let Some(lens) = catalog.lens(viewer) else { return Reached::default() };
        let view = catalog.view(&lens);
        let tools = view.tools.iter().map(|(entry, _)| entry);
        let others =
            view.prompts.iter().map(|(entry, _)| entry).chain(view.resources.iter().map(|(entry, _)| entry));
        let servers: HashSet<&str> = tools.chain(others).map(|entry| entry.name().as_str()).collect();
        Reached { servers: servers.len(), tools: view.tools.len() }
    }
}
