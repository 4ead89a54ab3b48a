//! Which traces are exported: `OTEL_TRACES_SAMPLER` and its argument.

use super::context::{TraceContext, TraceId};

/// Decides whether a trace is exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    kind: SamplerKind,
    /// Whether the caller's decision counts, if it made one.
    follows_parent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SamplerKind {
    Always,
    Never,
    /// This part of all traces, from 0 to 1; chosen by their ids, so that all programs choose the same ones.
    Ratio(f64),
}

impl Default for Sampler {
    fn default() -> Self {
        Self::following(SamplerKind::Always)
    }
}

impl Sampler {
    pub const NAMES: &str = "always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or \
                             parentbased_traceidratio";

    /// Decides alone.
    pub fn alone(kind: SamplerKind) -> Self {
        Self { kind, follows_parent: false }
    }

    /// Does as the caller does, and decides for traces that begin here.
    pub fn following(kind: SamplerKind) -> Self {
        Self { kind, follows_parent: true }
    }

    /// The sampler with this name in the standard.
    pub fn parse(name: &str, ratio: f64) -> Option<Self> {
        let (inner, follows_parent) = match name.strip_prefix("parentbased_") {
            Some(inner) => (inner, true),
            None => (name, false),
        };
        let kind = match inner {
            "always_on" => SamplerKind::Always,
            "always_off" => SamplerKind::Never,
            "traceidratio" => SamplerKind::Ratio(ratio),
            _ => return None,
        };
        Some(Self { kind, follows_parent })
    }

    pub fn samples(&self, trace: TraceId, parent: Option<&TraceContext>) -> bool {
        match (parent, self.kind) {
            (Some(parent), _) if self.follows_parent => parent.is_sampled(),
            (_, SamplerKind::Always) => true,
            (_, SamplerKind::Never) => false,
            (_, SamplerKind::Ratio(ratio)) => is_below(trace, ratio),
        }
    }
}

/// Whether the lower half of the id is in the given part of all numbers, as in the SDKs.
fn is_below(trace: TraceId, ratio: f64) -> bool {
    let lower = u128::from(trace.0.get() as u64);
    let bound = (ratio.clamp(0.0, 1.0) * 2f64.powi(64)).round() as u128;
    lower < bound
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU128;

    use super::*;
    use crate::traces::ids::Ids;

    fn trace(id: u128) -> TraceId {
        TraceId(NonZeroU128::new(id).unwrap())
    }

    #[test]
    fn a_parent_decides_only_for_samplers_that_follow_it() {
        let ids = Ids::new();
        let parent = |is_sampled| TraceContext::new(ids.trace(), ids.span(), is_sampled);
        let samples = |name: &str, parent: Option<TraceContext>| {
            Sampler::parse(name, 1.0).unwrap().samples(ids.trace(), parent.as_ref())
        };
        for (name, alone, under_sampled, under_unsampled) in [
            ("always_on", true, true, true),
            ("always_off", false, false, false),
            ("traceidratio", true, true, true),
            ("parentbased_always_on", true, true, false),
            ("parentbased_always_off", false, true, false),
            ("parentbased_traceidratio", true, true, false),
        ] {
            assert_eq!(samples(name, None), alone, "{name}");
            assert_eq!(samples(name, Some(parent(true))), under_sampled, "{name}");
            assert_eq!(samples(name, Some(parent(false))), under_unsampled, "{name}");
        }
        for wrong in ["", "always", "parentbased_", "parentbased_parentbased_always_on", "jaeger_remote"] {
            assert_eq!(Sampler::parse(wrong, 1.0), None, "{wrong}");
        }
    }

    #[test]
    fn a_ratio_chooses_by_the_lower_half_of_the_id() {
        let half = Sampler::alone(SamplerKind::Ratio(0.5));
        assert!(half.samples(trace(1), None));
        assert!(half.samples(trace(0x7fff_ffff_ffff_ffff), None));
        assert!(!half.samples(trace(0x8000_0000_0000_0000), None));
        assert!(half.samples(trace(0xffff_ffff_ffff_ffff_0000_0000_0000_0000), None));
        let (none, all) = (SamplerKind::Ratio(0.0), SamplerKind::Ratio(1.0));
        assert!(!Sampler::alone(none).samples(trace(1 << 64), None));
        assert!(Sampler::alone(all).samples(trace(u128::MAX), None));
        let ids = Ids::new();
        let tenth = Sampler::alone(SamplerKind::Ratio(0.1));
        let count = (0..10_000).filter(|_| tenth.samples(ids.trace(), None)).count();
        assert!((800..1200).contains(&count), "{count}");
    }
}
