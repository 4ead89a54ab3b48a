//! Registering, changing, enabling, disabling and removing servers.
//! A server is connected before anything is stored, so a failed attempt changes nothing, unless the caller wants to
//! keep a server that fails.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::audit::server_note;
use super::catalog::Entry;
use super::oauth::{AuthorizationPurpose, RegistrationOutcome};
use super::record::ServerRecord;
use super::server_change::{Connected, Expected, IfFailed, Keeps, Terms, Unconnected, is_same_link};
use super::{Error, Gateway, now_ms};
use model::{AuditNote, By, Placement, Registration, Status};
use upstream::credentials::Credentials;
use upstream::{Reading, Upstream};

/// The tools and prompts that became visible or hidden when a server was enabled or disabled.
#[derive(Debug)]
pub struct SwitchOutcome {
    pub name: String,
    pub tools_affected: Vec<String>,
    pub prompts_affected: Vec<String>,
}

/// Whether a registration may replace a server with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    Replace,
}

impl Gateway {
    /// Inputs that would register the same servers again, with secrets in plain text.
    pub fn server_configs(&self) -> Vec<Map<String, Value>> {
        self.catalog().entries().map(|entry| entry.registration.to_json()).collect()
    }

    pub async fn register(
        self: &Arc<Self>,
        input: Map<String, Value>,
        existing: Existing,
        by: &By,
    ) -> Result<RegistrationOutcome, Error> {
        let (keeps, if_failed) = (Keeps::unless_named(&input), IfFailed::of(&input));
        let (registration, by) = (Registration::parse(input)?, by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let name = registration.config.name.clone();
            let _change = gateway.begin_change(&name)?;
            if existing == Existing::Refuse && gateway.catalog().get(name.as_str()).is_some() {
                return Err(Error::already_registered(name.as_str()));
            }
            let (purpose, expected) = match existing {
                Existing::Refuse => (AuthorizationPurpose::Register, Expected::Nothing),
                Existing::Replace => (AuthorizationPurpose::Replace, Expected::Anything),
            };
            let terms = Terms { keeps, expected, by, action: "server.replace" };
            gateway.connect_and_store(registration, purpose, terms, if_failed).await
        })
        .await
    }

    /// Connects a server and stores it, or starts its authorization.
    async fn connect_and_store(
        self: &Arc<Self>,
        registration: Registration,
        purpose: AuthorizationPurpose,
        terms: Terms,
        if_failed: IfFailed,
    ) -> Result<RegistrationOutcome, Error> {
        let mut attempted = registration.clone();
        let journal = self.journal_of(&registration.config.name);
        let outcome = match self.connect(&mut attempted, journal.clone()).await {
            Ok(connected) => {
                self.commit(attempted, connected, terms.clone()).await.map(RegistrationOutcome::stored)
            }
            Err(Unconnected::Denied(denial)) => {
                self.authorize(attempted, denial, purpose, terms.clone()).await
            }
            Err(Unconnected::Failed(error)) => Err(error),
        };
        match outcome {
            Err(error) if if_failed.keeps(&error) && !self.stop.is_cancelled() => self
                .commit_failed(registration, journal, &error, terms)
                .await
                .map(RegistrationOutcome::stored),
            settled => settled,
        }
    }

    /// Changes the given keys; changed connection settings must connect before they replace the old ones.
    pub async fn amend(
        self: &Arc<Self>,
        name: &str,
        changes: Map<String, Value>,
        by: &By,
    ) -> Result<RegistrationOutcome, Error> {
        let (name, by) = (self.catalog().require(name)?.name().clone(), by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _change = gateway.begin_change(&name)?;
            let catalog = gateway.catalog();
            let entry = catalog.require(name.as_str())?;
            let (keeps, if_failed) = (Keeps::unless_named(&changes), IfFailed::of(&changes));
            let registration = entry.registration.amended(changes)?;
            let expected = Expected::This(entry.registration.clone());
            let terms = Terms { keeps, expected, by, action: "server.update" };
            let (old, new) = (&entry.registration.config, &registration.config);
            let same_link = is_same_link(old, new);
            let connected = match &entry.upstream {
                Some(upstream) if same_link => {
                    let offering = entry.offering().clone();
                    Connected { upstream: upstream.clone(), offering, discovered_at_ms: Some(now_ms()) }
                }
                None if same_link && !registration.flags.enabled => {
                    return gateway
                        .commit_unconnected(registration, terms)
                        .await
                        .map(RegistrationOutcome::stored);
                }
                Some(_) | None => {
                    let purpose = AuthorizationPurpose::Replace;
                    return gateway.connect_and_store(registration, purpose, terms, if_failed).await;
                }
            };
            gateway.commit(registration, connected, terms).await.map(RegistrationOutcome::stored)
        })
        .await
    }

    pub async fn remove(self: &Arc<Self>, name: &str, by: &By) -> Result<(), Error> {
        let (name, by) = (self.catalog().require(name)?.name().clone(), by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _change = gateway.begin_change(&name)?;
            let entry = gateway.catalog().require(name.as_str())?.clone();
            {
                let _turn = gateway.turn().await?;
                let note = server_note(&by, "server.deregister", Some(&entry.registration), None, now_ms());
                gateway.store.delete_server(&name, &note).await?;
                gateway.swap(gateway.catalog().without(&name));
            }
            tracing::info!(server = %name, "removed a server");
            if let Some(upstream) = &entry.upstream {
                upstream.stop().await;
            }
            gateway.metrics.forget_server(name.as_str());
            Ok(())
        })
        .await
    }

    pub async fn switch_server(
        self: &Arc<Self>,
        name: &str,
        enabled: bool,
        by: &By,
    ) -> Result<SwitchOutcome, Error> {
        let (name, by) = (self.catalog().require(name)?.name().clone(), by.clone());
        self.to_the_end(async move |gateway: Arc<Self>| {
            let _change = gateway.begin_change(&name)?;
            let before = gateway.catalog().require(name.as_str())?.clone();
            if before.is_enabled() == enabled {
                return Ok(SwitchOutcome {
                    name: name.to_string(),
                    tools_affected: vec![],
                    prompts_affected: vec![],
                });
            }
            let credentials = gateway.credentials_for(&mut (*before.registration).clone()).await?;
            {
                let _turn = gateway.turn().await?;
                let now = now_ms();
                if enabled {
                    gateway.take_lease(&name, Status::Connecting).await;
                }
                let action = if enabled { "server.enable" } else { "server.disable" };
                let note = AuditNote::new(&by, action, name.as_str(), now);
                let note = note.before(json!({ "enabled": !enabled })).after(json!({ "enabled": enabled }));
                gateway.store.set_enabled(&name, enabled, now, &note).await?;
                before.note_switch(enabled);
                let catalog = gateway.catalog();
                let mut entry =
                    catalog.require(name.as_str())?.with_flags(|flags| flags.enabled = enabled, now);
                entry.upstream = enabled.then(|| gateway.resume(&entry, credentials));
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

    /// Reads the server's lists again now.
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
            Ok(ServerRecord::of(gateway.catalog().require(name)?))
        })
        .await
    }

    fn resume(&self, entry: &Entry, credentials: Option<Arc<Credentials>>) -> Upstream {
        let config = entry.registration.config.clone();
        let (options, events) = (self.upstream_options.clone(), self.events.clone());
        let reading = match config.placement {
            Placement::Each => Reading::Here,
            Placement::One => self.replicas.reading_of(&config),
        };
        self.look_for_runner(reading);
        let upstream = Upstream::resume(
            config,
            options,
            events,
            credentials,
            entry.journal.clone(),
            entry.offering(),
            reading,
        );
        self.hand_over(&upstream);
        upstream
    }
}

/// The tools and prompts that a server shows when it is enabled.
fn affected(entry: &Entry) -> SwitchOutcome {
    let flags = &entry.registration.flags;
    let qualify = |name: &str| entry.name().qualify(name);
    let tools = entry.tools().map(|tool| tool.name.as_str());
    let prompts = entry.prompts().map(|prompt| prompt.name.as_str());
    SwitchOutcome {
        name: entry.name().to_string(),
        tools_affected: tools.filter(|tool| !flags.disabled_tools.contains(*tool)).map(qualify).collect(),
        prompts_affected: prompts
            .filter(|prompt| !flags.disabled_prompts.contains(*prompt))
            .map(qualify)
            .collect(),
    }
}
