//! What is recorded of calls, and how much of it is kept: `CALL_LOG` and others.

use std::str::FromStr;

use super::ConfigError;
use super::variables::EnvVariables;
use gateway::recorder::{CallLog, Recording, Retention};

/// The value of a variable that is a number from 1.
fn positive<E: Fn(&str) -> Option<String>, N: FromStr + PartialOrd + From<u8>>(
    variables: &EnvVariables<E>,
    name: &'static str,
    default: N,
) -> Result<N, ConfigError> {
    let positive = |text: &str| text.parse().ok().filter(|number: &N| *number >= N::from(1));
    variables.parse(name, "a number from 1", positive).map(|number| number.unwrap_or(default))
}

pub fn read<E: Fn(&str) -> Option<String>>(variables: &EnvVariables<E>) -> Result<Recording, ConfigError> {
    let default = Recording::default();
    Ok(Recording {
        calls: variables.parse("CALL_LOG", "off, summary or full", CallLog::parse)?.unwrap_or(default.calls),
        retention: Retention {
            days: positive(variables, "CALL_LOG_DAYS", default.retention.days)?,
            rows: positive(variables, "CALL_LOG_MAX", default.retention.rows)?,
            megabytes: positive(variables, "CALL_LOG_MAX_MB", default.retention.megabytes)?,
        },
        rate: positive(variables, "CALL_LOG_RATE", default.rate)?,
    })
}
