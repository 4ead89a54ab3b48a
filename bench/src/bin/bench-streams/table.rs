//! Formats figures for the table.

use std::time::Duration;

/// The maximum delay of a call.
const LARGEST_DELAY: Duration = Duration::from_millis(5);

/// The number of calls, out of sorted durations, that may have been delayed for too long, and the number of all calls.
pub fn late(times: &[Duration]) -> String {
    let late = times.len() - times.partition_point(|time| *time <= LARGEST_DELAY);
    format!("{late} of {}", times.len())
}

/// The median, the 99th percentile and the maximum of sorted durations.
pub fn spread(times: &[Duration]) -> String {
    let at = |part: f64| times.get(((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1)));
    let [middle, most, largest] = [0.5, 0.99, 1.0].map(|part| at(part).map_or("-".into(), |time| ms(*time)));
    format!("{middle} | {most} | {largest}")
}

pub fn ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}
