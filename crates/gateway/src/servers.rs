//! Registering servers, changing them, switching them on and off, removing them.
//! A server is connected before anything is stored, so a failed attempt leaves everything as it was.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::catalog::Entry;
use super::oauth::{Outcome, Purpose};
use super::record::ServerRecord;
use super::{Error, Gateway, now_ms};
use model::{Offering, Registration, ServerName};
use store::GrantChange;
use upstream::token::{Held, Tokens};
use upstream::{ConnectError, Denial, Upstream};

/// What became visible or hidden when a server was switched.
#[derive(Debug)]
pub struct Switched {
    pub name: String,
    pub tools_affected: Vec<String>,
    pub prompts_affected: Vec<String>,
}

/// Whether a registration may take the place of a server with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Replace,
}

impl Gateway {
    pub fn servers(&self) -> Vec<ServerRecord> {
        self.catalog().entries().map(|entry| ServerRecord::of(entry)).collect()
    }

    pub fn server(&self, name: &str) -> Result<ServerRecord, Error> {
        Ok(ServerRecord::of(self.catalog().require(name)?))
    }

    /// The registration inputs that would give the same servers again, secrets in clear.
    pub fn server_configs(&self) -> Vec<Map<String, Value>> {
        self.catalog().entries().map(|entry| entry.registration.to_json()).collect()
    }

    pub async fn register(
        self: &Arc<Self>,
        input: Map<String, Value>,
        existing: Existing,
    ) -> Result<Outcome, Error> {
        let keeps = Keeps::unless_named(&input);
        let mut registration = Registration::parse(input)?;
        self.to_the_end(async move |gateway: Arc<Self>| {
            let name = registration.config.name.clone();
            let _change = gateway.begin_change(&name)?;
            if existing == Existing::Refuse && gateway.catalog().get(name.as_str()).is_some() {
                return Err(Error::already_registered(name.as_str()));
            }
            let purpose = match existing {
                Existing::Refuse => Purpose::Register,
                Existing::Replace => Purpose::Replace,
            };
            match gateway.connect(&mut registration).await {
                Ok(connected) => gateway.commit(registration, connected, keeps).await.map(Outcome::stored),
                Err(Unconnected::Denied(denial)) => {
                    gateway.authorize(registration, denial, purpose, keeps).await
                }
                Err(Unconnected::Failed(error)) => Err(error),
            }
        })
        .await
    }

    /// Changes the given keys; a changed way of connecting is tried before it replaces the old one.
    pub async fn amend(self: &Arc<Self>, name: &str, changes: Map<String, Value>) -> Result<Outcome, Error> {
        let name = self.catalog().require(name)?.name().clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _change = gateway.begin_change(&name)?;
            let catalog = gateway.catalog();
            let entry = catalog.require(name.as_str())?;
            let keeps = Keeps::unless_named(&changes);
            let mut registration = entry.registration.amended(changes)?;
            let (old, new) = (&entry.registration.config, &registration.config);
            let same_link = old.transport == new.transport
                && old.session_mode == new.session_mode
                && old.max_concurrency == new.max_concurrency;
            let connected = match &entry.upstream {
                Some(upstream) if same_link => {
                    Connected { upstream: upstream.clone(), offering: entry.offering().clone() }
                }
                None if same_link && !registration.flags.enabled => {
                    return gateway.commit_unconnected(registration, keeps).await.map(Outcome::stored);
                }
                Some(_) | None => match gateway.connect(&mut registration).await {
                    Ok(connected) => connected,
                    Err(Unconnected::Denied(denial)) => {
                        return gateway.authorize(registration, denial, Purpose::Replace, keeps).await;
                    }
                    Err(Unconnected::Failed(error)) => return Err(error),
                },
            };
            gateway.commit(registration, connected, keeps).await.map(Outcome::stored)
        })
        .await
    }

    pub async fn remove(self: &Arc<Self>, name: &str) -> Result<(), Error> {
        let name = self.catalog().require(name)?.name().clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _change = gateway.begin_change(&name)?;
            let entry = gateway.catalog().require(name.as_str())?.clone();
            {
                let _turn = gateway.turn().await?;
                gateway.store.delete_server(&name).await?;
                gateway.swap(gateway.catalog().without(&name));
            }
            tracing::info!(server = %name, "removed a server");
            if let Some(upstream) = &entry.upstream {
                upstream.stop().await;
            }
            gateway.metrics.forget_server(name.as_str(), entry.tools().map(|tool| tool.name.as_str()));
            Ok(())
        })
        .await
    }

    pub async fn switch_server(self: &Arc<Self>, name: &str, enabled: bool) -> Result<Switched, Error> {
        let name = self.catalog().require(name)?.name().clone();
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _change = gateway.begin_change(&name)?;
            let before = gateway.catalog().require(name.as_str())?.clone();
            if before.is_enabled() == enabled {
                return Ok(Switched {
                    name: name.to_string(),
                    tools_affected: vec![],
                    prompts_affected: vec![],
                });
            }
            let tokens = gateway.tokens_for(&mut (*before.registration).clone()).await?;
            {
                let _turn = gateway.turn().await?;
                let now = now_ms();
                gateway.store.set_enabled(&name, enabled, now).await?;
                let catalog = gateway.catalog();
                let mut entry =
                    catalog.require(name.as_str())?.with_flags(|flags| flags.enabled = enabled, now);
                entry.upstream = enabled.then(|| gateway.resume(&entry, tokens));
                gateway.swap(catalog.with(entry));
            }
            tracing::info!(server = %name, enabled, "switched a server");
            if let Some(upstream) = before.upstream.as_ref().filter(|_| !enabled) {
                upstream.stop().await;
            }
            Ok(affected(&before))
        })
        .await
    }

    /// Reads the server's lists now.
    pub async fn refresh(self: &Arc<Self>, name: &str) -> Result<ServerRecord, Error> {
        let entry = self.catalog().require(name)?.clone();
        let upstream = entry.upstream.clone();
        let upstream = upstream
            .ok_or_else(|| Error::invalid(format!("server {name:?} is disabled; enable it first")))?;
        self.to_the_end(async move |gateway: Arc<Self>| {
            let refreshed = gateway.stop.run_until_cancelled(upstream.refresh()).await;
            let offering = refreshed.ok_or_else(Error::stopping)??;
            let name = upstream.config().name.as_str();
            if gateway.catalog().get(name).is_some_and(|entry| !entry.offering().same_as(&offering)) {
                gateway.take_offering(&upstream, offering).await;
            }
            gateway.server(name)
        })
        .await
    }

    async fn connect(&self, registration: &mut Registration) -> Result<Connected, Unconnected> {
        let tokens = self.tokens_for(registration).await.map_err(Unconnected::Failed)?;
        self.connect_with(registration, tokens).await
    }

    pub(super) async fn connect_with(
        &self,
        registration: &Registration,
        tokens: Option<Arc<Tokens>>,
    ) -> Result<Connected, Unconnected> {
        let config = registration.config.clone();
        let options = self.upstream_options.clone();
        let connecting = Upstream::connect(config, options, self.events.clone(), tokens);
        match self.stop.run_until_cancelled(connecting).await {
            Some(Ok((upstream, discovery))) => Ok(Connected { upstream, offering: discovery.offering }),
            Some(Err(ConnectError::Unauthorized(denial))) => Err(Unconnected::Denied(denial)),
            Some(Err(error)) => Err(Unconnected::Failed(error.into())),
            None => Err(Unconnected::Failed(Error::stopping())),
        }
    }

    fn resume(&self, entry: &Entry, tokens: Option<Arc<Tokens>>) -> Upstream {
        let config = entry.registration.config.clone();
        let (options, events) = (self.upstream_options.clone(), self.events.clone());
        let upstream = Upstream::resume(config, options, events, tokens, entry.offering());
        self.hand_over(&upstream);
        upstream
    }

    /// Stores and shows a server that is connected; whatever was there before it makes room.
    pub(super) async fn commit(
        &self,
        registration: Registration,
        connected: Connected,
        keeps: Keeps,
    ) -> Result<ServerRecord, Error> {
        let Connected { upstream, offering } = connected;
        let name = registration.config.name.clone();
        let replaced = self.catalog().get(name.as_str()).and_then(|old| old.upstream.clone());
        let is_new = !replaced.as_ref().is_some_and(|old| old.is(&upstream));
        // Before the turn, since a renewal that is under way may take a while.
        let held = match upstream.tokens().filter(|_| is_new) {
            Some(tokens) => Some(tokens.hold().await),
            None => None,
        };
        if let Err(error) =
            self.store_connected(registration, &upstream, &offering, keeps, held, is_new).await
        {
            if is_new {
                upstream.stop().await;
            }
            return Err(error);
        }
        tracing::info!(server = %name, tools = offering.tools.len(), "stored a server");
        if is_new {
            self.hand_over(&upstream);
            if let Some(old) = replaced {
                old.stop().await;
            }
        }
        let current = self.catalog();
        let current = current.require(name.as_str())?;
        if !current.is_enabled() {
            upstream.stop().await;
        } else if let Some(newer) = upstream.offering().filter(|newer| !newer.same_as(&offering)) {
            // Its lists changed while it was being stored, when nobody could take that in.
            self.take_offering(&upstream, newer).await;
        }
        self.server(name.as_str())
    }

    /// The part of a commit that needs the turn: the database, then the catalog.
    async fn store_connected(
        &self,
        mut registration: Registration,
        upstream: &Upstream,
        offering: &Arc<Offering>,
        keeps: Keeps,
        held: Option<Held<'_>>,
        is_new: bool,
    ) -> Result<(), Error> {
        let _turn = self.turn().await?;
        let (catalog, now) = (self.catalog(), now_ms());
        if let Some(old) = catalog.get(registration.config.name.as_str()) {
            keeps.apply(&mut registration, &old.registration);
        }
        let granted = held.as_ref().and_then(|held| held.grant.as_ref());
        let granted = granted.map(|grant| (grant.lineage.clone(), grant.to_secret()));
        let grant = match &granted {
            Some((lineage, text)) => GrantChange::Put(lineage, text),
            None if is_new => GrantChange::Drop,
            None => GrantChange::Keep,
        };
        self.store.replace_server(&registration, offering, grant, now).await?;
        if let Some(held) = held {
            held.stored();
        }
        let live = registration.flags.enabled.then(|| upstream.clone());
        self.swap(catalog.with(Entry::new(registration, offering.clone(), live, now, Some(now))));
        Ok(())
    }

    /// A disabled server whose connection did not change has nothing to prove.
    async fn commit_unconnected(
        &self,
        mut registration: Registration,
        keeps: Keeps,
    ) -> Result<ServerRecord, Error> {
        let name = registration.config.name.clone();
        {
            let _turn = self.turn().await?;
            let (catalog, now) = (self.catalog(), now_ms());
            let old = catalog.require(name.as_str())?;
            keeps.apply(&mut registration, &old.registration);
            let (offering, discovered) = (old.offering().clone(), old.discovered_at_ms);
            self.store.replace_server(&registration, &offering, GrantChange::Keep, now).await?;
            self.swap(catalog.with(Entry::new(registration, offering, None, now, discovered)));
        }
        self.server(name.as_str())
    }

    /// Claims a server for a change that takes a while, so that two of them never mix.
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

pub(super) struct Connected {
    upstream: Upstream,
    offering: Arc<Offering>,
}

/// Why there is no connection.
pub(super) enum Unconnected {
    /// The server wants to know who we are.
    Denied(Denial),
    Failed(Error),
}

/// Which flags of the server that is replaced live on: those of the moment when it is, since people may switch
/// tools while the new one is being connected.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Keeps {
    disabled_tools: bool,
    disabled_prompts: bool,
}

impl Keeps {
    pub(super) const ALL: Self = Self { disabled_tools: true, disabled_prompts: true };

    fn unless_named(input: &Map<String, Value>) -> Self {
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

/// What a server shows when it is enabled.
fn affected(entry: &Entry) -> Switched {
    let flags = &entry.registration.flags;
    let qualify = |name: &str| entry.name().qualify(name);
    let tools = entry.tools().map(|tool| tool.name.as_str());
    let prompts = entry.prompts().map(|prompt| prompt.name.as_str());
    Switched {
        name: entry.name().to_string(),
        tools_affected: tools.filter(|tool| !flags.disabled_tools.contains(*tool)).map(qualify).collect(),
        prompts_affected: prompts
            .filter(|prompt| !flags.disabled_prompts.contains(*prompt))
            .map(qualify)
            .collect(),
    }
}
