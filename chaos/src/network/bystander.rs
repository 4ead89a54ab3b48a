//! A bystander: calls of a server to which nothing bad happens, at a steady pace. Each is paired with a request straight
//! to that server, which shows what the machine itself was busy with.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Scene;
use super::caller::{Caller, Door, Verdict};
use super::measure::{Latencies, milliseconds};
use crate::http::Request;

/// Between two calls.
const PACE: Duration = Duration::from_millis(15);
/// The shortest run whose times say something.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
/// What the p99 may have beyond twice its quiet value.
const SLACK: Duration = Duration::from_millis(50);

/// What was measured while the same things went on.
pub struct Phase {
    through_gateway: Latencies,
    direct: Latencies,
}

impl Phase {
    pub const fn new() -> Self {
        Self { through_gateway: Latencies::new(), direct: Latencies::new() }
    }
}

/// Calls for this long.
pub async fn watch(scene: &Arc<Scene>, time: Duration, phase: &mut Phase) {
    let doors = [Door::Rest, Door::Legacy];
    let mut callers = doors.map(|door| Caller::new(&scene.address, door));
    let server = scene.servers[0].address.to_string();
    let begun = Instant::now();
    for turn in 0.. {
        if begun.elapsed() > time {
            break;
        }
        let call = scene.new_call(0, "echo");
        let caller = &mut callers[turn % doors.len()];
        match caller.call(&call).await {
            Ok((Verdict::Answered, took)) => phase.through_gateway.add(took),
            Ok((Verdict::Refused(reason), _)) => {
                scene.violation(&call, caller.door, &format!("a bystander was refused: {reason}"));
            }
            Err(error) => scene.violation(&call, caller.door, &format!("a bystander: {error:#}")),
        }
        let asked = Instant::now();
        if Request::new("DELETE", "/mcp").send(&server).await.is_ok() {
            phase.direct.add(asked.elapsed());
        }
        tokio::time::sleep(PACE).await;
    }
}

/// The p99 during the faults, against the larger of those without. A call through the gateway makes twice the way of a
/// direct one, so it may lose twice of what that lost. In a short run, which may share its machine with anything, times
/// are shown but not judged.
pub fn judge(scene: &Arc<Scene>, lasted: Duration, idle: &Phase, quiet: &Phase, troubled: &Phase) {
    let before = idle.through_gateway.p99().max(quiet.through_gateway.p99());
    let direct_before = idle.direct.p99().max(quiet.direct.p99());
    let lost_by_machine = troubled.direct.p99().saturating_sub(direct_before);
    let during = troubled.through_gateway.p99();
    let mut report = scene.report();
    if lasted >= LONG_ENOUGH && during > before * 2 + SLACK + lost_by_machine * 2 {
        let (before, during) = (milliseconds(before), milliseconds(during));
        report.violation(format!("the bystander's p99 went from {before} to {during}"));
    }
    for (name, phase) in [("alone", idle), ("with callers", quiet), ("during faults", troubled)] {
        let (through, direct) = (phase.through_gateway.p99(), phase.direct.p99());
        let value = format!("{} (direct {})", milliseconds(through), milliseconds(direct));
        report.figure(&format!("bystander p99 {name}"), value);
    }
    let count = [idle, quiet, troubled].map(|phase| phase.through_gateway.count()).iter().sum::<usize>();
    report.figure("bystander calls", count);
}
