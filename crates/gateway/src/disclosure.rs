//! Decides how much a caller learns about the failure of a server. In enterprise mode only admins learn all of it: an
//! address, a body, a stack trace or the output of a process may hold what others must not see. Everybody else learns
//! the kind of the failure, and an id under which the log of the server has the rest.

use super::Gateway;
use super::caller::Owner;
use super::catalog::Entry;
use super::principals::Principal;
use model::{Mode, PrincipalId, Redactor, Role};
use upstream::CallError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disclosure {
    Full,
    KindOnly,
}

impl Gateway {
    /// What a principal learns; `None` is everybody in development mode.
    pub fn disclosure(&self, principal: Option<PrincipalId>) -> Disclosure {
        let is_admin =
            |id| self.catalog.load().principals().by_id(id).and_then(Principal::role) == Some(Role::Admin);
        match self.mode {
            Mode::Development => Disclosure::Full,
            Mode::Enterprise if principal.is_some_and(is_admin) => Disclosure::Full,
            Mode::Enterprise => Disclosure::KindOnly,
        }
    }

    /// What the owner of a link learns.
    pub(super) fn disclosure_to(&self, owner: Owner) -> Disclosure {
        self.disclosure(match owner {
            Owner::Principal(principal) => Some(principal),
            Owner::Session(_) | Owner::Anybody | Owner::Link(_) => None,
        })
    }
}

impl Disclosure {
    /// The sentence about a failed request; `what` names the thing that failed. If it does not tell all, the log of the
    /// server has the whole reason. That of the gateway has not: the reason may quote arguments and results.
    pub fn sentence(self, what: &str, error: &CallError, entry: &Entry) -> String {
        // The server has not failed.
        if let CallError::NoRoom(exceeded) = error {
            return exceeded.to_string();
        }
        let whole = Redactor::of(&entry.registration.config).redact(&format!("{what} failed: {error}"));
        match self {
            Disclosure::Full => whole,
            Disclosure::KindOnly => {
                let (error_id, server, reason) = (error_id(), entry.name().as_str(), error.kind());
                tracing::warn!(error_id, server, reason, "a request to a server failed");
                entry.journal.note(&format!("error id {error_id}: {whole}"));
                format!("{what} failed: {reason} (error id {error_id})")
            }
        }
    }
}

/// A short id that is unlikely to repeat while its line of the log is kept.
fn error_id() -> String {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
    format!("{:08x}", u32::from_le_bytes(bytes))
}
