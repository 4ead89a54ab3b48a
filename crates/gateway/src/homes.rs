//! Which gateway has the links of callers without a session to stateful servers. Each such caller has one home, the gateway
//! that first needed a link for it, which the database knows; other gateways forward its requests there. A session needs none: it
//! is served where it was opened.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::caller::{Owner, Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::{Error, Gateway, destination};
use model::{QualifiedName, SessionMode};
use store::HomeGateway;
use wire::Head;

/// The homes that this gateway has learned, so that the database is asked once for each caller.
#[derive(Default)]
pub(super) struct Homes {
    known: Mutex<HashMap<Owner, HomeGateway>>,
    is_cut_off: AtomicBool,
}

impl Homes {
    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, HomeGateway>> {
        self.known.lock().expect("no code panics while it holds the homes")
    }

    pub fn forget_all(&self) {
        self.lock().clear();
    }

    pub fn lost_database(&self) {
        self.is_cut_off.store(true, Ordering::Relaxed);
    }

    /// Meanwhile the others may have taken this gateway for dead, and become the home of its callers.
    pub fn found_database(&self) {
        if self.is_cut_off.swap(false, Ordering::Relaxed) {
            self.forget_all();
        }
    }
}

impl Gateway {
    /// The other gateway that has the links of this owner to stateful servers; `None` if that is this one.
    pub async fn home_elsewhere(&self, owner: Owner) -> Option<u16> {
        let own = self.replicas.own.load_full()?;
        let key = match owner {
            Owner::Session(_) | Owner::Link(_) => return None,
            Owner::Principal(principal) => format!("principal {}", principal.0),
            Owner::Anybody => "anybody".to_owned(),
        };
        let known = self.replicas.homes.lock().get(&owner).cloned();
        let is_alive = |home: &HomeGateway| {
            home.instance == own.instance
                || self.replicas.alive.load().iter().any(|other| other.instance == home.instance)
        };
        let home = match known.filter(is_alive) {
            Some(home) => home,
            // It would not last.
            None if self.replicas.is_leaving.load(Ordering::Relaxed) => return None,
            None => match self.store.home_of(&key, &own).await {
                Ok(home) => {
                    self.replicas.homes.lock().insert(owner, home.clone());
                    home
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot find out which gateway has the links of a caller");
                    return None;
                }
            },
        };
        (home.instance != own.instance).then_some(home.slot)
    }

    /// Asks the database again for the home of an owner: the one that was known did not serve it.
    pub fn doubt_home(&self, owner: Owner) {
        self.replicas.homes.lock().remove(&owner);
    }

    /// Whether a request needs links that belong to its caller, which may be those of another gateway.
    pub fn needs_home(&self, viewer: &Viewer, head: &Head<'_>) -> bool {
        // A link of another gateway leads to this one because it runs the server.
        if !self.is_shared() || matches!(viewer.scope, Scope::Link(_)) {
            return false;
        }
        let catalog = self.catalog();
        catalog.has_stateful_servers && concerns_stateful(&catalog, viewer, head)
    }

    /// Fails if another gateway has to call this server for this owner.
    pub(super) async fn check_home(&self, owner: Owner, entry: &Entry) -> Result<(), Error> {
        if !self.is_shared() || !entry.is_stateful() {
            return Ok(());
        }
        self.home_elsewhere(owner).await.map_or(Ok(()), |slot| Err(Error::elsewhere(slot)))
    }

    /// Fails if another gateway has to call this tool for this owner.
    pub async fn check_home_of_call(&self, owner: Owner, full_name: &str) -> Result<(), Error> {
        let catalog = self.catalog_of(owner);
        match catalog.tool(full_name) {
            Ok((entry, _)) => self.check_home(owner, entry).await,
            Err(_) => Ok(()),
        }
    }
}

impl Entry {
    pub(super) fn is_stateful(&self) -> bool {
        self.registration.config.session_mode == SessionMode::Stateful
    }
}

fn concerns_stateful(catalog: &Catalog, viewer: &Viewer, head: &Head<'_>) -> bool {
    let is_stateful = |name: &str| catalog.get(name).is_some_and(|entry| entry.is_stateful());
    if let Scope::Server(name) = &viewer.scope {
        return is_stateful(name);
    }
    if let Some(server) = destination::named_server(&viewer.scope, head) {
        return is_stateful(&server);
    }
    let Some(params) = &head.params else { return head.method.as_deref() != Some("server/discover") };
    let prompt = params.reference.as_ref().and_then(|reference| reference.name.as_ref());
    if let Some(name) = prompt.and_then(|name| QualifiedName::parse(&name.value)) {
        return is_stateful(name.server);
    }
    let template = params.reference.as_ref().and_then(|reference| reference.uri.as_ref());
    match (params.uri.as_ref().or(template), head.method.as_deref()) {
        (Some(uri), _) => {
            let reader = catalog.lens(viewer).and_then(|lens| catalog.reader_in(&lens, &uri.value).ok());
            // What nobody lists may be in a list that only this caller sees.
            reader.is_none_or(|(entry, _)| entry.is_stateful())
        }
        (None, Some("server/discover")) => false,
        // Lists and subscriptions concern all servers.
        (None, _) => true,
    }
}
