//! How soon a stream that ended is opened again: at once where it lived long, ever later where it does not last.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// A stream that lived this long did its work.
const LONG_LIFE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Pace {
    begun: Option<Instant>,
    short_lives: u32,
}

impl Pace {
    /// The stream is open.
    pub fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// The stream ended, or could not be opened. `wish` is the time that the upstream wants to pass.
    pub async fn pause(&mut self, wish: Duration) {
        let lived_long = self.begun.take().is_some_and(|begun| begun.elapsed() >= LONG_LIFE);
        self.short_lives = if lived_long { 0 } else { self.short_lives + 1 };
        // The first few times a quick return is more likely than a stream that never lasts.
        let doublings = self.short_lives.saturating_sub(3).min(6);
        tokio::time::sleep(wish.max(FIRST * (1 << doublings)).min(LONGEST)).await;
    }
}
