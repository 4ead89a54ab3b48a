//! Compares two snapshots of the catalog and says which of the lists that people look at have changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::catalog::{Catalog, Entry};

/// A list that people look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Noun {
    Servers,
    Tools,
    Prompts,
    Resources,
    ToolGroups,
    /// Failed calls, which are not part of the catalog.
    Failures,
    /// The MCP clients that connected last, which are not part of it either.
    RecentClients,
    /// Whether changes can be stored, which is not part of the catalog either.
    Store,
}

impl Catalog {
    /// The lists that differ from those of `before`.
    pub fn difference(&self, before: &Catalog) -> BTreeSet<Noun> {
        let mut nouns = BTreeSet::new();
        let names: BTreeSet<_> = self.entries().chain(before.entries()).map(|entry| entry.name()).collect();
        for name in names {
            match (before.get(name.as_str()), self.get(name.as_str())) {
                (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {}
                (Some(old), Some(new)) => compare(old, new, &mut nouns),
                (Some(entry), None) | (None, Some(entry)) => count_in(entry, &mut nouns),
                (None, None) => {}
            }
        }
        let groups_differ = !self.groups().eq(before.groups());
        if groups_differ || nouns.contains(&Noun::Tools) && self.groups().next().is_some() {
            nouns.insert(Noun::ToolGroups);
        }
        nouns
    }
}

fn compare(old: &Entry, new: &Entry, nouns: &mut BTreeSet<Noun>) {
    nouns.insert(Noun::Servers);
    if old.is_enabled() != new.is_enabled() || old.registration.config != new.registration.config {
        count_in(new, nouns);
    }
    let (flags, before) = (&new.registration.flags, &old.registration.flags);
    let (offering, earlier) = (new.everything(), old.everything());
    let is_same_reading = Arc::ptr_eq(offering, earlier);
    if flags.disabled_tools != before.disabled_tools || !is_same_reading && offering.tools != earlier.tools {
        nouns.insert(Noun::Tools);
    }
    let prompts_differ = !is_same_reading && offering.prompts != earlier.prompts;
    if flags.disabled_prompts != before.disabled_prompts || prompts_differ {
        nouns.insert(Noun::Prompts);
    }
    let resources_differ = offering.resources != earlier.resources || offering.templates != earlier.templates;
    if !is_same_reading && resources_differ {
        nouns.insert(Noun::Resources);
    }
}

/// Adds the lists in which this server appears.
fn count_in(entry: &Entry, nouns: &mut BTreeSet<Noun>) {
    let offering = entry.everything();
    nouns.insert(Noun::Servers);
    nouns.extend((!offering.tools.is_empty()).then_some(Noun::Tools));
    nouns.extend((!offering.prompts.is_empty()).then_some(Noun::Prompts));
    let has_resources = !offering.resources.is_empty() || !offering.templates.is_empty();
    nouns.extend(has_resources.then_some(Noun::Resources));
}
