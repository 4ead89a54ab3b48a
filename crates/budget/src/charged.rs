//! Bytes that are part of a budget for as long as they are held.

use bytes::Bytes;

use super::budget::Taken;

struct Charged {
    bytes: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Ties bytes to the part of a budget that they take: it is given back when the last clone or slice of them is dropped.
pub fn charged(bytes: Bytes, taken: Taken) -> Bytes {
    Bytes::from_owner(Charged { bytes, _taken: taken })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bound, Budget, Refusals};

    #[test]
    fn the_last_slice_gives_back() {
        let budget = Budget::new(Bound::BufferedBytes, 10, &Refusals::default());
        let bytes = charged(Bytes::from_static(b"0123456789"), budget.take(10).unwrap());
        let slice = bytes.slice(3..4);
        drop(bytes);
        assert_eq!((budget.used(), slice.as_ref()), (10, &b"3"[..]));
        drop(slice);
        assert_eq!(budget.used(), 0);
    }
}
