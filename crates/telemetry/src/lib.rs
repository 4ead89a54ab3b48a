//! Logs, metrics and traces. Metrics are always counted, and served at `/metrics` when telemetry is on.

mod call_id;
mod ended_calls;
mod json_lines;
mod metrics;
mod outcome;
mod refused_calls;
mod tool_labels;
pub mod traces;

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use ended_calls::ShowCalls;
use json_lines::JsonLines;
use traces::Tracer;

pub use call_id::{CallId, Entered};
pub use ended_calls::{CallWatcher, EndedCall};
pub use metrics::{CallTime, GatewayState, Metrics, ToolMeter};
pub use outcome::{Outcome, SignIn};

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

/// The fields of an event, and the call that it belongs to.
struct FieldsAndCall(DefaultFields);

impl<'writer> FormatFields<'writer> for FieldsAndCall {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> std::fmt::Result {
        self.0.format_fields(writer.by_ref(), fields)?;
        match CallId::current() {
            Some(call) => write!(writer, " call={call}"),
            None => Ok(()),
        }
    }
}

/// Where a gateway reports what it does.
pub struct Telemetry {
    pub metrics: Metrics,
    /// `None` if calls are not traced.
    pub tracer: Option<Arc<Tracer>>,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Sends logs to standard error, so that standard output contains only results. `show` gets each call that ended.
pub fn start_logging(filter: Targets, format: LogFormat, show: Option<CallWatcher>) {
    // Two gateways in one process (tests) share the first one's log.
    let _ = match show {
        None => {
            let subscriber = tracing_subscriber::registry().with(filter).with(lines(format)).with(Discretion);
            tracing::subscriber::set_global_default(subscriber)
        }
        Some(show) => {
            let calls = ShowCalls(show).with_filter(ShowCalls::filter());
            let lines = lines(format).with_filter(filter);
            let subscriber = tracing_subscriber::registry().with(lines).with(calls).with(Discretion);
            tracing::subscriber::set_global_default(subscriber)
        }
    };
}

/// Writes log lines to standard error.
fn lines<S: Subscriber + for<'span> LookupSpan<'span>>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync> {
    match format {
        LogFormat::Json => JsonLines.boxed(),
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .fmt_fields(FieldsAndCall(DefaultFields::new()))
            .with_writer(|| Unfailing(std::io::stderr()))
            // Reporting on standard error that standard error cannot be written to would panic.
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
    }
}
