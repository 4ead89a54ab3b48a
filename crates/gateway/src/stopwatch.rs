//! Where the time of a call goes: waiting for a slot, waiting for the server, waiting for input, and the rest, which is
//! the gateway's own. The clock is read when the call starts and ends, and whenever it begins or stops waiting: four
//! times in a call that waits only for its server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clock::Clock;

/// Measures one call.
pub struct Stopwatch {
    begun: Instant,
    phase: Phase,
    /// When the phase began, as the time since the call started, and how long the caller had owed answers by then.
    since: Duration,
    input_before: Duration,
    queue: Duration,
    upstream: Duration,
    /// Knows how long the caller owed answers; `None` as long as it was not asked anything.
    asked: Option<Arc<Clock>>,
    /// When the request was handed to a link for the last time, and when the server was first heard after that.
    pub sent: Option<Instant>,
    pub heard: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The gateway works.
    Own,
    /// The call waits for a slot.
    Queue,
    /// The server works. If it asked the caller something, that time is not the server's until it has its answer.
    Upstream,
}

/// The time of a call and its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// From the start of the call to its end: the sum of the others.
    pub total: Duration,
    /// Waiting for a slot (`max_concurrency`).
    pub queue: Duration,
    /// From handing the request to the link to the response, without the time of `input`.
    pub upstream: Duration,
    /// Waiting for input that the server asked the caller for.
    pub input: Duration,
    /// The gateway's own time.
    pub gateway: Duration,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.queue += other.queue;
        self.upstream += other.upstream;
        self.input += other.input;
        self.gateway += other.gateway;
    }
}

impl Stopwatch {
    pub fn start() -> Self {
        let begun = Instant::now();
        let (input_before, queue, upstream) = Default::default();
        let (sent, heard) = (None, None);
        Self {
            begun,
            phase: Phase::Own,
            since: Duration::ZERO,
            input_before,
            queue,
            upstream,
            asked: None,
            sent,
            heard,
        }
    }

    /// When the call started.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// The call waits for a slot from now on.
    pub fn wait_for_slot(&mut self) {
        self.enter(Phase::Queue);
    }

    /// The call waits for its server from now on.
    pub fn wait_for_server(&mut self) {
        self.enter(Phase::Upstream);
    }

    /// The call waits for its server or a slot no longer.
    pub fn stop_waiting(&mut self) {
        self.enter(Phase::Own);
    }

    /// The request is handed to a link.
    pub fn note_sent(&mut self) {
        (self.sent, self.heard) = (Some(Instant::now()), None);
    }

    /// The server sends something.
    pub fn note_heard(&mut self) {
        if self.heard.is_none() {
            self.heard = Some(Instant::now());
        }
    }

    /// The server sends its answer.
    pub fn note_answer(&mut self) {
        let now = Instant::now();
        self.heard.get_or_insert(now);
        self.enter_at(Phase::Own, now.saturating_duration_since(self.begun));
    }

    /// The caller is asked for input. The clock, always the same one, says for how long answers are owed.
    pub fn asks(&mut self, clock: &Arc<Clock>) {
        self.asked.get_or_insert_with(|| clock.clone());
    }

    /// The time until now.
    pub fn spent(&self) -> Spent {
        self.spent_at(self.begun.elapsed())
    }

    /// The time until so long after the start.
    fn spent_at(&self, total: Duration) -> Spent {
        let (mut queue, mut upstream) = (self.queue, self.upstream);
        match self.phase {
            Phase::Own => {}
            Phase::Queue => queue += self.in_phase(total),
            Phase::Upstream => upstream += self.in_phase(total),
        }
        let input = self.input(total);
        let gateway = total.saturating_sub(queue + upstream + input);
        Spent { total, queue, upstream, input, gateway }
    }

    fn enter(&mut self, phase: Phase) {
        // Attempts that follow each other are one wait.
        if self.phase != phase {
            self.enter_at(phase, self.begun.elapsed());
        }
    }

    fn enter_at(&mut self, phase: Phase, now: Duration) {
        match self.phase {
            Phase::Own => {}
            Phase::Queue => self.queue += self.in_phase(now),
            Phase::Upstream => self.upstream += self.in_phase(now),
        }
        self.input_before = self.input(now);
        (self.phase, self.since) = (phase, now);
    }

    /// The time of the current phase without that for which answers were owed.
    fn in_phase(&self, now: Duration) -> Duration {
        let input = self.input(now).saturating_sub(self.input_before);
        now.saturating_sub(self.since).saturating_sub(input)
    }

    fn input(&self, now: Duration) -> Duration {
        self.asked.as_ref().map_or(Duration::ZERO, |clock| clock.owed_for(self.begun + now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::{Budgets, Limits};

    const SECOND: Duration = Duration::from_secs(1);

    /// A stopwatch that was started earlier, and says when.
    fn started() -> (Stopwatch, Instant) {
        let watch = Stopwatch::start();
        let begun = watch.begun();
        (watch, begun)
    }

    #[test]
    fn what_is_not_waiting_is_the_gateways_own_time() {
        let mut watch = Stopwatch::start();
        watch.enter_at(Phase::Queue, SECOND);
        watch.enter_at(Phase::Upstream, 3 * SECOND);
        watch.enter_at(Phase::Own, 7 * SECOND);
        let spent = watch.spent_at(8 * SECOND);
        let [queue, upstream, gateway] = [2, 4, 2].map(|seconds| seconds * SECOND);
        assert_eq!(spent, Spent { total: 8 * SECOND, queue, upstream, input: Duration::ZERO, gateway });
    }

    #[test]
    fn a_call_that_ends_while_it_waits_was_waiting_until_then() {
        let mut watch = Stopwatch::start();
        watch.enter_at(Phase::Queue, Duration::ZERO);
        assert_eq!(watch.spent_at(3 * SECOND).queue, 3 * SECOND);
        watch.enter_at(Phase::Upstream, 3 * SECOND);
        let spent = watch.spent_at(5 * SECOND);
        assert_eq!((spent.queue, spent.upstream), (3 * SECOND, 2 * SECOND));
        assert_eq!(spent.gateway, Duration::ZERO);
    }

    #[test]
    fn attempts_that_follow_each_other_are_one_wait() {
        let mut watch = Stopwatch::start();
        watch.enter_at(Phase::Upstream, SECOND);
        watch.wait_for_server();
        assert_eq!(watch.since, SECOND, "the clock was not read again");
    }

    #[test]
    fn time_in_which_an_answer_is_owed_is_neither_the_servers_nor_the_gateways() {
        let (mut watch, begun) = started();
        let clock = Clock::new(None, Budgets::new(Limits::default()));
        // A legacy server asks while it works: one second before, two seconds of input, one second after.
        watch.enter_at(Phase::Upstream, Duration::ZERO);
        watch.asks(&clock);
        clock.set_owed(Some(begun + SECOND), Duration::ZERO);
        assert_eq!(watch.spent_at(2 * SECOND).upstream, SECOND);
        assert_eq!(watch.spent_at(2 * SECOND).input, SECOND);
        clock.set_owed(None, 2 * SECOND);
        watch.enter_at(Phase::Own, 4 * SECOND);
        // A modern one asks with a response: five seconds of input, then it gets the request again for one second.
        clock.set_owed(Some(begun + 4 * SECOND), 2 * SECOND);
        clock.set_owed(None, 7 * SECOND);
        watch.enter_at(Phase::Upstream, 9 * SECOND);
        watch.enter_at(Phase::Own, 10 * SECOND);
        let spent = watch.spent_at(10 * SECOND);
        assert_eq!((spent.total, spent.upstream, spent.input), (10 * SECOND, 3 * SECOND, 7 * SECOND));
        assert_eq!((spent.queue, spent.gateway), Default::default());
    }

    #[test]
    fn an_answer_still_owed_at_the_end_of_a_call_counts_as_input() {
        let (mut watch, begun) = started();
        let clock = Clock::new(None, Budgets::new(Limits::default()));
        watch.enter_at(Phase::Upstream, Duration::ZERO);
        watch.asks(&clock);
        clock.set_owed(Some(begun + SECOND), Duration::ZERO);
        watch.enter_at(Phase::Own, 2 * SECOND);
        let spent = watch.spent_at(3 * SECOND);
        assert_eq!((spent.upstream, spent.input, spent.gateway), (SECOND, 2 * SECOND, Duration::ZERO));
    }
}
