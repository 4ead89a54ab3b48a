//! What a gateway takes into memory when it starts: the catalog, people and clients, and who is signed in. All of that is read
//! in one transaction, so it is of one moment, and costs fewer round trips.

use std::collections::HashMap;

use super::oauth::{self, BrowserSessionRow};
use super::{Store, StoreError, StoredServer, TokenHash, grants, idp_groups, retired_tokens, settings};
use model::{Client, GrantId, Group, IdpGroup, PrincipalId, Secret, User};

pub struct Loaded {
    /// The epoch of that moment.
    pub epoch: i64,
    /// The mode that the database was initialized in, if it was.
    pub mode: Option<String>,
    pub servers: Vec<StoredServer>,
    /// The grants by server, without those that cannot be opened: their servers must be authorized again.
    pub grants: HashMap<String, Secret>,
    pub groups: Vec<Group>,
    pub users: Vec<User>,
    pub idp_groups: Vec<IdpGroup>,
    pub clients: Vec<Client>,
    /// The hashes of tokens that ended a short time ago, each with the time of its end.
    pub retired_tokens: Vec<(TokenHash, i64)>,
    /// The grants of software that acts for users, each with its user.
    pub held_grants: Vec<(GrantId, PrincipalId)>,
    pub browser_sessions: Vec<BrowserSessionRow>,
}

impl Store {
    pub async fn load(&self, now_ms: i64) -> Result<Loaded, StoreError> {
        let mut tx = self.read().await?;
        // The key may be being replaced since a moment ago.
        settings::learn_other_key(&mut tx, &self.seal).await?;
        let epoch = settings::epoch(&mut tx).await?;
        let mode = settings::mode(&mut tx).await?;
        let grants = self.read_grants_of(&mut tx, None).await?;
        let servers = self.read_servers_of(&mut tx, None).await?;
        let groups = self.read_groups_of(&mut tx, None).await?;
        let users = self.read_all_users_of(&mut tx).await?;
        let clients = self.read_clients_of(&mut tx, None).await?;
        let retired_tokens = retired_tokens::read(&mut tx, now_ms).await?;
        let idp_groups = idp_groups::read_idp_groups_of(&mut tx, None).await?;
        let held_grants = oauth::read_held_grants(&mut tx).await?;
        let browser_sessions = oauth::read_browser_sessions(&mut tx).await?;
        tx.commit().await?;
        Ok(Loaded {
            epoch,
            mode,
            servers: servers.into_iter().collect::<Result<_, _>>()?,
            grants: grants::readable(grants),
            groups: groups.into_iter().collect::<Result<_, _>>()?,
            users: users.into_iter().collect::<Result<_, _>>()?,
            idp_groups: idp_groups.into_iter().collect::<Result<_, _>>()?,
            clients: clients.into_iter().collect::<Result<_, _>>()?,
            retired_tokens,
            held_grants,
            browser_sessions,
        })
    }
}
