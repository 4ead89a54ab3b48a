//! The checks after the faults: all servers are connected and respond, and the process releases its resources.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Scene;
use super::caller::{Caller, DOORS, Door, Verdict};
use super::measure::{descriptors, memory, milliseconds};
use crate::gateway::{Gateway, eventually};

/// Maximum time from the last fault until everything works again.
const LIMIT: Duration = Duration::from_secs(60);
/// Descriptors that may stay open for a while, such as those of idle upstream connections.
const DESCRIPTOR_SLACK: usize = 24;
/// Growth of resident memory, in MiB, that does not count as a leak.
const MEMORY_SLACK: u64 = 96;

/// How long the process may take to release its resources.
const GIVING_BACK: Duration = Duration::from_secs(30);

/// The resources of the process at one moment.
#[derive(Clone, Copy)]
pub struct Held {
    descriptors: usize,
    /// In MiB.
    memory: u64,
}

impl Held {
    pub fn by(gateway: &Gateway) -> Self {
        Self { descriptors: descriptors(gateway.id()), memory: memory(gateway.id()).0 }
    }
}

/// Waits until every server is connected and responds through every entry point.
pub async fn wait(scene: &Arc<Scene>, gateway: &Gateway, since: Instant) {
    for (index, server) in scene.servers.iter().enumerate() {
        let name = &server.server.name;
        for door in DOORS {
            let mut caller = Caller::new(&scene.address, *door);
            let mut last = String::new();
            let works = eventually(LIMIT.saturating_sub(since.elapsed()), async || {
                let call = scene.new_call(index, "echo");
                match caller.call(&call).await {
                    Ok((Verdict::Answered, _)) => true,
                    Ok((Verdict::Refused(reason), _)) => {
                        last = reason;
                        false
                    }
                    Err(error) => {
                        scene.violation(&call, *door, &format!("{error:#}"));
                        false
                    }
                }
            });
            if !works.await {
                scene.report().violation(format!("{name} did not heal at {door:?} within {LIMIT:?}: {last}"));
            }
        }
    }
    let answering = since.elapsed();
    let mut state = String::new();
    for server in &scene.servers {
        let path = format!("/api/v0/servers/{}", server.server.name);
        let is_connected = eventually(LIMIT.saturating_sub(since.elapsed()), async || {
            let Ok(response) = gateway.get(&path).await else { return false };
            state = response.text();
            response.json().is_ok_and(|record| record["status"] == "connected")
        });
        if !is_connected.await {
            scene.report().violation(format!("{path} is not connected after {LIMIT:?}: {state}"));
        }
    }
    scene.report().figure("all doors answer after", milliseconds(answering));
    scene.report().figure("all connected after", milliseconds(since.elapsed()));
}

/// Compares the resources of the process with those under load before the first fault.
pub async fn judge_growth(scene: &Arc<Scene>, gateway: &Gateway, before: Held) {
    let mut caller = Caller::new(&scene.address, Door::Rest);
    let mut after = Held::by(gateway);
    let is_back = eventually(GIVING_BACK, async || {
        // The allocator returns freed memory to the system while it works.
        let call = scene.new_call(0, "big");
        let _ = caller.call(&call).await;
        after = Held::by(gateway);
        after.descriptors <= before.descriptors + DESCRIPTOR_SLACK
            && after.memory <= before.memory + MEMORY_SLACK
    });
    let is_back = is_back.await;
    let mut report = scene.report();
    let held = format!("{}, {}", before.descriptors, after.descriptors);
    let memory = format!("{}, {}, {}", before.memory, memory(gateway.id()).1, after.memory);
    if !is_back {
        report.violation(format!("what it held was not given back: descriptors {held}; MiB {memory}"));
    }
    report.figure("descriptors before and after", held);
    report.figure("MiB before, at most, after", memory);
}
