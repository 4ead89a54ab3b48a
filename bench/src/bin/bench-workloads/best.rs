//! The best figures of several rounds, by workload and peer.

use std::collections::HashMap;

use toolgate_bench::load::Figures;

/// CPU time and latency, each of its best round.
#[derive(Clone, Copy)]
pub struct Best {
    pub cpu_us: f64,
    pub p50_us: f64,
}

#[derive(Default)]
pub struct Bests(HashMap<(&'static str, &'static str), Best>);

impl Bests {
    pub fn add(&mut self, work: &'static str, peer: &'static str, seen: Figures) {
        println!("  {work:24} {peer:24} {:8.1} µs CPU, p50 {:8.1} µs", seen.cpu_us, seen.p50_us);
        let new = Best { cpu_us: seen.cpu_us, p50_us: seen.p50_us };
        let best = self.0.entry((work, peer)).or_insert(new);
        best.cpu_us = best.cpu_us.min(new.cpu_us);
        best.p50_us = best.p50_us.min(new.p50_us);
    }

    pub fn get(&self, work: &'static str, peer: &'static str) -> Option<Best> {
        self.0.get(&(work, peer)).copied()
    }
}
