//! Follows the changes that other gateways make on the same database. The database decides: what changed there is read
//! again and replaces what is in memory. What did not change keeps its links.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::catalog::{Catalog, Entry};
use super::change::Turn;
use super::principals::Principals;
use super::server_change::is_same_link;
use super::{Error, Gateway, grants};
use model::Secret;
use store::{Changes, Notice, StoreError, StoredServer};
use upstream::Upstream;

/// The longest time that a request waits for an epoch.
const WAITING: Duration = Duration::from_secs(2);
/// A database that was not seen for this long cannot be reached: it is looked at every two seconds.
const UNSEEN: Duration = Duration::from_secs(7);

/// How far this gateway has followed its database.
pub(super) struct Progress {
    /// The epoch up to which all changes are in memory.
    epoch: watch::Sender<i64>,
    started: Instant,
    /// When the database was last seen, in milliseconds after the start.
    seen_ms: AtomicU64,
    /// How long rights count without a database that confirms them.
    pub limit: Duration,
}

impl Progress {
    pub fn new(epoch: i64, limit: Duration) -> Self {
        Self { epoch: watch::Sender::new(epoch), started: Instant::now(), seen_ms: AtomicU64::new(0), limit }
    }

    pub fn reached(&self) -> i64 {
        *self.epoch.borrow()
    }

    fn reach(&self, epoch: i64) {
        self.epoch.send_if_modified(|reached| {
            let is_later = epoch > *reached;
            *reached = epoch.max(*reached);
            is_later
        });
        self.note_seen();
    }

    fn note_seen(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.seen_ms.store(now, Ordering::Release);
    }

    fn unseen_for(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.seen_ms.load(Ordering::Acquire)))
    }
}

impl Gateway {
    /// The epoch of the last change that this gateway made or knows of.
    pub fn epoch(&self) -> i64 {
        self.store.latest_epoch()
    }

    /// Whether the database has not confirmed anybody's rights for too long.
    pub fn has_stale_rights(&self) -> bool {
        self.store.is_shared() && self.progress.unseen_for() > self.progress.limit
    }

    /// Whether the database can be used, as far as that is known.
    pub fn is_database_well(&self) -> bool {
        let is_seen = !self.store.is_shared() || self.progress.unseen_for() < UNSEEN;
        is_seen && self.store.health().borrow().is_ok()
    }

    /// Waits until all changes up to an epoch are in memory.
    pub async fn wait_for_epoch(self: &Arc<Self>, epoch: i64) -> Result<(), Error> {
        if !self.store.is_shared() {
            return if self.epoch() >= epoch { Ok(()) } else { Err(Error::behind(epoch)) };
        }
        if self.progress.reached() >= epoch {
            return Ok(());
        }
        let waiting = async {
            let turn = self.local_turn().await;
            if self.progress.reached() < epoch {
                self.catch_up(&turn).await?;
            }
            drop(turn);
            let _ = self.progress.epoch.subscribe().wait_for(|reached| *reached >= epoch).await;
            Ok(())
        };
        tokio::time::timeout(WAITING, waiting).await.unwrap_or_else(|_| Err(Error::behind(epoch)))
    }

    /// Follows the database for as long as the gateway runs.
    pub(super) async fn follow_database(self: Arc<Self>) {
        let Some(mut watch) = self.store.watch_changes() else { return };
        loop {
            match watch.next().await {
                Ok(Notice::Epoch(epoch)) if epoch <= self.progress.reached() => self.progress.note_seen(),
                Ok(Notice::Leases) => self.replicas.leases_changed.notify_one(),
                Ok(Notice::Lists(server)) => {
                    let catalog = self.catalog();
                    let upstream = catalog.get(&server).and_then(|entry| entry.upstream.as_ref());
                    let is_here = self.replicas.reads_here(&server);
                    if let Some(upstream) = upstream.filter(|_| is_here) {
                        upstream.doubt_lists();
                    }
                }
                Ok(Notice::Epoch(_)) => {
                    let turn = self.local_turn().await;
                    if let Err(error) = self.catch_up(&turn).await {
                        tracing::warn!(%error, "cannot read what changed in the database; trying again");
                    }
                }
                Err(error) => tracing::debug!(%error, "cannot look for changes of the database"),
            }
        }
    }

    /// Takes over what changed in the database since the last time.
    pub(super) async fn catch_up(self: &Arc<Self>, _turn: &Turn<'_>) -> Result<(), StoreError> {
        let changes = self.store.changes_since(self.progress.reached()).await?;
        let epoch = changes.epoch;
        if !changes.servers.is_empty() {
            self.read_leases().await;
        }
        self.take_over_credentials(&changes.credentials, epoch);
        self.take_over(changes);
        self.progress.reach(epoch);
        Ok(())
    }

    fn take_over(self: &Arc<Self>, changes: Changes) {
        let before = self.catalog();
        let mut catalog = (*before).clone();
        let mut grants = changes.grants;
        let mut take_grant = |server: &str| {
            let position = grants.iter().position(|(name, _)| name == server)?;
            Some(grants.swap_remove(position).1)
        };
        let mut ended = Vec::new();
        for (name, stored) in changes.servers {
            let old = before.get(&name);
            match (old, stored) {
                (None, None) => {}
                (Some(old), None) => {
                    catalog = catalog.without(old.name());
                    ended.push(old.clone());
                }
                (Some(old), Some(stored)) if is_known(old, &stored) => {}
                (old, Some(stored)) => {
                    let entry = self.entry_of(old, stored, take_grant(&name));
                    let replaced = old.filter(|old| !is_same_upstream(old, &entry));
                    ended.extend(replaced.cloned());
                    catalog = catalog.with(entry);
                }
            }
        }
        for (server, grant) in grants {
            if let Some(upstream) = catalog.get(&server).and_then(|entry| entry.upstream.as_ref()) {
                give(upstream, grant);
            }
        }
        for (name, group) in changes.groups {
            catalog = match (group, before.group(&name)) {
                (Some(group), Ok(known)) if group == *known => catalog,
                (Some(group), _) => catalog.with_group(group),
                (None, Ok(known)) => catalog.without_group(&known.name),
                (None, Err(_)) => catalog,
            };
        }
        let mut principals = before.principals().clone();
        for (name, user) in changes.users {
            principals = match (user, principals.user(&name).cloned()) {
                (Some(user), Some(known)) if user == known => principals,
                // Somebody who got another name keeps what belongs to them.
                (Some(user), known) => {
                    let same = principals.users().find(|other| other.id == user.id);
                    let earlier = same.or(known.as_ref()).map(|earlier| earlier.username.clone());
                    principals.with_user(&self.store, earlier.as_ref(), user)
                }
                (None, Some(known)) => principals.without_user(&known.username),
                (None, None) => principals,
            };
        }
        for (name, client) in changes.clients {
            principals = match (client, principals.client(&name).cloned()) {
                (Some(client), Some(known)) if client == known => principals,
                (Some(client), _) => principals.with_client(&self.store, client),
                (None, Some(known)) => principals.without_client(&known.name),
                (None, None) => principals,
            };
        }
        for (name, group) in changes.idp_groups {
            principals = match (group, principals.idp_group(&name)) {
                (Some(group), Some(known)) if group == *known => principals,
                (Some(group), _) => principals.with_idp_group(group),
                (None, Some(_)) => principals.without_idp_group(&name),
                (None, None) => principals,
            };
        }
        principals.is_initialized |= changes.mode.as_deref() == Some(self.mode.as_str());
        self.publish_changes(&before, catalog, principals);
        self.follow_leases();
        self.end(ended);
    }

    /// The entry of a server that another gateway stored. Its upstream is kept if it is reached in the same way.
    fn entry_of(
        &self,
        old: Option<&Arc<Entry>>,
        stored: StoredServer,
        grant: Option<Option<Secret>>,
    ) -> Entry {
        let StoredServer { registration, offering, updated_at_ms, discovered_at_ms, .. } = stored;
        let offering = match old {
            Some(old) if old.offering().same_as(&offering) => old.offering().clone(),
            Some(_) | None => Arc::new(offering),
        };
        let is_enabled = registration.flags.enabled;
        let journal = old.map(|old| old.journal.clone()).unwrap_or_default();
        if let Some(old) = old {
            old.note_switch(is_enabled);
        }
        let same_link = |old: &&Arc<Entry>| is_same_link(&old.registration.config, &registration.config);
        let kept = old.filter(same_link).and_then(|old| old.upstream.clone()).filter(|_| is_enabled);
        let upstream = match kept {
            Some(upstream) => {
                if let Some(grant) = grant {
                    give(&upstream, grant);
                }
                upstream.learn_lists(&offering);
                Some(upstream)
            }
            None => is_enabled.then(|| {
                let in_use = old.and_then(|old| old.upstream.as_ref()?.credentials()?.grant());
                let grant = match grant {
                    Some(stored) => stored.and_then(|text| grants::read(&registration.config.name, &text)),
                    None => in_use,
                };
                let credentials = self.new_credentials(&registration, grant, true);
                let (options, events) = (self.upstream_options.clone(), self.events.clone());
                let reading = self.replicas.reading_of(&registration.config);
                self.look_for_runner(reading);
                Upstream::resume(
                    registration.config.clone(),
                    options,
                    events,
                    credentials,
                    journal.clone(),
                    &offering,
                    reading,
                )
            }),
        };
        Entry::new(registration, offering, upstream, journal, updated_at_ms, discovered_at_ms)
    }

    /// Publishes what changed elsewhere, and ends what runs under tokens that are no longer valid.
    fn publish_changes(self: &Arc<Self>, before: &Catalog, catalog: Catalog, principals: Principals) {
        let is_other = !catalog.difference(before).is_empty();
        if is_other {
            self.change_count.fetch_add(1, Ordering::AcqRel);
        }
        if principals.differs_from(before.principals()) {
            self.swap_principals(&catalog, principals);
        } else if is_other {
            self.publish(catalog);
            self.changed.send_replace(());
        }
    }

    /// Stops the upstreams of entries that are no longer in the catalog.
    fn end(self: &Arc<Self>, ended: Vec<Arc<Entry>>) {
        for entry in ended {
            let gateway = self.clone();
            self.tasks.spawn(async move {
                if let Some(upstream) = &entry.upstream {
                    upstream.stop().await;
                }
                if gateway.catalog().get(entry.name().as_str()).is_none() {
                    gateway.metrics.forget_server(entry.name().as_str());
                }
            });
        }
    }
}

/// Whether an entry is what is stored.
fn is_known(entry: &Entry, stored: &StoredServer) -> bool {
    entry.registration.to_json() == stored.registration.to_json()
        && entry.offering().same_as(&stored.offering)
}

fn is_same_upstream(old: &Entry, new: &Entry) -> bool {
    match (&old.upstream, &new.upstream) {
        (Some(old), Some(new)) => old.is(new),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Gives an upstream the grant that is stored for it.
fn give(upstream: &Upstream, grant: Option<Secret>) {
    let Some(credentials) = upstream.credentials() else { return };
    if let Some(grant) = grant.and_then(|text| grants::read(&upstream.config().name, &text)) {
        credentials.replace(grant);
    }
}
