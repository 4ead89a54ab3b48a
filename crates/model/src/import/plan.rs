//! What importing means for a server or group that may be there already. The dashboard and the command line both plan
//! here, so they never decide differently.

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

/// What is to be done with one server or group.
#[derive(Debug)]
pub enum Plan {
    Add(Map<String, Value>),
    Change(Map<String, Value>),
    /// It is there already, and the same.
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
            (EntryOutcome::Ready(input), Some(current)) if says(&input) != says(current) => {
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
            Plan::Same => Some("it is there already, exactly like this"),
            Plan::Unusable(reason) => Some(reason),
        }
    }

    /// What is to be sent, if anything.
    pub fn into_input(self) -> Option<Map<String, Value>> {
        match self {
            Plan::Add(input) | Plan::Change(input) => Some(input),
            Plan::Same | Plan::Unusable(_) => None,
        }
    }
}

/// The members of a group that say something: keys that are left out mean the same as empty ones.
fn says(group: &Map<String, Value>) -> Map<String, Value> {
    let is_said = |value: &Value| *value != json!("") && *value != json!([]) && !value.is_null();
    let own = group.iter().filter(|(key, value)| !key.ends_with("_endpoint") && is_said(value));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}
