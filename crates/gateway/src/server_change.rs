//! The steps of changing one server: claim its name, connect it, store it, swap the catalog.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::audit::server_note;
use super::catalog::Entry;
use super::record::ServerRecord;
use super::{Error, ErrorKind, Gateway, now_ms};
use model::{AuditNote, By, Offering, Registration, ServerConfig, ServerName};
use store::GrantChange;
use upstream::credentials::{Credentials, HeldGrant};
use upstream::{ConnectError, Denial, Journal, Upstream};

impl Gateway {
    pub(super) async fn connect(
        &self,
        registration: &mut Registration,
        journal: Journal,
    ) -> Result<Connected, Unconnected> {
        let credentials = self.credentials_for(registration).await.map_err(Unconnected::Failed)?;
        self.connect_with(registration, credentials, journal).await
    }

    /// The log of the server with this name; a new one if there is no such server.
    pub(super) fn journal_of(&self, name: &ServerName) -> Journal {
        self.catalog().get(name.as_str()).map(|entry| entry.journal.clone()).unwrap_or_default()
    }

    pub(super) async fn connect_with(
        &self,
        registration: &Registration,
        credentials: Option<Arc<Credentials>>,
        journal: Journal,
    ) -> Result<Connected, Unconnected> {
        let config = registration.config.clone();
        let options = self.upstream_options.clone();
        let connecting = Upstream::connect(config, options, self.events.clone(), credentials, journal);
        match self.stop.run_until_cancelled(connecting).await {
            Some(Ok((upstream, discovery))) => {
                let discovered_at_ms = Some(now_ms());
                Ok(Connected { upstream, offering: discovery.offering, discovered_at_ms })
            }
            Some(Err(ConnectError::Unauthorized(denial))) => Err(Unconnected::Denied(denial)),
            Some(Err(error)) => Err(Unconnected::Failed(error.into())),
            None => Err(Unconnected::Failed(Error::stopping())),
        }
    }

    /// Stores a server that could not be connected, for this reason. What the server of this name offered before stays
    /// listed; the supervisor of the new one tries to connect it again.
    pub(super) async fn commit_failed(
        self: &Arc<Self>,
        mut registration: Registration,
        journal: Journal,
        reason: &Error,
        terms: Terms,
    ) -> Result<ServerRecord, Error> {
        let credentials = self.credentials_for(&mut registration).await?;
        let catalog = self.catalog();
        let old = catalog.get(registration.config.name.as_str());
        let offering = old.map(|old| old.offering().clone()).unwrap_or_default();
        let (options, events) = (self.upstream_options.clone(), self.events.clone());
        let config = registration.config.clone();
        let upstream =
            Upstream::resume_failed(config, options, events, credentials, journal, reason.to_string());
        let discovered_at_ms = old.and_then(|old| old.discovered_at_ms);
        self.commit(registration, Connected { upstream, offering, discovered_at_ms }, terms).await
    }

    /// Stores a connected server and puts it into the catalog; it replaces the server of the same name, if any.
    pub(super) async fn commit(
        self: &Arc<Self>,
        registration: Registration,
        connected: Connected,
        terms: Terms,
    ) -> Result<ServerRecord, Error> {
        let Connected { upstream, offering, .. } = &connected;
        let name = registration.config.name.clone();
        let replaced = self.catalog().get(name.as_str()).and_then(|old| old.upstream.clone());
        let is_new = !replaced.as_ref().is_some_and(|old| old.is(upstream));
        // Before taking the turn, since this waits for a renewal in flight.
        let held = match upstream.credentials().filter(|_| is_new) {
            Some(credentials) => Some(credentials.hold().await),
            None => None,
        };
        if let Err(error) = self.store_connected(registration, &connected, terms, held, is_new).await {
            if is_new {
                upstream.stop().await;
            }
            return Err(error);
        }
        tracing::info!(server = %name, tools = offering.tools.len(), "stored a server");
        if is_new {
            self.hand_over(upstream);
            if let Some(old) = replaced {
                old.stop().await;
            }
        }
        let current = self.catalog();
        let current = current.require(name.as_str())?;
        if !current.is_enabled() {
            upstream.stop().await;
        } else if let Some(newer) = upstream.offering().filter(|newer| !newer.same_as(offering)) {
            // Its lists changed while it was not in the catalog yet, so that event was ignored.
            self.take_offering(upstream, newer).await;
        }
        Ok(ServerRecord::of(self.catalog().require(name.as_str())?))
    }

    /// The part of a commit that holds the turn: writes the database, then swaps the catalog.
    async fn store_connected(
        self: &Arc<Self>,
        mut registration: Registration,
        connected: &Connected,
        terms: Terms,
        held: Option<HeldGrant<'_>>,
        is_new: bool,
    ) -> Result<(), Error> {
        let Connected { upstream, offering, discovered_at_ms } = connected;
        let _turn = self.turn().await?;
        if is_new {
            self.take_lease(&registration.config.name, upstream.state().status).await;
        }
        let (catalog, now) = (self.catalog(), now_ms());
        let old = catalog.get(registration.config.name.as_str());
        terms.expected.check(&registration.config.name, old)?;
        if let Some(old) = old {
            terms.keeps.apply(&mut registration, &old.registration);
        }
        let granted = held.as_ref().and_then(|held| held.grant.as_ref());
        let granted = granted.map(|grant| (grant.lineage.clone(), grant.to_secret()));
        let grant = match &granted {
            Some((lineage, text)) => GrantChange::Put(lineage, text),
            None if is_new => GrantChange::Drop,
            None => GrantChange::Keep,
        };
        let note = terms.note(old, &registration, now);
        self.store.replace_server(&registration, offering, grant, now, &note).await?;
        if let Some(held) = held {
            held.stored();
        }
        if let Some(old) = old {
            old.note_switch(registration.flags.enabled);
        }
        let (live, journal) =
            (registration.flags.enabled.then(|| upstream.clone()), upstream.journal().clone());
        let entry = Entry::new(registration, offering.clone(), live, journal, now, *discovered_at_ms);
        self.swap(catalog.with(entry));
        Ok(())
    }

    /// Stores a change of a disabled server without connecting it, since its connection settings did not change.
    pub(super) async fn commit_unconnected(
        self: &Arc<Self>,
        mut registration: Registration,
        terms: Terms,
    ) -> Result<ServerRecord, Error> {
        let name = registration.config.name.clone();
        {
            let _turn = self.turn().await?;
            let (catalog, now) = (self.catalog(), now_ms());
            let old = catalog.require(name.as_str())?;
            terms.expected.check(&name, Some(old))?;
            terms.keeps.apply(&mut registration, &old.registration);
            let (offering, discovered) = (old.offering().clone(), old.discovered_at_ms);
            let note = terms.note(Some(old), &registration, now);
            self.store.replace_server(&registration, &offering, GrantChange::Keep, now, &note).await?;
            let journal = old.journal.clone();
            self.swap(catalog.with(Entry::new(registration, offering, None, journal, now, discovered)));
        }
        Ok(ServerRecord::of(self.catalog().require(name.as_str())?))
    }

    /// Claims a server for a long change, so that two of them never overlap. Dropping the claim releases it.
    pub(super) fn begin_change(self: &Arc<Self>, name: &ServerName) -> Result<Change, Error> {
        let mut in_change = self.in_change.lock().expect("no code panics while it holds the names");
        if !in_change.insert(name.clone()) {
            return Err(Error::conflict(format!(
                "server {:?} is being changed by another request right now; try again",
                name.as_str()
            )));
        }
        Ok(Change { gateway: self.clone(), name: name.clone() })
    }
}

/// Whether the links of a server can stay when its configuration changes like this.
pub(super) fn is_same_link(old: &ServerConfig, new: &ServerConfig) -> bool {
    old.transport == new.transport
        && old.session_mode == new.session_mode
        && old.placement == new.placement
        && old.max_concurrency == new.max_concurrency
}

pub(super) struct Connected {
    pub upstream: Upstream,
    pub offering: Arc<Offering>,
    pub discovered_at_ms: Option<i64>,
}

/// On which terms a server takes the place of the one that has its name.
#[derive(Clone)]
pub(super) struct Terms {
    pub keeps: Keeps,
    pub expected: Expected,
    /// Who wants that.
    pub by: By,
    /// What the audit calls it, if there is a server with that name.
    pub action: &'static str,
}

impl Terms {
    fn note(&self, old: Option<&Arc<Entry>>, new: &Registration, at_ms: i64) -> AuditNote {
        let action = if old.is_some() { self.action } else { "server.register" };
        server_note(&self.by, action, old.map(|old| &*old.registration), Some(new), at_ms)
    }
}

/// What is expected to be registered under the name of a server when it is stored. Another gateway on the same database may
/// have changed that while the server was being connected.
#[derive(Clone)]
pub(super) enum Expected {
    Nothing,
    Anything,
    /// A server with this configuration.
    This(Arc<Registration>),
}

impl Expected {
    fn check(&self, name: &ServerName, current: Option<&Arc<Entry>>) -> Result<(), Error> {
        match (self, current) {
            (Expected::Nothing, None) | (Expected::Anything, _) => Ok(()),
            (Expected::Nothing, Some(_)) => Err(Error::already_registered(name.as_str())),
            (Expected::This(_), None) => Err(Error::unknown_server(name.as_str())),
            (Expected::This(before), Some(current)) if before.config == current.registration.config => Ok(()),
            (Expected::This(_), Some(_)) => Err(Error::conflict(format!(
                "server {:?} was changed by another request meanwhile; try again",
                name.as_str()
            ))),
        }
    }
}

/// What happens with a server that cannot be connected: the key `keep_failed` of a registration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IfFailed {
    Refuse,
    Keep,
}

impl IfFailed {
    pub(super) fn of(input: &Map<String, Value>) -> Self {
        match input.get("keep_failed") {
            Some(Value::Bool(true)) => Self::Keep,
            Some(_) | None => Self::Refuse,
        }
    }

    /// Whether a server whose registration failed with this error is stored. A server that waits for a person's
    /// authorization is not: the caller learns how to start that.
    pub(super) fn keeps(self, error: &Error) -> bool {
        self == Self::Keep && error.kind == ErrorKind::Upstream
    }
}

/// Why there is no connection.
pub(super) enum Unconnected {
    /// The server demands authorization.
    Denied(Denial),
    Failed(Error),
}

/// Which flags are copied from the server that is replaced. They are copied at the moment of the replacement, since
/// people may switch tools while the new server is being connected.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Keeps {
    disabled_tools: bool,
    disabled_prompts: bool,
}

impl Keeps {
    pub(super) const ALL: Self = Self { disabled_tools: true, disabled_prompts: true };

    pub(super) fn unless_named(input: &Map<String, Value>) -> Self {
        Self {
            disabled_tools: !input.contains_key("disabled_tools"),
            disabled_prompts: !input.contains_key("disabled_prompts"),
        }
    }

    fn apply(self, new: &mut Registration, old: &Registration) {
        if self.disabled_tools {
            new.flags.disabled_tools.clone_from(&old.flags.disabled_tools);
        }
        if self.disabled_prompts {
            new.flags.disabled_prompts.clone_from(&old.flags.disabled_prompts);
        }
    }
}

pub(super) struct Change {
    gateway: Arc<Gateway>,
    name: ServerName,
}

impl Drop for Change {
    fn drop(&mut self) {
        self.gateway.in_change.lock().expect("no code panics while it holds the names").remove(&self.name);
    }
}
