//! Traces of calls, as OpenTelemetry describes them. Reading order: `context` (the trace that a request belongs to), `ids`
//! and `sampler` (new traces, and which are exported), `span` and `encoder` (what is exported), `tracer` (joins them, and
//! keeps spans until they are exported). Sending them is up to the user of this crate: there is no I/O here.

mod context;
mod encoder;
mod ids;
mod sampler;
mod span;
mod tracer;

pub use context::{SpanId, TraceContext, TraceId, read_trace_state};
pub use sampler::{Sampler, SamplerKind};
pub use span::{AttributeValue, FinishedSpan, SpanKind};
pub use tracer::{Tracer, TracerSettings};
