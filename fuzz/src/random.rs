//! A small seeded generator (SplitMix64): the same seed gives the same inputs on every machine.

pub struct Random(u64);

impl Random {
    /// A generator for the input with this index, independent of the inputs before it.
    pub fn for_input(seed: u64, target: &str, index: u64) -> Self {
        let name = target.bytes().fold(seed, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23)
        });
        let mut random = Self(name ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 when the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let below = self.next().checked_rem(limit as u64).unwrap_or(0);
        usize::try_from(below).expect("below a usize")
    }

    /// True once in `times` cases.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of the items, if there are any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}
