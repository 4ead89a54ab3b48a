//! How long calls took: counts in buckets whose width grows with the time, so that a quantile is right within 2 % whatever the
//! number of calls, if calls take at least 2 microseconds. Histograms of several gateways and of several spans of time can be added.

use std::time::Duration;

/// The width of the first buckets, in nanoseconds.
const UNIT: u64 = 64;
/// Each range from a power of two to the next has this many buckets, as a power of two: a bucket is at most 1/32 wide, and
/// its middle at most 1/64 away from its ends.
const FINENESS: u32 = 5;
/// A bucket for every time up to about 13 days.
const BUCKETS: u16 = 1280;

/// Counts of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The buckets that are not empty, in order, each with its count.
    buckets: Vec<(u16, u64)>,
}

impl Histogram {
    pub fn add(&mut self, duration: Duration) {
        self.add_to(bucket_of(duration), 1);
    }

    /// Adds all counts of another one.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
            return;
        }
        for &(bucket, count) in &other.buckets {
            self.add_to(bucket, count);
        }
    }

    fn add_to(&mut self, bucket: u16, count: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(known, _)| *known) {
            Ok(index) => self.buckets[index].1 = self.buckets[index].1.saturating_add(count),
            Err(index) => self.buckets.insert(index, (bucket, count)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The time that this part of all durations, from 0 to 1, does not exceed; zero if there are none.
    pub fn quantile(&self, part: f64) -> Duration {
        let total: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        // The smallest rank that covers the part.
        let rank = ((total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for &(bucket, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return middle_of(bucket);
            }
        }
        Duration::ZERO
    }

    /// Writes it as numbers of 7 bits per byte: for each bucket, how far it is from the one before, and its count.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(3 * self.buckets.len());
        let mut before = 0;
        for &(bucket, count) in &self.buckets {
            write_number(&mut bytes, u64::from(bucket - before));
            write_number(&mut bytes, count);
            before = bucket;
        }
        bytes
    }

    /// Reads what [`Histogram::to_bytes`] wrote; `None` if the bytes are something else.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut histogram = Self::default();
        let mut bucket = 0u16;
        while !bytes.is_empty() {
            bucket = bucket.checked_add(u16::try_from(read_number(&mut bytes)?).ok()?)?;
            let is_next = histogram.buckets.last().is_none_or(|(last, _)| *last < bucket);
            if bucket >= BUCKETS || !is_next {
                return None;
            }
            histogram.buckets.push((bucket, read_number(&mut bytes)?));
        }
        Some(histogram)
    }
}

fn bucket_of(duration: Duration) -> u16 {
    let units = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX) / UNIT;
    // The number of the power of two, and the leading bits below it.
    let power = units.checked_ilog2().unwrap_or_default().saturating_sub(FINENESS);
    let bucket = u64::from(power << FINENESS) + (units >> power);
    u16::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

fn middle_of(bucket: u16) -> Duration {
    let power = (u32::from(bucket) >> FINENESS).saturating_sub(1);
    let units = u64::from(bucket) - u64::from(power << FINENESS);
    // Twice as large, since the middle is between two units.
    Duration::from_nanos((((2 * units + 1) << power) * UNIT) / 2)
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(durations: impl IntoIterator<Item = Duration>) -> Histogram {
        let mut histogram = Histogram::default();
        durations.into_iter().for_each(|duration| histogram.add(duration));
        histogram
    }

    #[test]
    fn quantiles_are_right_within_two_percent() {
        // From microseconds to minutes, with a long tail.
        let durations: Vec<_> =
            (1..=20_000u64).map(|step| Duration::from_nanos(step * step * step / 40 + 1000)).collect();
        let histogram = of(durations.iter().copied());
        for part in [0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
            let rank = ((durations.len() as f64 * part).ceil() as usize).max(1);
            let (exact, told) = (durations[rank - 1].as_secs_f64(), histogram.quantile(part).as_secs_f64());
            assert!((told / exact - 1.0).abs() <= 0.021, "{part}: {told} instead of {exact}");
        }
    }

    #[test]
    fn extremes_have_a_bucket() {
        assert_eq!(of([]).quantile(0.5), Duration::ZERO);
        assert!(of([Duration::ZERO]).quantile(1.0) <= Duration::from_micros(1));
        let week = Duration::from_secs(7 * 24 * 3600);
        assert!((of([week]).quantile(0.5).as_secs_f64() / week.as_secs_f64() - 1.0).abs() < 0.021);
        assert!(of([Duration::MAX]).quantile(0.5) > week);
    }

    #[test]
    fn parts_that_are_added_are_the_whole() {
        let durations: Vec<_> = (0..1000u64).map(|step| Duration::from_micros(step * 97 % 5000)).collect();
        let mut sum = Histogram::default();
        for part in durations.chunks(130) {
            sum.merge(&of(part.iter().copied()));
        }
        assert_eq!(sum, of(durations));
    }

    #[test]
    fn bytes_are_read_back_and_foreign_ones_refused() {
        let histogram = of((0..5000u64).map(|step| Duration::from_millis(step % 700)));
        let bytes = histogram.to_bytes();
        assert!(bytes.len() < 2000, "{}", bytes.len());
        assert_eq!(Histogram::from_bytes(&bytes), Some(histogram));
        assert_eq!(Histogram::from_bytes(&[]), Some(Histogram::default()));
        for foreign in [&[0x80][..], &[1], &[0xff; 12], &[0xff, 0x7f, 1], &[1, 1, 0, 1]] {
            assert_eq!(Histogram::from_bytes(foreign), None, "{foreign:?}");
        }
    }
}
