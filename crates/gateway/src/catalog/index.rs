//! Finds the items of a list by name.

use std::sync::Arc;

/// The sorted order of the items of one list of an offering.
pub(super) struct Index<T> {
    order: Vec<u32>,
    key: fn(&T) -> &str,
}

impl<T> Index<T> {
    pub(super) fn new(items: &[Arc<T>], key: fn(&T) -> &str) -> Self {
        // The number of items is bounded far below.
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_unstable_by_key(|&position| key(&items[position as usize]));
        Self { order, key }
    }

    pub(super) fn position(&self, items: &[Arc<T>], wanted: &str) -> Option<usize> {
        let at = self.order.binary_search_by_key(&wanted, |&position| (self.key)(&items[position as usize]));
        Some(self.order[at.ok()?] as usize)
    }

    pub(super) fn find<'a>(&self, items: &'a [Arc<T>], wanted: &str) -> Option<&'a T> {
        self.position(items, wanted).map(|position| &*items[position])
    }

    pub(super) fn sorted<'a>(&'a self, items: &'a [Arc<T>]) -> impl Iterator<Item = &'a T> {
        self.order.iter().map(|&position| &*items[position as usize])
    }
}
