//! Tasks are not translated between the eras: they are of one kind in revision 2025-11-25 and of another in 2026-07-28.

use std::sync::Arc;

use crate::Gateway;
use crate::catalog::Entry;
use crate::disclosure::Disclosure;
use crate::refusal::Refusal;
use model::ServerName;
use upstream::Profile;
use wire::{Era, Version};

impl Gateway {
    /// Refuses a request about tasks, before anything is sent, if the server is linked in another era than the caller's.
    pub(crate) async fn check_task_era(
        &self,
        entry: &Arc<Entry>,
        profile: &Profile,
        disclosure: Disclosure,
    ) -> Result<(), Refusal> {
        // The call itself finds out that a server is disabled.
        let Some(upstream) = &entry.upstream else { return Ok(()) };
        let link = upstream.link_profile(profile).await.map_err(|error| {
            let what = format!("server {:?}", entry.name().as_str());
            Refusal::Upstream(disclosure.sentence(&what, &error, entry))
        })?;
        match link.era == profile.era {
            true => Ok(()),
            false => Err(Refusal::Invalid(unusable(entry.name(), link.era))),
        }
    }
}

/// Says that a client cannot use the tasks of a server that is linked in this era.
pub fn unusable(server: &ServerName, server_era: Era) -> String {
    let (theirs, ours) = match server_era {
        Era::Modern => (Version::MODERN, Version::LATEST_LEGACY),
        Era::Legacy => (Version::LATEST_LEGACY, Version::MODERN),
    };
    let server = server.as_str();
    format!(
        "the tasks of server {server:?} are those of revision {theirs}, which clients of revision {ours} cannot use"
    )
}
