//! Who may do what, as an immutable part of the catalog: a change of rights is a change of the catalog, so views
//! follow it at once.

use std::collections::HashMap;

use super::caller::ClientId;
use crate::model::AllowList;

#[derive(Clone)]
pub struct Access {
    clients: HashMap<ClientId, AllowList>,
    /// For those who are not asked who they are.
    everything: AllowList,
}

impl Access {
    /// `None` when there is no such client (any more).
    pub fn allow_list(&self, client: Option<ClientId>) -> Option<&AllowList> {
        match client {
            None => Some(&self.everything),
            Some(client) => self.clients.get(&client),
        }
    }

    pub fn with(mut self, client: ClientId, allowed: AllowList) -> Self {
        self.clients.insert(client, allowed);
        self
    }
}

impl Default for Access {
    fn default() -> Self {
        Self { clients: HashMap::new(), everything: AllowList::everything() }
    }
}
