//! How long the audit of changes is kept: `AUDIT_DAYS`.

use super::ConfigError;
use super::variables::EnvVariables;
use gateway::audit::Auditing;

pub fn read<E: Fn(&str) -> Option<String>>(variables: &EnvVariables<E>) -> Result<Auditing, ConfigError> {
    let days = variables.parse("AUDIT_DAYS", "a number of days, or 0", |text| text.parse().ok())?;
    let default = Auditing::default();
    Ok(Auditing { days: days.unwrap_or(default.days), ..default })
}
