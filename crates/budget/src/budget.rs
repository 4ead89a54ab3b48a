//! A limited amount of something that is held for a while, and the guard that holds a part of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bound::{Bound, Exceeded};
use super::refusals::Refusals;

/// A limited amount. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bound: Bound,
    limit: u64,
    used: AtomicU64,
    refusals: Refusals,
}

/// A part of a budget, given back on drop.
#[derive(Debug)]
pub struct Taken {
    budget: Budget,
    amount: u64,
}

impl Budget {
    pub fn new(bound: Bound, limit: u64, refusals: &Refusals) -> Self {
        let (used, refusals) = (AtomicU64::default(), refusals.clone());
        Self(Arc::new(Shared { bound, limit, used, refusals }))
    }

    /// Takes an amount. A refusal is counted.
    pub fn take(&self, amount: u64) -> Result<Taken, Exceeded> {
        let mut taken = Taken { budget: self.clone(), amount: 0 };
        taken.grow(amount)?;
        Ok(taken)
    }

    /// Takes an amount for a caller that has another way if there is too little: a refusal is not counted.
    pub fn try_take(&self, amount: u64) -> Option<Taken> {
        self.add(amount).then(|| Taken { budget: self.clone(), amount })
    }

    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    fn add(&self, amount: u64) -> bool {
        let before = self.0.used.fetch_add(amount, Ordering::Relaxed);
        let fits = before.checked_add(amount).is_some_and(|used| used <= self.0.limit);
        if !fits {
            self.give_back(amount);
        }
        fits
    }

    fn give_back(&self, amount: u64) {
        self.0.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

impl Taken {
    /// Takes more for the same holder. On a refusal it keeps what it has.
    pub fn grow(&mut self, more: u64) -> Result<(), Exceeded> {
        let shared = &self.budget.0;
        if !self.budget.add(more) {
            shared.refusals.count(shared.bound);
            return Err(Exceeded { bound: shared.bound, limit: shared.limit });
        }
        self.amount += more;
        Ok(())
    }

    /// Gives a part back.
    pub fn shrink(&mut self, less: u64) {
        let less = less.min(self.amount);
        self.amount -= less;
        self.budget.give_back(less);
    }

    pub fn amount(&self) -> u64 {
        self.amount
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let refusals = Refusals::default();
        let budget = Budget::new(Bound::Calls, 3, &refusals);
        let mut first = budget.take(1).unwrap();
        first.grow(1).unwrap();
        let second = budget.take(1).unwrap();
        assert_eq!(budget.take(1).unwrap_err(), Exceeded { bound: Bound::Calls, limit: 3 });
        assert!(first.grow(1).is_err() && budget.try_take(1).is_none());
        assert_eq!((budget.used(), first.amount()), (3, 2));
        drop(second);
        first.shrink(1);
        assert_eq!(budget.used(), 1);
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(budget.take(4).is_err() && budget.take(u64::MAX).is_err());
        let counted = refusals.all().find(|(bound, _)| *bound == Bound::Calls).unwrap().1;
        assert_eq!((counted, budget.used()), (4, 0));
    }
}
