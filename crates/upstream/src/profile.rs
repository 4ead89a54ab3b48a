//! What decides which link serves a caller. Calls, subscriptions, log level and lists of a caller all use the link for
//! its profile.

use model::{Capabilities, PrincipalId};
use wire::Era;

/// The era and capabilities of a caller, and the owner of its links to stateful servers. A link is opened for a profile,
/// too, which may have less than that of the callers that it serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Profile {
    pub era: Era,
    pub capabilities: Capabilities,
    /// `None` for callers that share links even if the server is stateful, and for shared links.
    pub owner: Option<Owner>,
}

/// The owner of links to a stateful server. Callers of one principal may be several owners: each session is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A session of an agent.
    Session(u64),
    /// A user or client without sessions.
    Principal(PrincipalId),
    /// All callers without sessions in development mode, where callers are not identified.
    Anybody,
    /// A link of another gateway, without a session, to a server that this one runs for all.
    Link(u64),
}

impl Profile {
    /// The profile of requests that the gateway writes: the newest era that the server has, and no capabilities.
    pub fn of_gateway(owner: Option<Owner>) -> Self {
        Self { era: Era::Modern, capabilities: Capabilities::NONE, owner }
    }

    /// Whether this is the profile of the first link of a server whose first link has this era.
    pub fn is_first(&self, era: Option<Era>) -> bool {
        self.owner.is_none() && self.capabilities.is_empty() && era.is_none_or(|era| self.era == era)
    }

    /// The profile without its owner: all callers with it see the same lists of servers that are not stateful.
    pub fn shared(&self) -> Self {
        Self { owner: None, ..self.clone() }
    }
}
