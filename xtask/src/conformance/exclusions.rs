//! The scored scenarios that cannot pass for a pair of eras, whatever a gateway does. Each has its reason here, and the
//! message with which it fails: a run fails if an excluded scenario passes, or fails for any other reason.

use super::{Eras, MODERN, Set};

pub struct Exclusion {
    /// The revision of the set.
    set: &'static str,
    /// The eras of the server.
    eras: Eras,
    pub scenario: &'static str,
    /// The message of its failed checks.
    pub symptom: &'static str,
    pub reason: &'static str,
}

const EXCLUSIONS: &[Exclusion] = &[Exclusion {
    set: MODERN.revision,
    eras: Eras::LegacyOnly,
    scenario: "input-required-result-basic-elicitation",
    symptom: "inputRequests missing expected key \"user_name\"",
    reason: "the suite looks for the literal key `user_name` in `inputRequests`, and a legacy server has no means to \
             name its questions: its request has only an id, which must be unique in the session, so any gateway \
             invents the key",
}];

/// What cannot pass when a client with this set uses a server of these eras.
pub fn of(set: &Set, eras: Eras) -> impl Iterator<Item = &'static Exclusion> {
    EXCLUSIONS.iter().filter(move |row| row.set == set.revision && row.eras == eras)
}

#[cfg(test)]
pub const EXAMPLE: Exclusion = Exclusion {
    set: MODERN.revision,
    eras: Eras::LegacyOnly,
    scenario: "echo",
    symptom: "no echo",
    reason: "there is no wall",
};
