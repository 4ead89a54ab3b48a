//! Users and clients with their tokens, as an immutable part of the catalog. A change of rights is a change of the
//! catalog, so it applies to the next request, and views change at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio_util::sync::CancellationToken;

use model::{
    AllowList, Client, HolderName, IdpAccount, IdpGroup, PrincipalId, RateLimit, Role, User, idp_group,
};
use store::{Store, TokenHash};

#[derive(Clone)]
pub struct Principals {
    /// Whether the gateway is initialized. In enterprise mode nobody has access before it has a first admin.
    pub is_initialized: bool,
    users: BTreeMap<HolderName, Arc<TokenHolder<User>>>,
    clients: BTreeMap<HolderName, Arc<TokenHolder<Client>>>,
    by_token: HashMap<TokenHash, Principal, RandomState>,
    by_id: HashMap<PrincipalId, Principal, RandomState>,
    /// The people of the identity provider, by their account there.
    by_account: HashMap<(String, String), PrincipalId>,
    /// What groups of the identity provider give to their members; the group of everybody is always there.
    idp_groups: BTreeMap<String, IdpGroup>,
    /// Groups of the identity provider whose members are admins.
    admin_groups: Arc<[String]>,
    /// The allow list of viewers that are nobody in particular, as in development mode.
    everything: AllowList,
}

/// A user or client, with a hash of its token, if it has one.
pub struct TokenHolder<T> {
    pub holder: T,
    hash: Option<TokenHash>,
    /// Cancelled when the token is no longer valid, or the user is disabled, which ends everything that runs under it.
    pub revoked: CancellationToken,
    pub rights: OwnRights,
}

/// What a user or client may do, together with what groups of the identity provider add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRights {
    pub role: Role,
    pub allow_list: AllowList,
    pub rate_limit: Option<RateLimit>,
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

    fn rights(&self) -> &OwnRights {
        match self {
            Principal::User(user) => &user.rights,
            Principal::Client(client) => &client.rights,
        }
    }

    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.rights().rate_limit
    }

    pub fn allow_list(&self) -> &AllowList {
        &self.rights().allow_list
    }

    /// The role of a user; `None` for clients.
    pub fn role(&self) -> Option<Role> {
        match self {
            Principal::User(user) => Some(user.rights.role),
            Principal::Client(_) => None,
        }
    }

    /// Whether it is a user who is kept out.
    pub fn is_disabled(&self) -> bool {
        match self {
            Principal::User(user) => user.holder.is_disabled,
            Principal::Client(_) => false,
        }
    }

    pub(super) fn token_hash(&self) -> Option<&TokenHash> {
        match self {
            Principal::User(user) => user.hash.as_ref(),
            Principal::Client(client) => client.hash.as_ref(),
        }
    }

    /// The id of its current token, if it has one.
    pub fn token_id(&self) -> Option<u64> {
        match self {
            Principal::User(user) => user.holder.token_id(),
            Principal::Client(client) => client.holder.token_id(),
        }
    }
}

/// What the two kinds of principals have in common.
trait Holder {
    fn token_id(&self) -> Option<u64>;
    fn is_disabled(&self) -> bool;
    /// Who it is at another issuer, whose tokens count like its own.
    fn jwt_subject(&self) -> Option<&str>;
}

impl Holder for User {
    fn token_id(&self) -> Option<u64> {
        self.token.as_ref().map(|token| token.id())
    }

    fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// People are found by their account, which never changes.
    fn jwt_subject(&self) -> Option<&str> {
        None
    }
}

impl Holder for Client {
    fn token_id(&self) -> Option<u64> {
        Some(self.token.id())
    }

    fn is_disabled(&self) -> bool {
        false
    }

    fn jwt_subject(&self) -> Option<&str> {
        self.jwt_subject.as_deref()
    }
}

impl Principals {
    pub fn new(
        store: &Store,
        is_initialized: bool,
        users: Vec<User>,
        clients: Vec<Client>,
        idp_groups: Vec<IdpGroup>,
    ) -> Self {
        let mut principals = Self { is_initialized, ..Self::default() };
        principals.idp_groups.extend(idp_groups.into_iter().map(|group| (group.name.clone(), group)));
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

    /// The user with this account at the identity provider.
    pub fn of_account(&self, issuer: &str, subject: &str) -> Option<&User> {
        let id = self.by_account.get(&(issuer.to_owned(), subject.to_owned()))?;
        match self.by_id.get(id)? {
            Principal::User(user) => Some(&user.holder),
            Principal::Client(_) => None,
        }
    }

    /// What a user may do, together with what groups of the identity provider add.
    pub fn rights_of_user(&self, name: &str) -> Option<&OwnRights> {
        self.users.get(name).map(|held| &held.rights)
    }

    /// All groups of the identity provider that have rules, sorted by name.
    pub fn idp_groups(&self) -> impl Iterator<Item = &IdpGroup> {
        self.idp_groups.values()
    }

    pub fn idp_group(&self, name: &str) -> Option<&IdpGroup> {
        self.idp_groups.get(name)
    }

    /// The groups with rules that somebody is in, that of everybody first.
    pub fn idp_groups_of(&self, account: &IdpAccount) -> impl Iterator<Item = &IdpGroup> {
        let named = account.groups.iter().map(String::as_str).filter(|name| *name != idp_group::EVERYBODY);
        std::iter::once(idp_group::EVERYBODY).chain(named).filter_map(|name| self.idp_groups.get(name))
    }

    /// All users and clients.
    pub fn all(&self) -> impl Iterator<Item = &Principal> {
        self.by_id.values()
    }

    /// The allow list of a user or client, or of viewers that are neither; `None` if it does not exist (any more).
    pub fn allow_list(&self, principal: Option<PrincipalId>) -> Option<&AllowList> {
        match principal {
            None => Some(&self.everything),
            Some(id) => self.by_id.get(&id).map(Principal::allow_list),
        }
    }

    /// Whether what a user or client had before is still valid: it exists, has the same credentials, and is not kept out.
    pub fn confirm(&self, before: &Principal) -> bool {
        match (self.by_id.get(&before.id()), before) {
            (Some(Principal::User(now)), Principal::User(before)) => keeps(&before.holder, &now.holder),
            (Some(Principal::Client(now)), Principal::Client(before)) => keeps(&before.holder, &now.holder),
            (Some(_) | None, _) => false,
        }
    }

    /// Whether anybody's rights or tokens differ.
    pub fn differs_from(&self, other: &Self) -> bool {
        self.is_initialized != other.is_initialized
            || !self.users().eq(other.users())
            || !self.clients().eq(other.clients())
            || !self.idp_groups().eq(other.idp_groups())
    }

    /// Whether any admin is not kept out.
    pub fn has_admin(&self) -> bool {
        self.users.values().any(|user| user.rights.role == Role::Admin && !user.holder.is_disabled)
    }

    /// A copy with another set of groups whose members are admins.
    pub fn with_admin_groups(&self, groups: Arc<[String]>) -> Self {
        Self { admin_groups: groups, ..self.clone() }.with_new_rights()
    }

    /// A copy with this group of the identity provider added, or in place of the one of that name.
    pub fn with_idp_group(&self, group: IdpGroup) -> Self {
        let mut changed = self.clone();
        changed.idp_groups.insert(group.name.clone(), group);
        changed.with_new_rights()
    }

    pub fn without_idp_group(&self, name: &str) -> Self {
        let mut changed = self.clone();
        changed.idp_groups.remove(name);
        changed.with_new_rights()
    }

    /// Computes again what the people of the identity provider may do.
    fn with_new_rights(mut self) -> Self {
        let people: Vec<_> = self.users.values().filter(|held| held.holder.idp.is_some()).cloned().collect();
        for before in people {
            self.remove_user(&before.holder.username);
            self.insert_user(before.holder.clone(), before.hash, before.revoked.clone());
        }
        self
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
        let hash = user.token.as_ref().map(|token| store.token_hash(token.secret().expose().as_bytes()));
        let revoked = signal(&user, before);
        self.insert_user(user, hash, revoked);
    }

    fn insert_user(&mut self, user: User, hash: Option<TokenHash>, revoked: CancellationToken) {
        let rights = self.rights_of(&user);
        let held = Arc::new(TokenHolder { holder: user, hash, revoked, rights });
        if let Some(hash) = hash {
            self.by_token.insert(hash, Principal::User(held.clone()));
        }
        if let Some(IdpAccount { issuer, subject, .. }) = &held.holder.idp {
            self.by_account.insert((issuer.clone(), subject.clone()), held.holder.id);
        }
        self.by_id.insert(held.holder.id, Principal::User(held.clone()));
        self.users.insert(held.holder.username.clone(), held);
    }

    /// What a user may do. Groups add to the user's own list; an own limit counts instead of those of groups, of which the
    /// highest counts.
    fn rights_of(&self, user: &User) -> OwnRights {
        let own =
            OwnRights { role: user.role, allow_list: user.allow_list.clone(), rate_limit: user.rate_limit };
        let Some(account) = &user.idp else { return own };
        let groups: Vec<_> = self.idp_groups_of(account).collect();
        let is_admin = user.role == Role::Admin
            || groups.iter().any(|group| group.role == Role::Admin)
            || account.groups.iter().any(|group| self.admin_groups.contains(group));
        let lists = std::iter::once(&user.allow_list).chain(groups.iter().map(|group| &group.allow_list));
        let limits = groups.iter().filter_map(|group| group.rate_limit);
        OwnRights {
            role: if is_admin { Role::Admin } else { Role::User },
            allow_list: AllowList::joined(lists),
            rate_limit: user.rate_limit.or(limits.max_by_key(|limit| limit.calls_per_minute)),
        }
    }

    fn remove_user(&mut self, name: &HolderName) -> Option<Arc<TokenHolder<User>>> {
        let held = self.users.remove(name)?;
        if let Some(hash) = &held.hash {
            self.by_token.remove(hash);
        }
        if let Some(IdpAccount { issuer, subject, .. }) = &held.holder.idp {
            self.by_account.remove(&(issuer.clone(), subject.clone()));
        }
        self.by_id.remove(&held.holder.id);
        Some(held)
    }

    fn add_client(&mut self, store: &Store, client: Client, before: Option<Arc<TokenHolder<Client>>>) {
        let hash = store.token_hash(client.token.secret().expose().as_bytes());
        let revoked = signal(&client, before);
        let rights = OwnRights {
            role: Role::User,
            allow_list: client.allow_list.clone(),
            rate_limit: client.rate_limit,
        };
        let held = Arc::new(TokenHolder { holder: client, hash: Some(hash), revoked, rights });
        self.by_token.insert(hash, Principal::Client(held.clone()));
        self.by_id.insert(held.holder.id, Principal::Client(held.clone()));
        self.clients.insert(held.holder.name.clone(), held);
    }

    fn remove_client(&mut self, name: &HolderName) -> Option<Arc<TokenHolder<Client>>> {
        let held = self.clients.remove(name)?;
        if let Some(hash) = &held.hash {
            self.by_token.remove(hash);
        }
        self.by_id.remove(&held.holder.id);
        Some(held)
    }
}

impl Default for Principals {
    fn default() -> Self {
        let everybody = IdpGroup {
            name: idp_group::EVERYBODY.to_owned(),
            role: Role::User,
            allow_list: AllowList::everything(),
            rate_limit: None,
        };
        Self {
            is_initialized: false,
            users: BTreeMap::new(),
            clients: BTreeMap::new(),
            by_token: HashMap::default(),
            by_id: HashMap::default(),
            by_account: HashMap::new(),
            idp_groups: BTreeMap::from([(everybody.name.clone(), everybody)]),
            admin_groups: Arc::default(),
            everything: AllowList::everything(),
        }
    }
}

/// Whether what runs under the credentials of a holder goes on after a change of it.
fn keeps<T: Holder>(before: &T, now: &T) -> bool {
    let has_same_subject = before.jwt_subject().is_none() || before.jwt_subject() == now.jwt_subject();
    before.token_id() == now.token_id() && has_same_subject && !now.is_disabled()
}

/// The signal of `before` if what runs under it goes on and the holder was not kept out; else a new one.
fn signal<T: Holder>(holder: &T, before: Option<Arc<TokenHolder<T>>>) -> CancellationToken {
    let is_kept =
        |before: &Arc<TokenHolder<T>>| keeps(&before.holder, holder) && !before.holder.is_disabled();
    before.filter(is_kept).map(|before| before.revoked.clone()).unwrap_or_default()
}
