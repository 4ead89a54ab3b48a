//! The metrics: what is counted as it happens, and what is read when somebody asks for them. Labels are bounded: only
//! names of registered servers, their tools, users and clients are ever used, and of the tools at most
//! [`MOST_TOOLS`](super::tool_labels::MOST_TOOLS).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::outcome::{Outcome, SignIn};
use super::refused_calls::{RefusedCalls, RefusedLabels};
use super::tool_labels::ToolLabels;

/// The buckets of the duration of calls, in seconds: from half a millisecond to the default timeout.
const CALL_BUCKETS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
/// The buckets of the gateway's own time, which is usually far below a millisecond.
const OWN_BUCKETS: [f64; 14] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5,
    2.5,
];
/// The buckets of the time of a write to the database.
const STORE_BUCKETS: [f64; 13] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    server: String,
    tool: String,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabel {
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BoundLabel {
    bound: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignInLabel {
    outcome: SignIn,
}

/// State that is kept elsewhere and read when metrics are rendered.
#[derive(Clone, Debug, Default)]
pub struct GatewayState {
    pub is_store_writable: bool,
    /// The number of writes that have failed since the start.
    pub store_failures: u64,
    /// Whether records of calls can be written, or are off.
    pub are_records_written: bool,
    /// How many calls have no record although they should.
    pub records_dropped: u64,
    /// How many spans were not exported although they should have been.
    pub spans_dropped: u64,
    /// The number of live tasks of the runtime.
    pub tasks: u64,
    /// Sessions of clients that hold something.
    pub sessions: u64,
    /// Open event streams.
    pub streams: u64,
    /// Processes of stdio servers.
    pub processes: u64,
    /// Calls waiting for a server with `max_concurrency`.
    pub calls_waiting: u64,
    /// Calls waiting for input from their client.
    pub calls_parked: u64,
    /// The number of links in each state.
    pub links: Vec<(&'static str, u64)>,
    /// How much of each kind is registered.
    pub catalog: Vec<(&'static str, u64)>,
    /// For each stdio server, how often its process was started again.
    pub process_restarts: Vec<(String, u64)>,
    /// For each bound, how often something was refused because of it.
    pub refusals: Vec<(&'static str, u64)>,
}

/// A gauge without labels: name, description, and its value.
type PlainGauge = (&'static str, &'static str, fn(&GatewayState) -> u64);

const GAUGES: [PlainGauge; 8] = [
    ("store_writable", "1 while changes can be stored, else 0", |state| state.is_store_writable.into()),
    ("records_writable", "1 while records of calls can be written, else 0", |state| {
        state.are_records_written.into()
    }),
    ("runtime_tasks", "Live tasks of the runtime", |state| state.tasks),
    ("sessions", "Sessions of clients that hold something", |state| state.sessions),
    ("streams", "Open event streams of clients", |state| state.streams),
    ("processes", "Processes of stdio servers", |state| state.processes),
    ("calls_waiting", "Calls waiting for a server with max_concurrency", |state| state.calls_waiting),
    ("calls_parked", "Calls waiting for input from their client", |state| state.calls_parked),
];

/// All metrics of the gateway.
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    durations: Family<ServerLabel, Histogram, fn() -> Histogram>,
    own_times: Family<ServerLabel, Histogram, fn() -> Histogram>,
    tools: ToolLabels,
    refused_calls: RefusedCalls,
    recognized: Counter,
    refused_tokens: Counter,
    store_times: Histogram,
    store_failures: Counter,
    records_dropped: Counter,
    spans_dropped: Counter,
    gauges: [Gauge<u64, AtomicU64>; GAUGES.len()],
    links: Family<StateLabel, Gauge<u64, AtomicU64>>,
    catalog: Family<KindLabel, Gauge<u64, AtomicU64>>,
    process_restarts: Family<ServerLabel, Counter>,
    refusals: Family<BoundLabel, Counter>,
    /// Locked during rendering: two renderings at once would mix what they read.
    rendering: Mutex<()>,
}

/// The time of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallTime {
    pub total: Duration,
    /// The gateway's own part of it.
    pub gateway: Duration,
}

/// Counts the calls of one tool, without looking up its series for those that succeed. After its server was removed,
/// what it counts is not shown.
pub struct ToolMeter {
    server: ServerMeter,
    /// Looked up by the first call that succeeds.
    successes: OnceLock<Counter>,
    labels: (String, String),
}

/// Times the calls of one server.
struct ServerMeter {
    durations: Histogram,
    own_times: Histogram,
}

impl ServerMeter {
    fn observe(&self, time: CallTime) {
        self.durations.observe(time.total.as_secs_f64());
        self.own_times.observe(time.gateway.as_secs_f64());
    }
}

impl Metrics {
    /// Metrics of a program with this version.
    pub fn new(version: &'static str) -> Self {
        let mut registry = Registry::with_prefix("toolgate");
        let about = [("version", version), ("os", std::env::consts::OS), ("arch", std::env::consts::ARCH)];
        registry.register("build", "The running program", Info::new(about.to_vec()));
        let calls = Family::default();
        registry.register("tool_calls", "Tool calls by server, tool and outcome", calls.clone());
        let buckets: fn() -> Histogram = || Histogram::new(CALL_BUCKETS);
        let durations = Family::new_with_constructor(buckets);
        registry.register("call_duration_seconds", "Time from call to response", durations.clone());
        let buckets: fn() -> Histogram = || Histogram::new(OWN_BUCKETS);
        let own_times = Family::new_with_constructor(buckets);
        let help = "The gateway's own part of the duration, without waiting for a slot, the server and input";
        registry.register("gateway_seconds", help, own_times.clone());
        let refused_calls = RefusedCalls::default();
        refused_calls.register(&mut registry);
        let sign_ins = Family::<SignInLabel, Counter>::default();
        registry.register("sign_ins", "Tokens of requests by outcome", sign_ins.clone());
        let counter = |outcome| sign_ins.get_or_create_owned(&SignInLabel { outcome });
        let store_times = Histogram::new(STORE_BUCKETS);
        registry.register("store_seconds", "Time of writes to the database", store_times.clone());
        let store_failures = Counter::default();
        registry.register("store_failures", "Writes to the database that failed", store_failures.clone());
        let records_dropped = Counter::default();
        registry.register("records_dropped", "Calls without a record", records_dropped.clone());
        let spans_dropped = Counter::default();
        registry.register("spans_dropped", "Spans that were not exported", spans_dropped.clone());
        let gauges = GAUGES.map(|(name, help, _)| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        });
        let (links, catalog) = (Family::default(), Family::default());
        registry.register("links", "Links to servers by state", links.clone());
        registry.register("catalog", "Registered items by kind", catalog.clone());
        let (process_restarts, refusals) = (Family::default(), Family::default());
        let help = "How often the process of a stdio server was started again after it ended";
        registry.register("process_restarts", help, process_restarts.clone());
        registry.register("refusals", "Refusals because of a limit, by limit", refusals.clone());
        Self {
            calls,
            durations,
            own_times,
            tools: ToolLabels::default(),
            refused_calls,
            recognized: counter(SignIn::Recognized),
            refused_tokens: counter(SignIn::Refused),
            store_times,
            store_failures,
            records_dropped,
            spans_dropped,
            gauges,
            links,
            catalog,
            process_restarts,
            refusals,
            rendering: Mutex::default(),
            registry,
        }
    }

    /// The meter of a tool that its server lists.
    pub fn tool_meter(&self, server: &str, tool: &str) -> ToolMeter {
        let labels = (server.to_owned(), self.tools.of(server, tool));
        ToolMeter { server: self.server_meter(server), successes: OnceLock::new(), labels }
    }

    /// Counts a call of a listed tool that ended.
    pub fn tool_called(&self, meter: &ToolMeter, outcome: Outcome, time: CallTime) {
        let series = || self.calls.get_or_create_owned(&call_labels(&meter.labels, outcome));
        if outcome == Outcome::Ok {
            meter.successes.get_or_init(series).inc();
        } else {
            series().inc();
        }
        if !outcome.is_refusal() {
            meter.server.observe(time);
        }
    }

    /// Counts a call of a tool that its server does not list. The name of an unknown server is empty.
    pub fn unlisted_called(&self, server: &str, outcome: Outcome, time: CallTime) {
        let labels = (server.to_owned(), String::new());
        self.calls.get_or_create(&call_labels(&labels, outcome)).inc();
        if !outcome.is_refusal() {
            self.server_meter(server).observe(time);
        }
    }

    /// Counts a call that a rate limit refused. The principal is empty in development mode, the tool if none is called.
    pub fn call_refused(&self, principal: &str, server: &str, tool: &str) {
        let tool = self.tools.of(server, tool);
        let [principal, server] = [principal, server].map(str::to_owned);
        self.refused_calls.count(RefusedLabels { principal, server, tool });
    }

    /// Counts the token of a request.
    pub fn token_checked(&self, outcome: SignIn) {
        match outcome {
            SignIn::Recognized => self.recognized.inc(),
            SignIn::Refused => self.refused_tokens.inc(),
        };
    }

    /// Counts a write to the database.
    pub fn store_written(&self, elapsed: Duration) {
        self.store_times.observe(elapsed.as_secs_f64());
    }

    /// The text for `/metrics`.
    pub fn render(&self, state: &GatewayState) -> String {
        let _turn = self.rendering.lock().expect("no code panics while it renders");
        for (gauge, (_, _, value)) in self.gauges.iter().zip(GAUGES) {
            gauge.set(value(state));
        }
        self.store_failures.inner().store(state.store_failures, Ordering::Relaxed);
        self.records_dropped.inner().store(state.records_dropped, Ordering::Relaxed);
        self.spans_dropped.inner().store(state.spans_dropped, Ordering::Relaxed);
        for &(state, count) in &state.links {
            self.links.get_or_create(&StateLabel { state }).set(count);
        }
        for &(kind, count) in &state.catalog {
            self.catalog.get_or_create(&KindLabel { kind }).set(count);
        }
        // Servers come and go.
        self.process_restarts.clear();
        for (server, count) in &state.process_restarts {
            let labels = ServerLabel { server: server.clone() };
            self.process_restarts.get_or_create(&labels).inner().store(*count, Ordering::Relaxed);
        }
        for &(bound, count) in &state.refusals {
            self.refusals.get_or_create(&BoundLabel { bound }).inner().store(count, Ordering::Relaxed);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a string cannot fail");
        text
    }

    /// Removes the time series of a removed server, so that they do not accumulate.
    pub fn forget_server(&self, server: &str) {
        let label = ServerLabel { server: server.to_owned() };
        self.durations.remove(&label);
        self.own_times.remove(&label);
        self.refused_calls.forget(|labels| labels.server == server);
        for tool in self.tools.forget(server) {
            let labels = (server.to_owned(), tool);
            for outcome in Outcome::ALL {
                self.calls.remove(&call_labels(&labels, outcome));
            }
        }
    }

    /// Removes the time series of a user or client that no longer exists under this name.
    pub fn forget_principal(&self, principal: &str) {
        self.refused_calls.forget(|labels| labels.principal == principal);
    }

    fn server_meter(&self, server: &str) -> ServerMeter {
        let label = ServerLabel { server: server.to_owned() };
        let durations = self.durations.get_or_create_owned(&label);
        ServerMeter { durations, own_times: self.own_times.get_or_create_owned(&label) }
    }
}

fn call_labels((server, tool): &(String, String), outcome: Outcome) -> CallLabels {
    CallLabels { server: server.clone(), tool: tool.clone(), outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_labels::MOST_TOOLS;

    const TIME: CallTime = CallTime { total: Duration::from_millis(3), gateway: Duration::from_micros(30) };

    fn series(metrics: &Metrics, name: &str) -> Vec<String> {
        let text = metrics.render(&GatewayState::default());
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
    }

    #[test]
    fn at_most_2000_of_5000_tools_become_labels() {
        let metrics = Metrics::new("1.2.3");
        for number in 0..5000 {
            let meter = metrics.tool_meter(["a", "b"][number % 2], &format!("tool-{number}"));
            metrics.tool_called(&meter, Outcome::Ok, TIME);
            metrics.tool_called(&meter, Outcome::ToolError, TIME);
            metrics.call_refused("p", ["a", "b"][number % 2], &format!("tool-{number}"));
        }
        let of = |what: &str| {
            let calls = series(&metrics, "toolgate_tool_calls_total");
            calls.into_iter().filter(|line| line.contains(what)).collect::<Vec<_>>()
        };
        assert_eq!(of("outcome=\"ok\"").len(), MOST_TOOLS + 2);
        assert_eq!(of("tool=\"tool-1999\"").len(), 2);
        assert!(of("tool=\"tool-2000\"").is_empty());
        for server in ["a", "b"] {
            let rest = format!(r#"server="{server}",tool="other",outcome="ok"}} 1500"#);
            assert_eq!(of(&rest).len(), 1, "{:?}", of("other"));
        }
        assert_eq!(series(&metrics, "toolgate_refused_calls_total").len(), MOST_TOOLS + 2);
        // The names of a removed server are free for others.
        metrics.forget_server("a");
        assert!(of("server=\"a\"").is_empty());
        metrics.tool_called(&metrics.tool_meter("c", "late"), Outcome::Ok, TIME);
        assert_eq!(of("tool=\"late\"").len(), 1);
    }

    #[test]
    fn a_call_that_never_began_has_no_duration() {
        let metrics = Metrics::new("1.2.3");
        let meter = metrics.tool_meter("s", "t");
        for outcome in Outcome::ALL {
            metrics.tool_called(&meter, outcome, TIME);
            metrics.unlisted_called("s", outcome, TIME);
        }
        for name in ["toolgate_call_duration_seconds_count", "toolgate_gateway_seconds_count"] {
            assert_eq!(series(&metrics, name), [format!("{name}{{server=\"s\"}} 10")]);
        }
        assert_eq!(series(&metrics, "toolgate_tool_calls_total").len(), 2 * Outcome::ALL.len());
    }
}
