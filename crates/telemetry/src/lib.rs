//! Logs and metrics. Metrics are always counted, and served at `/metrics` when telemetry is on. Labels are bounded:
//! only names of registered servers, their tools, users and clients are ever used.

mod ended_calls;
mod refused_calls;

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use ended_calls::ShowCalls;
use refused_calls::{RefusedCalls, RefusedLabels};

pub use ended_calls::{CallWatcher, EndedCall};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    Ok,
    /// The tool ran and reported an error.
    ToolError,
    Failed,
    TimedOut,
    /// The call was abandoned before the response.
    Cancelled,
    /// The requested tool is unknown, disabled or not allowed.
    Denied,
    /// A limit refused the call before anything was sent.
    Limited,
}

impl Outcome {
    const ALL: [Self; 7] = [
        Self::Ok,
        Self::ToolError,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Denied,
        Self::Limited,
    ];
}

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
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BoundLabel {
    bound: &'static str,
}

/// State that is kept elsewhere and read when metrics are rendered.
#[derive(Clone, Debug)]
pub struct GatewayState {
    pub is_store_writable: bool,
    /// The number of writes that have failed since the start.
    pub store_failures: u64,
    /// The number of live tasks of the runtime.
    pub tasks: usize,
    /// Calls waiting for input from their client.
    pub parked_calls: u64,
    /// For each bound, how often something was refused because of it.
    pub refusals: Vec<(&'static str, u64)>,
}

/// All metrics of the gateway.
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    latency: Family<ServerLabel, Histogram, fn() -> Histogram>,
    links: Family<StatusLabel, Gauge>,
    store_writable: Gauge,
    store_failures: Counter,
    runtime_tasks: Gauge<u64, AtomicU64>,
    parked_calls: Gauge<u64, AtomicU64>,
    refusals: Family<BoundLabel, Counter>,
    refused_calls: RefusedCalls,
    /// Locked during rendering: servers are counted anew each time, and two renderings at once would count them twice.
    rendering: Mutex<()>,
}

/// Counts the successful calls of one tool. After its server was removed, what it counts is not shown.
pub struct SuccessMeter {
    latency: Histogram,
    calls: Counter,
}

impl SuccessMeter {
    pub fn count(&self, elapsed: Duration) {
        self.latency.observe(elapsed.as_secs_f64());
        self.calls.inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("toolgate");
        let calls = Family::default();
        registry.register("tool_calls", "Tool calls by server, tool and outcome", calls.clone());
        // 1 ms to about 4 minutes.
        let buckets: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 3.0, 12));
        let latency = Family::new_with_constructor(buckets);
        registry.register("tool_call_duration_seconds", "Time from call to response", latency.clone());
        let links = Family::default();
        registry.register("servers", "Registered servers by status", links.clone());
        let (store_writable, store_failures) = (Gauge::default(), Counter::default());
        let help = "1 while changes can be stored, else 0";
        registry.register("store_writable", help, store_writable.clone());
        registry.register("store_failures", "Writes to the database that failed", store_failures.clone());
        let runtime_tasks = Gauge::default();
        registry.register("runtime_tasks", "Live tasks of the runtime", runtime_tasks.clone());
        let parked_calls = Gauge::default();
        registry.register("parked_calls", "Calls waiting for input from their client", parked_calls.clone());
        let refusals = Family::default();
        registry.register("refusals", "Refusals because of a limit, by limit", refusals.clone());
        let refused_calls = RefusedCalls::default();
        refused_calls.register(&mut registry);
        let rendering = Mutex::default();
        Self {
            registry,
            calls,
            latency,
            links,
            store_writable,
            store_failures,
            runtime_tasks,
            parked_calls,
            refusals,
            refused_calls,
            rendering,
        }
    }
}

impl Metrics {
    /// Counts a call that ended. The name of an unknown server or tool is empty.
    pub fn call_ended(&self, server: &str, tool: &str, outcome: Outcome, elapsed: Duration) {
        let (server, tool) = (server.to_owned(), tool.to_owned());
        if !matches!(outcome, Outcome::Denied | Outcome::Limited) {
            let latency = self.latency.get_or_create_owned(&ServerLabel { server: server.clone() });
            latency.observe(elapsed.as_secs_f64());
        }
        self.calls.get_or_create(&CallLabels { server, tool, outcome }).inc();
    }

    /// The meter for successful calls of one tool, which saves looking up its time series for each of them.
    pub fn success_meter(&self, server: &str, tool: &str) -> SuccessMeter {
        let (server, tool) = (server.to_owned(), tool.to_owned());
        let latency = self.latency.get_or_create_owned(&ServerLabel { server: server.clone() });
        let calls = self.calls.get_or_create_owned(&CallLabels { server, tool, outcome: Outcome::Ok });
        SuccessMeter { latency, calls }
    }

    /// Counts a call that a rate limit refused. The principal is empty in development mode, the tool if none is called.
    pub fn call_refused(&self, principal: &str, server: &str, tool: &str) {
        let [principal, server, tool] = [principal, server, tool].map(str::to_owned);
        self.refused_calls.count(RefusedLabels { principal, server, tool });
    }

    /// The text for `/metrics`. `statuses` has one item per registered server.
    pub fn render(&self, statuses: impl IntoIterator<Item = &'static str>, state: &GatewayState) -> String {
        let _turn = self.rendering.lock().expect("no code panics while it renders");
        self.store_writable.set(state.is_store_writable.into());
        self.store_failures.inner().store(state.store_failures, Ordering::Relaxed);
        self.runtime_tasks.set(state.tasks as u64);
        self.parked_calls.set(state.parked_calls);
        for &(bound, count) in &state.refusals {
            self.refusals.get_or_create(&BoundLabel { bound }).inner().store(count, Ordering::Relaxed);
        }
        self.links.clear();
        for status in statuses {
            self.links.get_or_create(&StatusLabel { status }).inc();
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a string cannot fail");
        text
    }

    /// Removes the time series of a removed server, so that they do not accumulate.
    pub fn forget_server<'a>(&self, server: &str, tools: impl IntoIterator<Item = &'a str>) {
        self.latency.remove(&ServerLabel { server: server.to_owned() });
        self.refused_calls.forget(|labels| labels.server == server);
        // Calls of tools that it did not list are counted under an empty name.
        for tool in tools.into_iter().chain([""]) {
            for outcome in Outcome::ALL {
                let (server, tool) = (server.to_owned(), tool.to_owned());
                self.calls.remove(&CallLabels { server, tool, outcome });
            }
        }
    }

    /// Removes the time series of a user or client that no longer exists under this name.
    pub fn forget_principal(&self, principal: &str) {
        self.refused_calls.forget(|labels| labels.principal == principal);
    }
}

/// Drops log lines that may contain secrets, whatever the filter: rmcp logs authorization codes and token responses at
/// `debug`.
struct Discretion;

impl<S: Subscriber> Layer<S> for Discretion {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        let logs_secrets = ["rmcp", "oauth2"].iter().any(|target| metadata.target().starts_with(target));
        !logs_secrets || *metadata.level() <= Level::INFO
    }
}

/// A writer that ignores failed writes: a log file on a full disk must not fail the request that is being logged.
struct Unfailing<W>(W);

impl<W: Write> Write for Unfailing<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(self.0.write(bytes).unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}

/// Sends logs to standard error, so that standard output contains only results. `show` gets each call that ended.
pub fn start_logging(filter: Targets, show: Option<CallWatcher>) {
    // Two gateways in one process (tests) share the first one's log.
    let _ = match show {
        None => {
            let subscriber = tracing_subscriber::registry().with(filter).with(lines()).with(Discretion);
            tracing::subscriber::set_global_default(subscriber)
        }
        Some(show) => {
            let calls = ShowCalls(show).with_filter(ShowCalls::filter());
            let lines = lines().with_filter(filter);
            let subscriber = tracing_subscriber::registry().with(lines).with(calls).with(Discretion);
            tracing::subscriber::set_global_default(subscriber)
        }
    };
}

/// Writes log lines to standard error.
fn lines<S: Subscriber + for<'span> LookupSpan<'span>>() -> impl Layer<S> {
    tracing_subscriber::fmt::layer()
        .with_writer(|| Unfailing(std::io::stderr()))
        // Reporting on standard error that standard error cannot be written to would panic.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
}
