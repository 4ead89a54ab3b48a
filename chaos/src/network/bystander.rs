//! A bystander: calls a server without faults at a steady rate. After each call it sends a request directly to that
//! server, which shows how busy the machine itself is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Scene;
use super::caller::{Caller, Door, Verdict};
use super::measure::{Latencies, milliseconds};
use crate::http::Request;

/// Pause between two calls.
const PACE: Duration = Duration::from_millis(15);
/// The shortest run whose times are meaningful.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
/// By how much the p99 may exceed twice its value without faults.
const SLACK: Duration = Duration::from_millis(50);

/// Measurements of one phase.
pub struct Phase {
    through_gateway: Latencies,
    direct: Latencies,
}

impl Phase {
    pub const fn new() -> Self {
        Self { through_gateway: Latencies::new(), direct: Latencies::new() }
    }
}

/// Makes calls for this long.
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

/// Compares the p99 during faults with the larger of the values without. A call through the gateway has two hops and a
/// direct one has one, so it may become slower by twice as much as a direct one. In a short run the times are shown but
/// not checked, because the machine may be busy with anything.
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
