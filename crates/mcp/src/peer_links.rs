//! Links of other gateways to a server that this one runs for all of them. They get the server as it is, in the eras that
//! it speaks itself: whatever is to be done for callers, the gateway of the link does.

use std::sync::Arc;

use super::reply::Reply;
use super::{Ask, Mcp};
use gateway::caller::{LinkScope, Owner};
use gateway::refusal::Refusal;
use wire::{Era, Head, OwnedId, Version};

impl Mcp {
    /// Answers what concerns the link itself. `None` for requests to its server.
    pub(super) async fn serve_link(self: &Arc<Self>, ask: &Ask<'_>, link: &LinkScope) -> Option<Reply> {
        if !self.gateway.runs(&link.server) {
            return Some(Reply::misdirected("this gateway does not run the server"));
        }
        match ask.method {
            "POST" => self.refuse_era(ask, link).await,
            "DELETE" if ask.session.is_none() => {
                self.gateway.release_links_of(|owner| owner == Owner::Link(link.number));
                Some(Reply::session_ended())
            }
            _ => None,
        }
    }

    /// Refuses a message of an era that the server does not speak.
    async fn refuse_era(&self, ask: &Ask<'_>, link: &LinkScope) -> Option<Reply> {
        let head = Head::parse(&ask.body).ok()?;
        let id = head.id.as_ref()?;
        let era = match (ask.names_modern_version(), head.method.as_deref()) {
            (true, _) => Era::Modern,
            (false, Some("initialize")) => Era::Legacy,
            // The era was found to be right in the handshake.
            (false, _) => return None,
        };
        match self.gateway.speaks(&link.server, era).await {
            Ok(true) => None,
            Ok(false) => Some(Reply::wrong_era(id.raw(), era)),
            Err(reason) => {
                let id = OwnedId::from(id);
                Some(Reply::refusal(era, &id, &Refusal::Upstream(reason)))
            }
        }
    }

    /// The versions that an endpoint supports: those of the gateway, or of the server of a link.
    pub(super) fn versions_at(&self, link: Option<&LinkScope>) -> Vec<&'static str> {
        let is_modern_only = link.is_some_and(|link| !self.gateway.speaks_legacy_too(&link.server));
        let versions = Version::SUPPORTED.iter().rev();
        let supported = versions.filter(|version| !is_modern_only || version.era() == Era::Modern);
        supported.map(|version| version.as_str()).collect()
    }
}
