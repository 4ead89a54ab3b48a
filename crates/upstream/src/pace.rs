//! The delay before an ended stream is opened again: short if it lived long, growing while streams are short-lived.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// A stream that lived at least this long resets the delay.
const LONG_LIFE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Pace {
    begun: Option<Instant>,
    short_lives: u32,
}

impl Pace {
    /// Records that the stream was opened.
    pub fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Waits after the stream ended or could not be opened. `wish` is the delay that the upstream asks for.
    pub async fn pause(&mut self, wish: Duration) {
        let lived_long = self.begun.take().is_some_and(|begun| begun.elapsed() >= LONG_LIFE);
        self.short_lives = if lived_long { 0 } else { self.short_lives + 1 };
        // The delay does not grow the first few times, when a quick recovery is more likely than a stream that never
        // lasts.
        let doublings = self.short_lives.saturating_sub(3).min(6);
        tokio::time::sleep(wish.max(FIRST * (1 << doublings)).min(LONGEST)).await;
    }
}
