//! Calls as they end, for a person who watches: taken from the events that the gateway logs about them.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer};

/// Where the gateway logs the end of each call.
const TARGET: &str = "gateway::ending";

/// A call that ended. Names may have any characters.
#[derive(Debug, Default)]
pub struct EndedCall {
    pub server: String,
    pub tool: String,
    /// The name of an [`Outcome`](crate::Outcome).
    pub outcome: String,
    /// Such as `12.3ms`.
    pub elapsed: String,
}

/// Gets each call that ended, in the thread of the call: it must not wait.
pub type CallWatcher = Box<dyn Fn(&EndedCall) + Send + Sync>;

/// Passes each ended call to a watcher.
pub struct ShowCalls(pub CallWatcher);

impl ShowCalls {
    /// The events that this needs.
    pub fn filter() -> Targets {
        Targets::new().with_target(TARGET, Level::DEBUG)
    }
}

impl<S: Subscriber> Layer<S> for ShowCalls {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut call = EndedCall::default();
        event.record(&mut call);
        if !call.outcome.is_empty() {
            (self.0)(&call);
        }
    }
}

impl EndedCall {
    fn field(&mut self, name: &str) -> Option<&mut String> {
        match name {
            "server" => Some(&mut self.server),
            "tool" => Some(&mut self.tool),
            "outcome" => Some(&mut self.outcome),
            "elapsed" => Some(&mut self.elapsed),
            _ => None,
        }
    }
}

impl Visit for EndedCall {
    fn record_str(&mut self, field: &Field, value: &str) {
        if let Some(text) = self.field(field.name()) {
            value.clone_into(text);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if let Some(text) = self.field(field.name()) {
            let _ = write!(text, "{value:.1?}");
        }
    }
}
