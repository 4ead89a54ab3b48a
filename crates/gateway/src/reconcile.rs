//! Repairs the database after a failed write. The catalog in memory is exactly what callers were told, so the database
//! is corrected to match it before anything else is changed. A task does this as soon as the disk works again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::audit::{client_note, group_note, idp_group_note, server_note, user_note};
use super::change::Turn;
use super::principals::Principals;
use super::{Gateway, now_ms};
use model::{AuditNote, By};
use store::{GrantChange, StoreError};

/// The pause between two attempts to write to a database that fails.
const RETRY: Duration = Duration::from_secs(1);

impl Gateway {
    /// Watches the store and repairs it whenever a write failed. Runs for as long as the gateway does.
    pub(super) async fn keep_store_healthy(self: Arc<Self>) {
        let mut health = self.store.health();
        while health.wait_for(|health| !health.is_ok()).await.is_ok() {
            if let Err(error) = self.turn().await {
                tracing::debug!(%error, "the database still cannot be written");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Compares the database with the catalog and writes what differs. If other gateways use the database too, it decides
    /// instead, and the catalog follows it.
    pub(super) async fn reconcile(self: &Arc<Self>, turn: &Turn<'_>) -> Result<(), StoreError> {
        let failures = self.store.health().borrow().failures;
        self.store.heal().await?;
        let corrected = match self.store.is_shared() {
            true => {
                self.catch_up(turn).await?;
                self.store_late_offerings().await?
            }
            false => {
                self.correct_servers().await?
                    + self.correct_groups().await?
                    + self.correct_users().await?
                    + self.correct_clients().await?
                    + self.correct_idp_groups().await?
            }
        };
        // Completing an authorization takes a turn first, so any that is stored as being completed was interrupted.
        if self.has_interrupted.load(Ordering::Relaxed) {
            self.store.fail_interrupted_authorizations(now_ms()).await?;
            self.has_interrupted.store(false, Ordering::Relaxed);
        }
        self.settle_late().await?;
        if corrected > 0 {
            tracing::warn!(corrected, "the database was corrected after a failed write");
        }
        self.store.confirm(failures);
        Ok(())
    }

    /// Stores the lists that could not be stored when they were read.
    async fn store_late_offerings(&self) -> Result<usize, StoreError> {
        let late =
            || self.late_offerings.lock().expect("no code panics while it holds the names").first().cloned();
        let mut count = 0;
        while let Some(name) = late() {
            let is_ours = self.replicas.reads_here(name.as_str());
            if let Some(entry) = self.catalog().get(name.as_str()).filter(|_| is_ours) {
                self.store.update_offering(&name, entry.offering(), now_ms()).await?;
                count += 1;
            }
            self.late_offerings.lock().expect("no code panics while it holds the names").remove(&name);
        }
        Ok(count)
    }

    async fn correct_servers(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let mut corrected = 0;
        let mut right = BTreeSet::new();
        for stored in self.store.load_servers().await? {
            let name = &stored.registration.config.name;
            let Some(entry) = catalog.get(name.as_str()) else {
                let note =
                    server_note(&By::gateway(), "server.repair", Some(&stored.registration), None, now);
                self.store.delete_server(name, &note).await?;
                corrected += 1;
                continue;
            };
            let is_right = entry.registration.to_json() == stored.registration.to_json()
                && entry.offering().same_as(&stored.offering);
            if is_right {
                right.insert(name.clone());
            }
        }
        // Replaced rather than deleted and inserted, so that they keep their grants.
        for entry in catalog.entries().filter(|entry| !right.contains(entry.name())) {
            let (registration, offering) = (&entry.registration, entry.offering());
            let note = server_note(&By::gateway(), "server.repair", None, Some(registration), now);
            self.store.replace_server(registration, offering, GrantChange::Keep, now, &note).await?;
            corrected += 1;
        }
        Ok(corrected)
    }

    async fn correct_groups(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let stored = self.store.load_groups().await?;
        let differences = Differences::between(&stored, catalog.groups(), |group| group.name.as_str());
        for group in &differences.wrong {
            let note = group_note(&By::gateway(), "group.repair", Some(group), None);
            self.store.delete_group(&group.name, &note).await?;
        }
        for group in &differences.missing {
            let note = group_note(&By::gateway(), "group.repair", None, Some(group));
            self.store.put_group(group, now, &note).await?;
        }
        Ok(differences.count())
    }

    async fn correct_users(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let stored = self.store.load_users().await?;
        let users = catalog.principals().users();
        let differences = Differences::between(&stored, users, |user| user.username.as_str());
        for user in &differences.wrong {
            let note = user_note(&By::gateway(), "user.repair", Some(user), None);
            self.store.delete_user(user, now, &note).await?;
        }
        for user in &differences.missing {
            let note = user_note(&By::gateway(), "user.repair", None, Some(user));
            self.store.put_user(user, now, &note).await?;
        }
        if !catalog.principals().is_initialized && self.store.mode().await?.is_some() {
            let note = AuditNote::new(&By::gateway(), "gateway.repair", "", now);
            self.store.forget_mode(&note).await?;
        }
        Ok(differences.count())
    }

    async fn correct_idp_groups(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let stored = self.store.load_idp_groups().await?;
        // The group of everybody is there without a row, unless somebody changed it.
        let untouched = Principals::default();
        let groups = catalog.principals().idp_groups();
        let groups = groups.filter(|group| untouched.idp_group(&group.name) != Some(group));
        let differences = Differences::between(&stored, groups, |group| group.name.as_str());
        for group in &differences.wrong {
            let note = idp_group_note(&By::gateway(), "idp_group.repair", Some(group), None);
            self.store.delete_idp_group(&group.name, &note).await?;
        }
        for group in &differences.missing {
            let note = idp_group_note(&By::gateway(), "idp_group.repair", None, Some(group));
            self.store.put_idp_group(group, now, &note).await?;
        }
        Ok(differences.count())
    }

    async fn correct_clients(&self) -> Result<usize, StoreError> {
        let (catalog, now) = (self.catalog(), now_ms());
        let stored = self.store.load_clients().await?;
        let clients = catalog.principals().clients();
        let differences = Differences::between(&stored, clients, |client| client.name.as_str());
        for client in &differences.wrong {
            let note = client_note(&By::gateway(), "client.repair", Some(client), None);
            self.store.delete_client(&client.name, now, &note).await?;
        }
        for client in &differences.missing {
            let note = client_note(&By::gateway(), "client.repair", None, Some(client));
            self.store.put_client(client, now, &note).await?;
        }
        Ok(differences.count())
    }
}

/// Rows to delete and, after that, rows to store. The order matters, since the token of a wrong row may belong to
/// another user or client.
struct Differences<'a, T> {
    wrong: Vec<&'a T>,
    missing: Vec<&'a T>,
}

impl<'a, T: PartialEq> Differences<'a, T> {
    fn between(stored: &'a [T], right: impl Iterator<Item = &'a T>, key: impl Fn(&T) -> &str) -> Self {
        let mut unmatched: HashMap<_, _> = stored.iter().map(|row| (key(row), row)).collect();
        let mut missing = Vec::new();
        for row in right {
            match unmatched.get(key(row)) {
                Some(stored) if *stored == row => drop(unmatched.remove(key(row))),
                Some(_) | None => missing.push(row),
            }
        }
        Self { wrong: unmatched.into_values().collect(), missing }
    }

    fn count(&self) -> usize {
        self.wrong.len() + self.missing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_deleted_and_stored_anew_and_the_rest_is_left_alone() {
        let stored = [("same", 1), ("changed", 1), ("gone", 1)];
        let right = [("same", 1), ("changed", 2), ("new", 1)];
        let differences = Differences::between(&stored, right.iter(), |row| row.0);
        let mut wrong = differences.wrong;
        wrong.sort_unstable();
        assert_eq!(wrong, [&("changed", 1), &("gone", 1)]);
        assert_eq!(differences.missing, [&("changed", 2), &("new", 1)]);
    }
}
