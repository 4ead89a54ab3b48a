//! What different callers see of the same servers: a server may list other tools to clients with other capabilities, or
//! of another era, and to each session if it is stateful. Each group of callers that see the same has a catalog of its
//! own, derived from the one that everybody shares.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::task::JoinSet;

use super::Gateway;
use super::caller::{Owner, Viewer};
use super::catalog::{Catalog, Entry, Listed};
use super::view::Lens;
use model::{Offering, ServerName};
use upstream::{Profile, Upstream};

/// The most profiles whose catalogs are kept; clients can declare any number of different capabilities.
const MOST_PROFILES: usize = 256;
/// The first number of an audience that belongs to one owner; those before are of shared profiles.
const FIRST_OF_OWNERS: u64 = 1 << 32;

/// The lists that a server shows to some callers instead of the common ones.
type DifferingLists = HashMap<ServerName, Arc<Listed>>;

/// The servers whose lists a caller needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent<'a> {
    All,
    /// Those that are not stateful: what they show depends on no single caller.
    Shared,
    Server(&'a str),
}

/// The catalogs derived from one, by the profile of their callers.
#[derive(Default)]
pub struct Audiences(Mutex<Derived>);

#[derive(Default)]
struct Derived {
    by_profile: HashMap<Profile, Arc<Catalog>>,
    /// For callers to whom every server shows its common lists.
    common: Option<Arc<Catalog>>,
    last_audience: u64,
}

impl Audiences {
    /// The catalog for a profile, derived from `base` by its first caller.
    pub fn get_or_derive(
        &self,
        profile: &Profile,
        differing: impl FnOnce() -> DifferingLists,
        base: &Catalog,
    ) -> Arc<Catalog> {
        let mut derived = self.0.lock().expect("no code panics while it holds the catalogs");
        if let Some(known) = derived.by_profile.get(profile) {
            return known.clone();
        }
        let lists = differing();
        let catalog = match (lists.is_empty(), &derived.common) {
            (true, Some(common)) => common.clone(),
            (is_common, _) => {
                derived.last_audience += 1;
                let catalog = Arc::new(base.showing(&lists, derived.last_audience));
                if is_common {
                    derived.common = Some(catalog.clone());
                }
                catalog
            }
        };
        if derived.by_profile.len() >= MOST_PROFILES {
            derived.by_profile.clear();
        }
        derived.by_profile.insert(profile.clone(), catalog.clone());
        catalog
    }
}

/// The lists that stateful servers show to single owners of links.
#[derive(Default)]
pub struct OwnLists {
    by_owner: Mutex<HashMap<Owner, OwnView>>,
    last_audience: AtomicU64,
}

#[derive(Default)]
struct OwnView {
    /// By server and by the profile of the link that shows them.
    lists: HashMap<(ServerName, Profile), Arc<Listed>>,
    /// The catalogs with these lists, by the profile of the caller, each with the one that it is derived from; made when
    /// they are first needed.
    catalogs: HashMap<Profile, (Arc<Catalog>, Arc<Catalog>)>,
}

impl OwnView {
    /// The lists that a caller sees instead of those in `base`.
    fn differing(&self, profile: &Profile, base: &Catalog) -> DifferingLists {
        let shown = self.lists.iter().filter(|((server, link), _)| {
            let upstream = base.get(server.as_str()).and_then(|entry| entry.upstream.as_ref());
            upstream.and_then(|upstream| upstream.list_profile(profile)).as_ref() == Some(link)
        });
        shown.map(|((server, _), listed)| (server.clone(), listed.clone())).collect()
    }
}

impl OwnLists {
    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, OwnView>> {
        self.by_owner.lock().expect("no code panics while it holds the lists")
    }

    /// The catalog for a caller who owns links.
    fn catalog(&self, owner: Owner, profile: &Profile, base: Arc<Catalog>) -> Arc<Catalog> {
        let mut owners = self.lock();
        let Some(view) = owners.get_mut(&owner).filter(|view| !view.lists.is_empty()) else { return base };
        if let Some((catalog, from)) = view.catalogs.get(profile)
            && Arc::ptr_eq(from, &base)
        {
            return catalog.clone();
        }
        let lists = view.differing(profile, &base);
        let catalog = match lists.is_empty() {
            true => base.clone(),
            false => {
                let audience = FIRST_OF_OWNERS + self.last_audience.fetch_add(1, Ordering::Relaxed);
                Arc::new(base.showing(&lists, audience))
            }
        };
        if view.catalogs.len() >= MOST_PROFILES {
            view.catalogs.clear();
        }
        view.catalogs.insert(profile.clone(), (catalog.clone(), base));
        catalog
    }

    /// Keeps the lists that a server shows on a link with an owner; `None` if they are known already. Returns the audiences
    /// whose lists are outdated by that.
    fn adopt(&self, link: &Profile, entry: &Entry, offering: &Arc<Offering>) -> Option<Vec<u64>> {
        let mut owners = self.lock();
        let view = owners.entry(link.owner?).or_default();
        let key = (entry.name().clone(), link.clone());
        let known = view.lists.get(&key).map(|listed| listed.offering());
        if known.unwrap_or_else(|| entry.offering()).same_as(offering) {
            return None;
        }
        view.lists.insert(key, Arc::new(Listed::new(offering.clone())));
        Some(audiences(std::mem::take(&mut view.catalogs)))
    }

    /// Forgets owners that `is_over` says are gone; returns their audiences.
    fn forget(&self, is_over: impl Fn(Owner) -> bool) -> Vec<u64> {
        let gone = self.lock().extract_if(|owner, _| is_over(*owner)).collect::<Vec<_>>();
        gone.into_iter().flat_map(|(_, view)| audiences(view.catalogs)).collect()
    }
}

/// The audiences that belong to one owner.
fn audiences(catalogs: HashMap<Profile, (Arc<Catalog>, Arc<Catalog>)>) -> Vec<u64> {
    let audiences = catalogs.into_values().map(|(catalog, _)| catalog.audience);
    audiences.filter(|audience| *audience >= FIRST_OF_OWNERS).collect()
}

impl Gateway {
    /// The current snapshot, as a caller with this profile sees it.
    pub fn catalog_for(&self, profile: &Profile) -> Arc<Catalog> {
        let catalog = self.catalog();
        let shared = catalog.for_profile(profile);
        match profile.owner.filter(|_| catalog.has_stateful_servers) {
            Some(owner) => self.own_lists.catalog(owner, profile, shared),
            None => shared,
        }
    }

    /// Reads the lists that servers show to a caller, where nobody with its profile did before. Waits at most as long as
    /// connecting may take; then the common lists are used.
    pub async fn prepare_lists(&self, viewer: &Viewer, profile: &Profile, extent: Extent<'_>) {
        let catalog = self.catalog();
        let Some(lens) = catalog.lens(viewer) else { return };
        if self.lists.is_prepared(&catalog, viewer, lens.allowed, profile) {
            return;
        }
        let (unread, mut is_complete) = self.unread(&catalog, &lens, profile, extent);
        let mut reading = JoinSet::new();
        for upstream in unread {
            let profile = profile.clone();
            reading.spawn(async move {
                let lists = upstream.lists_for(&profile).await;
                (upstream, lists)
            });
        }
        let limit = tokio::time::sleep(self.upstream_options.init_timeout);
        tokio::pin!(limit);
        loop {
            let read = tokio::select! {
                read = reading.join_next() => read,
                () = &mut limit => return,
            };
            match read {
                None => break,
                Some(Ok((upstream, Ok(Some(lists))))) => self.adopt_lists(&upstream, profile, &lists).await,
                Some(Ok((_, Ok(None)))) => {}
                Some(Ok((upstream, Err(error)))) => {
                    is_complete = false;
                    let server = &upstream.config().name;
                    tracing::debug!(%server, reason = error.kind(), "the lists for a caller cannot be read");
                }
                Some(Err(error)) => tracing::error!(%error, "reading the lists for a caller was interrupted"),
            }
        }
        if is_complete {
            self.lists.set_prepared(&self.catalog(), viewer, profile);
        }
    }

    /// Whether the lists that servers show to a caller are known, so that `prepare_lists` would not wait.
    pub fn has_lists_for(&self, viewer: &Viewer, profile: &Profile, extent: Extent<'_>) -> bool {
        let catalog = self.catalog();
        let Some(lens) = catalog.lens(viewer) else { return true };
        if self.lists.is_prepared(&catalog, viewer, lens.allowed, profile) {
            return true;
        }
        let (unread, is_complete) = self.unread(&catalog, &lens, profile, extent);
        if unread.is_empty() && is_complete {
            self.lists.set_prepared(&catalog, viewer, profile);
        }
        unread.is_empty()
    }

    /// The connected servers whose lists for a caller are not read yet, and whether all others have none to read.
    fn unread(
        &self,
        catalog: &Catalog,
        lens: &Lens<'_>,
        profile: &Profile,
        extent: Extent<'_>,
    ) -> (Vec<Upstream>, bool) {
        let (mut unread, mut is_complete) = (Vec::new(), extent == Extent::All);
        for entry in catalog.entries().filter(|entry| lens.admits(entry)) {
            let is_stateful = entry.is_stateful();
            let is_meant = match extent {
                Extent::All => true,
                Extent::Shared => !is_stateful,
                Extent::Server(name) => entry.name().as_str() == name,
            };
            let Some(upstream) = entry.upstream.as_ref().filter(|_| is_meant) else { continue };
            // What an owner sees may change with each of its calls.
            is_complete &= !(is_stateful && profile.owner.is_some());
            if !upstream.is_connected() {
                is_complete = false;
            } else if !upstream.has_told_lists_for(profile) {
                unread.push(upstream.clone());
            }
        }
        (unread, is_complete)
    }

    async fn adopt_lists(&self, upstream: &Upstream, profile: &Profile, lists: &Arc<Offering>) {
        let Some(profile) = upstream.list_profile(profile) else { return };
        self.take_lists_for(upstream, &[profile], Some(lists)).await;
    }

    /// Puts the lists for callers with these profiles into the catalog; `None` forgets them. Does nothing if the server was
    /// replaced in the meantime.
    pub(super) async fn take_lists_for(
        &self,
        upstream: &Upstream,
        profiles: &[Profile],
        offering: Option<&Arc<Offering>>,
    ) {
        let shared: Vec<_> = profiles.iter().filter(|profile| profile.owner.is_none()).cloned().collect();
        let name = upstream.config().name.as_str();
        let current = |catalog: &Catalog| {
            let entry = catalog.get(name).cloned();
            entry.filter(|entry| entry.upstream.as_ref().is_some_and(|current| current.is(upstream)))
        };
        if !shared.is_empty() {
            let _turn = self.local_turn().await;
            let catalog = self.catalog();
            if let Some(entry) = current(&catalog)
                && let Some(changed) = entry.with_set(&shared, offering)
            {
                tracing::debug!(server = name, "the lists for callers with some capabilities changed");
                let is_first = shared.iter().all(|profile| !entry.has_set(profile));
                match is_first && offering.is_some() {
                    true => {
                        self.publish(catalog.with(changed));
                        self.changed.send_replace(());
                    }
                    false => self.swap(catalog.with(changed)),
                }
            }
        }
        let Some((entry, offering)) = current(&self.catalog()).zip(offering) else { return };
        for (profile, owner) in profiles.iter().filter_map(|profile| Some((profile, profile.owner?))) {
            // The owner may be gone since its lists were asked for.
            if !upstream.has_link_of(owner) {
                continue;
            }
            if let Some(outdated) = self.own_lists.adopt(profile, &entry, offering) {
                self.lists.forget_audiences(&outdated);
                let _ = self.own_lists_changed.send(owner);
            }
        }
    }

    /// Passes a client's notice on to the server of its endpoint, on the link that its calls use. It counts as a call in
    /// flight until the server has received it; beyond that limit it is dropped, since a notice has no answer.
    pub async fn pass_notice(&self, viewer: &Viewer, profile: &Profile, notice: &Bytes) {
        let Some(server) = viewer.scope.server() else { return };
        let Ok(_in_flight) = self.usage(viewer.principal).calls.take(1) else { return };
        let upstream = self.catalog().get(server).and_then(|entry| entry.upstream.clone());
        let Some(upstream) = upstream else { return };
        if let Err(error) = upstream.tell(profile, notice.clone()).await {
            tracing::debug!(server, reason = error.kind(), "a notification of a client was not passed on");
        }
    }

    /// Forgets the lists of owners whose links are closed.
    pub(super) fn forget_own_lists(&self, is_over: impl Fn(Owner) -> bool) {
        self.lists.forget_audiences(&self.own_lists.forget(is_over));
    }
}
