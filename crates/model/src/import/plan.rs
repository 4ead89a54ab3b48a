//! Decides whether an imported server or group is added, changed or skipped. The dashboard and the command line share
//! this code, so they never decide differently.

use serde_json::{Map, Value, json};

use super::{CheckedInput, EntryOutcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Add,
    Change,
    Skip,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Add => "add",
            Action::Change => "change",
            Action::Skip => "skip",
        }
    }
}

/// The decision for one server or group.
#[derive(Debug)]
pub enum Plan {
    Add(Map<String, Value>),
    Change(Map<String, Value>),
    /// It exists already and is identical.
    Same,
    /// It cannot be used, for this reason.
    Unusable(String),
}

impl Plan {
    /// `current` is the registered server of this name, as the gateway exports it.
    pub fn of_server(outcome: EntryOutcome<CheckedInput>, current: Option<&Map<String, Value>>) -> Self {
        match (outcome, current) {
            (EntryOutcome::Skip(reason), _) => Plan::Unusable(reason),
            (EntryOutcome::Ready(input), None) => Plan::Add(input.into_json()),
            (EntryOutcome::Ready(input), Some(current)) if input.differs_from(current) => {
                Plan::Change(input.into_json())
            }
            (EntryOutcome::Ready(_), Some(_)) => Plan::Same,
        }
    }

    /// `current` is the group of this name, as the gateway shows it.
    pub fn of_group(outcome: EntryOutcome<Map<String, Value>>, current: Option<&Map<String, Value>>) -> Self {
        match (outcome, current) {
            (EntryOutcome::Skip(reason), _) => Plan::Unusable(reason),
            (EntryOutcome::Ready(input), None) => Plan::Add(input),
            (EntryOutcome::Ready(input), Some(current))
                if filled_members(&input) != filled_members(current) =>
            {
                Plan::Change(input)
            }
            (EntryOutcome::Ready(_), Some(_)) => Plan::Same,
        }
    }

    pub fn action(&self) -> Action {
        match self {
            Plan::Add(_) => Action::Add,
            Plan::Change(_) => Action::Change,
            Plan::Same | Plan::Unusable(_) => Action::Skip,
        }
    }

    /// Why nothing is done.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Plan::Add(_) | Plan::Change(_) => None,
            Plan::Same => Some("it already exists and is identical"),
            Plan::Unusable(reason) => Some(reason),
        }
    }

    /// The input to send, if any.
    pub fn into_input(self) -> Option<Map<String, Value>> {
        match self {
            Plan::Add(input) | Plan::Change(input) => Some(input),
            Plan::Same | Plan::Unusable(_) => None,
        }
    }
}

/// The members of a group that are not empty: an omitted key means the same as an empty one.
fn filled_members(group: &Map<String, Value>) -> Map<String, Value> {
    let is_filled = |value: &Value| *value != json!("") && *value != json!([]) && !value.is_null();
    let own = group.iter().filter(|(key, value)| !key.ends_with("_endpoint") && is_filled(value));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}
