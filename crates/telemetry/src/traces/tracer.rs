//! Makes traces, and keeps the spans that ended until they are exported. Nobody ever waits here: what does not fit is
//! dropped and counted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::context::TraceContext;
use super::encoder;
use super::ids::Ids;
use super::sampler::Sampler;
use super::span::FinishedSpan;

#[derive(Clone, Debug, PartialEq)]
pub struct TracerSettings {
    pub sampler: Sampler,
    /// What the spans say about this program.
    pub resource: Vec<(String, String)>,
    /// How many spans wait to be exported at most.
    pub queue: usize,
    /// How many of them are exported together.
    pub batch: usize,
}

pub struct Tracer {
    settings: TracerSettings,
    version: &'static str,
    ids: Ids,
    queue: Mutex<Vec<FinishedSpan>>,
    dropped: AtomicU64,
    /// Called when a whole batch waits.
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Tracer {
    pub fn new(
        settings: TracerSettings,
        version: &'static str,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (queue, dropped) = Default::default();
        Self { settings, version, ids: Ids::new(), queue, dropped, wake: Box::new(wake) }
    }

    /// A new span in the trace of its parent, or in a new one.
    pub fn begin(&self, parent: Option<&TraceContext>) -> TraceContext {
        let trace = parent.map_or_else(|| self.ids.trace(), |parent| parent.trace);
        let (span, is_sampled) = (self.ids.span(), self.settings.sampler.samples(trace, parent));
        match parent {
            Some(parent) => parent.with_span(span).with_sampled(is_sampled),
            None => TraceContext::new(trace, span, is_sampled),
        }
    }

    /// A new span in the trace of a span of this program.
    pub fn child(&self, parent: &TraceContext) -> TraceContext {
        parent.with_span(self.ids.span())
    }

    /// Takes a span that ended. It never waits.
    pub fn end(&self, span: FinishedSpan) {
        let mut queue = self.queue.lock().expect("no code panics while it holds the queue");
        if queue.len() >= self.settings.queue {
            drop(queue);
            return self.drop_spans(1);
        }
        queue.push(span);
        let is_batch = queue.len() == self.settings.batch;
        drop(queue);
        if is_batch {
            (self.wake)();
        }
    }

    /// The spans to export next, oldest first; none if there are none.
    pub fn take_batch(&self) -> Vec<FinishedSpan> {
        let mut queue = self.queue.lock().expect("no code panics while it holds the queue");
        let count = queue.len().min(self.settings.batch);
        queue.drain(..count).collect()
    }

    /// The body of a request that exports spans.
    pub fn encode(&self, spans: &[FinishedSpan]) -> Vec<u8> {
        encoder::encode(&self.settings.resource, self.version, spans)
    }

    pub fn drop_spans(&self, count: usize) {
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many spans were not exported although they should have been.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::traces::{SamplerKind, SpanKind};

    fn tracer(sampler: Sampler, wakes: Arc<AtomicU64>) -> Tracer {
        let settings = TracerSettings { sampler, resource: Vec::new(), queue: 5, batch: 2 };
        Tracer::new(settings, "1", move || _ = wakes.fetch_add(1, Ordering::Relaxed))
    }

    fn span(context: TraceContext) -> FinishedSpan {
        FinishedSpan {
            context,
            parent: None,
            is_parent_remote: false,
            state: None,
            link: None,
            kind: SpanKind::Server,
            name: String::new(),
            begun_ns: 0,
            ended_ns: 0,
            attributes: Vec::new(),
            is_error: false,
        }
    }

    #[test]
    fn spans_of_a_trace_have_its_id_and_its_decision() {
        let tracer = tracer(Sampler::default(), Arc::default());
        let begun = tracer.begin(None);
        assert!(begun.is_sampled());
        let child = tracer.child(&begun);
        assert_eq!((child.trace, child.is_sampled()), (begun.trace, true));
        assert_ne!(child.span, begun.span);
        let caller = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00").unwrap();
        let begun = tracer.begin(Some(&caller));
        assert_eq!((begun.trace, begun.is_sampled()), (caller.trace, false));
        assert_ne!(begun.span, caller.span);
    }

    #[test]
    fn a_decision_of_its_own_is_told_to_servers() {
        let tracer = tracer(Sampler::alone(SamplerKind::Never), Arc::default());
        let caller = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        assert!(tracer.begin(Some(&caller)).to_string().ends_with("-00"));
        assert!(tracer.begin(None).to_string().ends_with("-00"));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted() {
        let wakes = Arc::new(AtomicU64::new(0));
        let tracer = tracer(Sampler::default(), wakes.clone());
        let ended: Vec<_> = (0..7).map(|_| tracer.begin(None)).collect();
        ended.iter().for_each(|context| tracer.end(span(*context)));
        assert_eq!((tracer.dropped(), wakes.load(Ordering::Relaxed)), (2, 1));
        let kept: Vec<_> =
            std::iter::from_fn(|| Some(tracer.take_batch()).filter(|it| !it.is_empty())).collect();
        assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        let kept: Vec<_> = kept.into_iter().flatten().map(|span| span.context).collect();
        assert_eq!(kept, ended[..5]);
        assert!(tracer.take_batch().is_empty());
    }
}
