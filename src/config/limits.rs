//! The limits that the operator can set: `MAX_CONNECTIONS` and others.

use std::time::Duration;

use super::ConfigError;
use super::variables::EnvVariables;
use budget::Limits;

const MIB: u64 = 1024 * 1024;
/// The largest value of `MAX_MESSAGE_MB`: positions inside of a message are kept small.
const LARGEST_MESSAGE_MB: u64 = 1024;

/// The largest value of `PARK_TIMEOUT_SEC`: a day.
const LONGEST_ANSWER_SEC: u64 = 24 * 60 * 60;

/// Reads the limits. The default for connections depends on how many descriptors this process may have.
pub fn read<E: Fn(&str) -> Option<String>>(variables: &EnvVariables<E>) -> Result<Limits, ConfigError> {
    let defaults = Limits::default();
    let number = |name| {
        variables.parse(name, "a number from 1", |text| text.parse().ok().filter(|number: &u64| *number > 0))
    };
    let connections = || (descriptor_limit() / 5 * 4).clamp(1, defaults.connections);
    let megabytes = |megabytes: u64| megabytes.saturating_mul(MIB);
    let message = variables.parse("MAX_MESSAGE_MB", "a number from 1 to 1024", |text| {
        text.parse().ok().filter(|number| (1..=LARGEST_MESSAGE_MB).contains(number))
    })?;
    let answer_time = variables.parse("PARK_TIMEOUT_SEC", "a number of seconds from 1 to 86400", |text| {
        text.parse().ok().filter(|seconds| (1..=LONGEST_ANSWER_SEC).contains(seconds))
    })?;
    Ok(Limits {
        connections: number("MAX_CONNECTIONS")?.unwrap_or_else(connections),
        buffered_bytes: number("MAX_BUFFERED_MB")?.map_or(defaults.buffered_bytes, megabytes),
        streams: number("MAX_STREAMS")?.unwrap_or(defaults.streams),
        calls: number("MAX_CALLS")?.unwrap_or(defaults.calls),
        processes: number("MAX_PROCESSES")?.unwrap_or(defaults.processes),
        message_bytes: message.map_or(defaults.message_bytes, |number| megabytes(number) as usize),
        answer_time: answer_time.map_or(defaults.answer_time, Duration::from_secs),
    })
}

/// The number of descriptors that this process may have open.
#[allow(unsafe_code)] // The standard library has no interface for it.
fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => 1024,
    }
}
