//! The state of the gateway in numbers, for metrics: collected when somebody asks for them.

use super::Gateway;
use model::{Status, Transport};
use telemetry::GatewayState;
use upstream::Upstream;

/// The state of a link that the next caller opens.
const RESTING: &str = "resting";

impl Gateway {
    /// The state in numbers. How many sessions and tasks there are is known elsewhere.
    pub fn gauges(&self, sessions: u64, tasks: u64) -> GatewayState {
        let (catalog, budgets) = (self.catalog(), self.budgets());
        let health = self.store_health().borrow().clone();
        let counts = catalog.counts();
        let upstreams = || catalog.entries().filter_map(|entry| entry.upstream.as_ref());
        let is_process = |upstream: &&Upstream| match upstream.config().transport {
            Transport::Stdio(_) => true,
            Transport::StreamableHttp(_) | Transport::Sse(_) => false,
        };
        let restarts =
            |upstream: &Upstream| (upstream.config().name.to_string(), upstream.process_restarts());
        GatewayState {
            is_store_writable: health.is_ok(),
            store_failures: health.failures,
            are_records_written: self.recorder.failure().is_none(),
            records_dropped: self.recorder.dropped(),
            spans_dropped: self.tracer.as_ref().map_or(0, |tracer| tracer.dropped()),
            tasks,
            sessions,
            streams: self.usages.streams(),
            processes: budgets.processes.used(),
            calls_waiting: upstreams().map(Upstream::waiting_calls).sum(),
            calls_parked: budgets.parked.used(),
            links: self.links(),
            catalog: [
                ("servers", counts.servers),
                ("tools", counts.tools),
                ("prompts", counts.prompts),
                ("resources", counts.resources),
                ("resource_templates", counts.templates),
                ("groups", counts.groups),
            ]
            .map(|(kind, count)| (kind, count as u64))
            .into(),
            process_restarts: upstreams().filter(is_process).map(restarts).collect(),
            refusals: budgets.refusals.all().map(|(bound, count)| (bound.as_str(), count)).collect(),
        }
    }

    /// The number of links in each state. Each server has a first link, in the state of the server; further links exist
    /// only while they are open.
    fn links(&self) -> Vec<(&'static str, u64)> {
        let states = Status::ALL.map(Status::as_str).into_iter().chain([RESTING]);
        let mut links: Vec<_> = states.map(|state| (state, 0)).collect();
        let mut count = |state: &str, number: u64| {
            links.iter_mut().filter(|(name, _)| *name == state).for_each(|(_, count)| *count += number);
        };
        for entry in self.catalog().entries() {
            let Some(upstream) = &entry.upstream else {
                count(Status::Disabled.as_str(), 1);
                continue;
            };
            let state = upstream.state();
            count(if state.is_resting() { RESTING } else { state.status.as_str() }, 1);
            count(Status::Connected.as_str(), upstream.further_links() as u64);
        }
        links
    }
}
