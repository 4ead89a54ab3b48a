//! What an operation costs, as counts, and the difference of two runs.

/// Totals of a run, or the cost of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub instructions: f64,
    pub allocations: f64,
    /// `None` where they are not counted.
    pub system_calls: Option<f64>,
}

impl Counts {
    /// The cost of an operation, from the totals of a run with so many operations more than another one.
    pub fn of_one(self, base: Self, operations: usize) -> Self {
        let each = |more: f64, less: f64| (more - less) / operations as f64;
        Self {
            instructions: each(self.instructions, base.instructions),
            allocations: each(self.allocations, base.allocations),
            system_calls: self.system_calls.zip(base.system_calls).map(|(more, less)| each(more, less)),
        }
    }
    pub fn least(self, other: Self) -> Self {
        self.with(other, f64::min)
    }

    pub fn most(self, other: Self) -> Self {
        self.with(other, f64::max)
    }

    fn with(self, other: Self, choose: fn(f64, f64) -> f64) -> Self {
        Self {
            instructions: choose(self.instructions, other.instructions),
            allocations: choose(self.allocations, other.allocations),
            system_calls: self
                .system_calls
                .zip(other.system_calls)
                .map(|(one, another)| choose(one, another)),
        }
    }
}
