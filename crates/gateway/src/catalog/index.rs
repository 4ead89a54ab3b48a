//! Finds the items of a list by name.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The items of one list of an offering, by their positions in it.
pub(super) struct Index<T> {
    order: Vec<u32>,
    by_key: HashTable<u32>,
    hasher: RandomState,
    key: fn(&T) -> &str,
}

impl<T> Index<T> {
    pub(super) fn new(items: &[Arc<T>], key: fn(&T) -> &str) -> Self {
        let key_at = |position: u32| key(&items[position as usize]);
        // The number of items is bounded far below.
        let mut order: Vec<u32> = (0..items.len() as u32).collect();
        order.sort_unstable_by_key(|&position| key_at(position));
        let hasher = RandomState::default();
        let hash = |position: &u32| hasher.hash_one(key_at(*position));
        let mut by_key = HashTable::with_capacity(items.len());
        for position in &order {
            by_key.insert_unique(hash(position), *position, hash);
        }
        Self { order, by_key, hasher, key }
    }

    pub(super) fn position(&self, items: &[Arc<T>], wanted: &str) -> Option<usize> {
        let is_wanted = |position: &u32| (self.key)(&items[*position as usize]) == wanted;
        self.by_key.find(self.hasher.hash_one(wanted), is_wanted).map(|position| *position as usize)
    }

    pub(super) fn find<'a>(&self, items: &'a [Arc<T>], wanted: &str) -> Option<&'a T> {
        self.position(items, wanted).map(|position| &*items[position])
    }

    pub(super) fn sorted<'a>(&'a self, items: &'a [Arc<T>]) -> impl Iterator<Item = &'a T> {
        self.order.iter().map(|&position| &*items[position as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_found_and_nothing_else() {
        for count in [0, 1, 2, 500] {
            let items: Vec<Arc<String>> =
                (0..count).map(|number| Arc::new(format!("tool_{number}"))).collect();
            let index = Index::new(&items, |item| item);
            for (position, item) in items.iter().enumerate() {
                assert_eq!(index.position(&items, item), Some(position));
            }
            assert_eq!(index.find(&items, "tool_"), None);
            assert!(index.sorted(&items).is_sorted());
        }
    }
}
