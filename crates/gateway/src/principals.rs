//! Users and clients with their tokens, as an immutable part of the catalog. A change of rights is a change of the
//! catalog, so it applies to the next request, and views change at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use model::{AllowList, Client, HolderName, PrincipalId, RateLimit, Role, Token, User};
use store::{Store, TokenHash};

#[derive(Clone)]
pub struct Principals {
    /// Whether the gateway is initialized. In enterprise mode nobody has access before it has a first admin.
    pub is_initialized: bool,
    users: BTreeMap<HolderName, Arc<TokenHolder<User>>>,
    clients: BTreeMap<HolderName, Arc<TokenHolder<Client>>>,
    by_token: HashMap<TokenHash, Principal>,
    by_id: HashMap<PrincipalId, Principal>,
    /// The allow list of viewers without a client, as in development mode.
    everything: AllowList,
}

/// A user or client, with a hash of its token.
pub struct TokenHolder<T> {
    pub holder: T,
    hash: TokenHash,
    /// Cancelled when the token is no longer valid, which ends everything that runs under it.
    pub revoked: CancellationToken,
}

/// The user or client that a token belongs to.
#[derive(Clone)]
pub enum Principal {
    User(Arc<TokenHolder<User>>),
    Client(Arc<TokenHolder<Client>>),
}

impl Principal {
    pub fn revoked(&self) -> &CancellationToken {
        match self {
            Principal::User(user) => &user.revoked,
            Principal::Client(client) => &client.revoked,
        }
    }

    /// The identity, which does not depend on the token: sessions, subscriptions and links belong to it.
    pub fn id(&self) -> PrincipalId {
        match self {
            Principal::User(user) => user.holder.id,
            Principal::Client(client) => client.holder.id,
        }
    }

    pub fn name(&self) -> &HolderName {
        match self {
            Principal::User(user) => &user.holder.username,
            Principal::Client(client) => &client.holder.name,
        }
    }

    pub fn rate_limit(&self) -> Option<RateLimit> {
        match self {
            Principal::User(user) => user.holder.rate_limit,
            Principal::Client(client) => client.holder.rate_limit,
        }
    }

    pub(super) fn token_hash(&self) -> &TokenHash {
        match self {
            Principal::User(user) => &user.hash,
            Principal::Client(client) => &client.hash,
        }
    }

    /// The id of its current token.
    pub fn token_id(&self) -> u64 {
        match self {
            Principal::User(user) => user.holder.token.id(),
            Principal::Client(client) => client.holder.token.id(),
        }
    }
}

impl Principals {
    pub fn new(store: &Store, is_initialized: bool, users: Vec<User>, clients: Vec<Client>) -> Self {
        let mut principals = Self { is_initialized, ..Self::default() };
        for user in users {
            principals.add_user(store, user, None);
        }
        for client in clients {
            principals.add_client(store, client, None);
        }
        principals
    }

    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values().map(|held| &held.holder)
    }

    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|held| &held.holder)
    }

    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.values().map(|held| &held.holder)
    }

    pub fn client(&self, name: &str) -> Option<&Client> {
        self.clients.get(name).map(|held| &held.holder)
    }

    pub fn find(&self, hash: &TokenHash) -> Option<&Principal> {
        self.by_token.get(hash)
    }

    pub fn by_id(&self, id: PrincipalId) -> Option<&Principal> {
        self.by_id.get(&id)
    }

    /// All users and clients.
    pub fn all(&self) -> impl Iterator<Item = &Principal> {
        self.by_token.values()
    }

    /// The allow list of a client, or of viewers without one; `None` if the client does not exist (any more).
    pub fn allow_list(&self, client: Option<PrincipalId>) -> Option<&AllowList> {
        match client {
            None => Some(&self.everything),
            Some(client) => match self.by_id.get(&client)? {
                Principal::Client(client) => Some(&client.holder.allow_list),
                Principal::User(_) => None,
            },
        }
    }

    /// Whether anybody's rights or tokens differ.
    pub fn differs_from(&self, other: &Self) -> bool {
        self.is_initialized != other.is_initialized
            || !self.users().eq(other.users())
            || !self.clients().eq(other.clients())
    }

    /// Whether another user is an admin.
    pub fn has_admin_beside(&self, name: &HolderName) -> bool {
        self.users().any(|user| user.role == Role::Admin && user.username != *name)
    }

    /// A copy with this user added, or in place of the user who was called `before`.
    pub fn with_user(&self, store: &Store, before: Option<&HolderName>, user: User) -> Self {
        let mut changed = self.clone();
        let before = before.and_then(|name| changed.remove_user(name));
        changed.add_user(store, user, before);
        changed
    }

    pub fn without_user(&self, name: &HolderName) -> Self {
        let mut changed = self.clone();
        changed.remove_user(name);
        changed
    }

    /// A copy with this client added, or in place of the client of that name.
    pub fn with_client(&self, store: &Store, client: Client) -> Self {
        let mut changed = self.clone();
        let before = changed.remove_client(&client.name);
        changed.add_client(store, client, before);
        changed
    }

    pub fn without_client(&self, name: &HolderName) -> Self {
        let mut changed = self.clone();
        changed.remove_client(name);
        changed
    }

    fn add_user(&mut self, store: &Store, user: User, before: Option<Arc<TokenHolder<User>>>) {
        let held = Arc::new(TokenHolder::new(store, user, before, |user| &user.token));
        self.by_token.insert(held.hash, Principal::User(held.clone()));
        self.by_id.insert(held.holder.id, Principal::User(held.clone()));
        self.users.insert(held.holder.username.clone(), held);
    }

    fn remove_user(&mut self, name: &HolderName) -> Option<Arc<TokenHolder<User>>> {
        let held = self.users.remove(name)?;
        self.by_token.remove(&held.hash);
        self.by_id.remove(&held.holder.id);
        Some(held)
    }

    fn add_client(&mut self, store: &Store, client: Client, before: Option<Arc<TokenHolder<Client>>>) {
        let held = Arc::new(TokenHolder::new(store, client, before, |client| &client.token));
        self.by_token.insert(held.hash, Principal::Client(held.clone()));
        self.by_id.insert(held.holder.id, Principal::Client(held.clone()));
        self.clients.insert(held.holder.name.clone(), held);
    }

    fn remove_client(&mut self, name: &HolderName) -> Option<Arc<TokenHolder<Client>>> {
        let held = self.clients.remove(name)?;
        self.by_token.remove(&held.hash);
        self.by_id.remove(&held.holder.id);
        Some(held)
    }
}

impl Default for Principals {
    fn default() -> Self {
        Self {
            is_initialized: false,
            users: BTreeMap::new(),
            clients: BTreeMap::new(),
            by_token: HashMap::new(),
            by_id: HashMap::new(),
            everything: AllowList::everything(),
        }
    }
}

impl<T> TokenHolder<T> {
    /// Keeps the signal of `before` if the token is the same; a new token gets a new signal.
    fn new(store: &Store, holder: T, before: Option<Arc<Self>>, token: fn(&T) -> &Token) -> Self {
        let hash = store.token_hash(token(&holder).secret().expose().as_bytes());
        let kept = before.filter(|before| token(&before.holder).id() == token(&holder).id());
        let revoked = kept.map(|before| before.revoked.clone()).unwrap_or_default();
        Self { holder, hash, revoked }
    }
}
