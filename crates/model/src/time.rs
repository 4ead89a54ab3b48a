//! Timestamps for JSON: RFC 3339 in UTC, with milliseconds; and the clock that tests can move.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MS_PER_DAY: i64 = 86_400_000;

/// The clock by which credentials expire: that of the machine. Tests move it forward, which applies to all clones.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    moved: Arc<AtomicI64>,
    /// Whether it stands still except for being moved.
    is_stopped: bool,
}

impl WallClock {
    /// A clock that shows this time, in seconds since 1970, until it is moved.
    pub fn stopped_at(seconds: u64) -> Self {
        let clock = Self { is_stopped: true, ..Self::default() };
        clock.advance(Duration::from_secs(seconds));
        clock
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        let now = if self.is_stopped { 0 } else { milliseconds(SystemTime::now()) };
        now + self.moved.load(Ordering::Relaxed)
    }

    /// Whole seconds since 1970.
    pub fn now_seconds(&self) -> u64 {
        u64::try_from(self.now_ms() / 1000).unwrap_or(0)
    }

    pub fn advance(&self, by: Duration) {
        self.moved.fetch_add(i64::try_from(by.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Formats milliseconds since 1970.
pub fn rfc3339(ms: i64) -> String {
    let (year, month, day) = civil(ms.div_euclid(MS_PER_DAY));
    let rest = ms.rem_euclid(MS_PER_DAY);
    let (seconds, ms) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Reads a time as RFC 3339 writes it, with any offset; milliseconds since 1970.
pub fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let part = |from: usize, to: usize, of: &str| of.get(from..to).and_then(number);
    let separators = (date.as_bytes()[4], date.as_bytes()[7]);
    let (year, month, day): (i64, i64, i64) = (part(0, 4, date)?, part(5, 7, date)?, part(8, 10, date)?);
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, rest) = rest.split_at_checked(8)?;
    let (hour, minute, second) = (part(0, 2, clock)?, part(3, 5, clock)?, part(6, 8, clock)?);
    if separators != (b'-', b'-') || clock.as_bytes()[2] != b':' || clock.as_bytes()[5] != b':' {
        return None;
    }
    let days = (-1..=1)
        .map(|guess| days_of(year, month, day) + guess)
        .find(|days| civil(*days) == (year, month, day))?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (fraction, offset) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let shown: String = rest[..digits].chars().chain("000".chars()).take(3).collect();
            (number(&shown).filter(|_| digits > 0)?, &rest[digits..])
        }
    };
    let offset = match offset {
        "Z" | "z" => 0,
        _ => {
            let sign = match offset.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            if offset.len() != 6 || offset.as_bytes()[3] != b':' {
                return None;
            }
            sign * (part(1, 3, offset)? * 60 + part(4, 6, offset)?)
        }
    };
    Some((((days * 24 + hour) * 60 + minute - offset) * 60 + second) * 1000 + fraction)
}

/// About how many days a date is after 1970-01-01, if it exists.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 12) } else { (year, month) };
    365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * (month - 3) + 2) / 5
        + day
        - 719_469
}

pub fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Year, month and day of a number of days since 1970-01-01. Counts in eras of 400 years that begin in March, so that
/// the leap day is the last day of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for ms in [0, 1, 951_782_400_000, 1_709_164_800_123, 4_102_444_799_999, -1, 1_000_000_000_000] {
            assert_eq!(parse(&rfc3339(ms)), Some(ms), "{}", rfc3339(ms));
        }
        for (text, ms) in [
            ("2026-01-31T12:00:00Z", 1_769_860_800_000),
            ("2026-01-31T14:00:00.5+02:00", 1_769_860_800_500),
            ("2026-01-31 07:30:00-04:30", 1_769_860_800_000),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        for wrong in [
            "",
            "2026",
            "2026-01-31",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00:00+2",
            "2026-01-31T12:00:00.Z",
            "2026/01/31T12:00:00Z",
            "1769860800",
            "2026-01-31T12:00:0éZ",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_written_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_720_737_012, "2026-11-15T05:32:17.012Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms), text);
        }
    }
}
