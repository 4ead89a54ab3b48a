//! The table `changes`: what changed in which epoch. A gateway that shares its database with others reads here what it has
//! to read again.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::db::{Tx, on};
use super::epoch::{self, ANNOUNCE, BUMP_EPOCH};
use super::idp_groups::read_idp_groups_of;
use super::oauth::HeldCredentials;
use super::servers::StoredServer;
use super::{Store, StoreError, idp_users, settings};
use model::{Client, Group, IdpGroup, PrincipalId, Secret, User};

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangedKind {
    Server,
    Group,
    User,
    /// A user of the identity provider.
    IdpUser,
    Client,
    /// A group of the identity provider.
    IdpGroup,
    /// The grant of a server.
    Grant,
    /// The grants and browser sessions of a user, by the id of the user.
    Credentials,
}

impl ChangedKind {
    fn as_str(self) -> &'static str {
        match self {
            ChangedKind::Server => "server",
            ChangedKind::Group => "group",
            ChangedKind::User => "user",
            ChangedKind::IdpUser => "idp_user",
            ChangedKind::Client => "client",
            ChangedKind::IdpGroup => "idp_group",
            ChangedKind::Grant => "grant",
            ChangedKind::Credentials => "credentials",
        }
    }
}

/// A transaction that changes what gateways hold in memory. It has the next epoch.
pub(super) struct ChangeTx {
    tx: Tx,
    epoch: i64,
    latest: Arc<AtomicI64>,
}

impl ChangeTx {
    pub(super) async fn begin(mut tx: Tx, latest: &Arc<AtomicI64>) -> Result<Self, StoreError> {
        let text: String = on!(&mut tx, |db| sqlx::query_scalar(BUMP_EPOCH).fetch_one(db).await)?;
        let epoch = epoch::parse(&text).ok_or_else(unreadable)?;
        if let Tx::Postgres(_) = tx {
            on!(&mut tx, |db| sqlx::query(ANNOUNCE).bind(text).execute(db).await.map(|_| ()))?;
        }
        Ok(Self { tx, epoch, latest: latest.clone() })
    }

    /// Records what changes, for the other gateways on the same database. A file has only one.
    pub(super) async fn note(&mut self, kind: ChangedKind, name: &str) -> Result<(), sqlx::Error> {
        const SQL: &str = "INSERT INTO changes (kind, name, epoch) VALUES ($1, $2, $3)
            ON CONFLICT (kind, name) DO UPDATE SET epoch = excluded.epoch";
        if let Tx::Sqlite(_) = self.tx {
            return Ok(());
        }
        let epoch = self.epoch;
        on!(&mut self.tx, |db| {
            let query = sqlx::query(SQL).bind(kind.as_str()).bind(name).bind(epoch);
            query.execute(db).await.map(|_| ())
        })
    }

    /// The epoch of the change.
    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Takes everything back, on purpose.
    pub(super) async fn roll_back(self) {
        self.tx.roll_back().await;
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        self.tx.commit().await?;
        self.latest.fetch_max(self.epoch, Ordering::AcqRel);
        Ok(())
    }
}

impl Deref for ChangeTx {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.tx
    }
}

impl DerefMut for ChangeTx {
    fn deref_mut(&mut self) -> &mut Tx {
        &mut self.tx
    }
}

/// What changed after an epoch. `None` in the place of a row means that it is gone.
#[derive(Debug, Default)]
pub struct Changes {
    /// The epoch that is reached with them.
    pub epoch: i64,
    /// The mode in which the database was initialized, if it was.
    pub mode: Option<String>,
    pub servers: Vec<(String, Option<StoredServer>)>,
    pub groups: Vec<(String, Option<Group>)>,
    pub users: Vec<(String, Option<User>)>,
    pub clients: Vec<(String, Option<Client>)>,
    pub idp_groups: Vec<(String, Option<IdpGroup>)>,
    /// The grants of servers, also of those that did not change otherwise.
    pub grants: Vec<(String, Option<Secret>)>,
    /// The grants and browser sessions that users have now.
    pub credentials: Vec<(PrincipalId, HeldCredentials)>,
}

impl Store {
    /// The epoch of the last change that this gateway made or read.
    pub fn latest_epoch(&self) -> i64 {
        self.latest_epoch.load(Ordering::Acquire)
    }

    /// Reads what changed after an epoch, all of it as it was at one moment.
    pub async fn changes_since(&self, epoch: i64) -> Result<Changes, StoreError> {
        const SQL: &str = "SELECT kind, name FROM changes WHERE epoch > $1 ORDER BY epoch, kind, name";
        let mut tx = self.read().await?;
        // Rows may be sealed under a new key.
        settings::learn_other_key(&mut tx, &self.seal).await?;
        let (epoch, since) = (settings::epoch(&mut tx).await?, epoch);
        let rows: Vec<(String, String)> =
            on!(&mut tx, |db| sqlx::query_as(SQL).bind(since).fetch_all(db).await)?;
        let mut changes = Changes { epoch, mode: settings::mode(&mut tx).await?, ..Changes::default() };
        for (kind, name) in rows {
            match kind.as_str() {
                "server" => {
                    let read = self.read_servers_of(&mut tx, Some(&name)).await?.pop().transpose()?;
                    changes.servers.push((name, read));
                }
                "group" => {
                    let read = self.read_groups_of(&mut tx, Some(&name)).await?.pop().transpose()?;
                    changes.groups.push((name, read));
                }
                "user" => {
                    let read = self.read_users_of(&mut tx, Some(&name)).await?.pop().transpose()?;
                    changes.users.push((name, read));
                }
                "idp_user" => {
                    let read = idp_users::read_of(&mut tx, Some(&name)).await?.pop().transpose()?;
                    changes.users.push((name, read));
                }
                "client" => {
                    let read = self.read_clients_of(&mut tx, Some(&name)).await?.pop().transpose()?;
                    changes.clients.push((name, read));
                }
                "idp_group" => {
                    let read = read_idp_groups_of(&mut tx, Some(&name)).await?.pop().transpose()?;
                    changes.idp_groups.push((name, read));
                }
                "grant" => {
                    let read = self.read_grants_of(&mut tx, Some(&name)).await?.pop();
                    changes.grants.push((name, read.and_then(|(_, grant)| grant)));
                }
                "credentials" => {
                    if let Some(user) = name.parse().ok().map(PrincipalId) {
                        let read = self.read_credentials_of(&mut tx, user).await?;
                        changes.credentials.push((user, read));
                    }
                }
                // Of a newer version.
                _ => {}
            }
        }
        tx.commit().await?;
        self.latest_epoch.fetch_max(epoch, Ordering::AcqRel);
        Ok(changes)
    }
}

fn unreadable() -> StoreError {
    StoreError::Corrupt("the setting \"epoch\" is not a number".into())
}
