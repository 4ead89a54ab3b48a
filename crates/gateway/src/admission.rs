//! Whether a gateway may use a database that others use or have used: all of them have the same mode and the same major version.

use super::Error;
use model::Mode;
use store::{CurrentUse, Store};

/// Refuses a database that was initialized in another mode, or that gateways in another mode or of another major version use.
pub fn check_use(used: &CurrentUse, mode: Mode) -> Result<(), Error> {
    check_versions(used.versions.iter().map(String::as_str))?;
    // Gateways in development mode set the mode before they join the others.
    if used.mode.is_none() && mode == Mode::Development && !used.versions.is_empty() {
        return Err(Error::invalid(
            "a gateway in enterprise mode uses this database and waits to be initialized; set \
             SERVER_MODE=enterprise, use another database, or stop that gateway first",
        ));
    }
    check_mode(used.mode.as_deref(), mode)
}

/// Refuses a database that was initialized in another mode.
fn check_mode(stored: Option<&str>, mode: Mode) -> Result<(), Error> {
    match stored {
        Some(stored) if stored != mode.as_str() => Err(Error::invalid(format!(
            "this database was initialized in {stored} mode and cannot be started in {mode} mode; \
             set SERVER_MODE={stored} or use another database",
            mode = mode.as_str()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a database that gateways of another major version use.
pub(super) fn check_versions<'a>(mut others: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let version = env!("CARGO_PKG_VERSION");
    match others.find(|other| major(other) != major(version)) {
        None => Ok(()),
        Some(other) => Err(Error::invalid(format!(
            "a gateway of version {other} uses this database, and this one has version {version}; gateways with \
             different major versions cannot share a database: stop the others first, or start their version"
        ))),
    }
}

/// Checks the mode against that of the database: users and tokens of one mode mean nothing in the other. Development mode needs
/// no initialization: it becomes the mode of a new database at once.
pub(super) async fn claim_mode(store: &Store, mode: Mode) -> Result<(), Error> {
    let used = store.current_use().await?;
    check_use(&used, mode)?;
    match (used.mode, mode) {
        (None, Mode::Development) => Ok(store.claim_mode(mode.as_str()).await?),
        (None, Mode::Enterprise) | (Some(_), _) => Ok(()),
    }
}

/// Whether a gateway is initialized, by the stored mode: always in development mode; in enterprise mode, once it has its first
/// admin. Fails if a gateway in another mode has initialized the database since [`claim_mode`].
pub(super) fn is_initialized(stored: Option<&str>, mode: Mode) -> Result<bool, Error> {
    check_mode(stored, mode)?;
    Ok(stored.is_some())
}

fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or_default()
}
