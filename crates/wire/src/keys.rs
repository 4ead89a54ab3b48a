//! Checks that the keys of one object are canonical: each may occur once, and a key that a lenient peer could confuse
//! with one that the gateway reads must be spelled exactly like it. Otherwise the name that was checked and the name
//! that is used could differ.

use std::borrow::Cow;
use std::collections::HashSet;
use std::marker::PhantomData;

use super::head_error::HeadError;
use super::scan::Span;
use super::text;

/// The keys of one kind of object that the gateway reads.
pub(super) trait Known: Copy + 'static {
    const ALL: &'static [Self];

    fn text(self) -> &'static str;

    /// The key that a token is if it is written without escapes.
    fn written(token: &[u8]) -> Option<Self>;

    /// The key that a token is, however it is written.
    fn of(token: &[u8]) -> Option<Self> {
        match Self::written(token) {
            None if token.contains(&b'\\') => {
                let key = text::unescape(token)?;
                Self::ALL.iter().find(|known| known.text() == key).copied()
            }
            known => known,
        }
    }

    /// Its bit in a set of keys.
    fn bit(self) -> u32;
}

/// Declares an enum of known keys, each with its text. Those that occur most should come first.
macro_rules! known_keys {
    ($keys:ident { $($key:ident = $text:expr,)* }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum $keys {
            $($key,)*
        }

        impl $crate::keys::Known for $keys {
            const ALL: &'static [Self] = &[$(Self::$key,)*];

            fn text(self) -> &'static str {
                match self {
                    $(Self::$key => $text,)*
                }
            }

            // Not a loop, so that each text is compared as the few words that it is.
            #[inline]
            fn written(token: &[u8]) -> Option<Self> {
                $(
                    if $crate::text::is_plainly(token, $text) {
                        return Some(Self::$key);
                    }
                )*
                None
            }

            fn bit(self) -> u32 {
                1 << self as u32
            }
        }
    };
}
pub(super) use known_keys;

/// The keys read so far in one object.
#[derive(Debug)]
pub(super) struct Keys<'a, K> {
    met: u32,
    /// A set, since the sender decides how many there are; `None` as long as there are none.
    others: Option<HashSet<Cow<'a, str>>>,
    known: PhantomData<K>,
}

impl<'a, K: Known> Keys<'a, K> {
    pub(super) fn new() -> Self {
        const { assert!(K::ALL.len() <= u32::BITS as usize, "each key needs a bit") };
        Self { met: 0, others: None, known: PhantomData }
    }

    /// Checks the key at `key` in `body`. Returns the known key that it is, or `None` for any other key; the error says why the
    /// key is rejected.
    #[inline]
    pub(super) fn read(&mut self, body: &'a [u8], key: Span) -> Result<Option<K>, HeadError> {
        let token = &body[key];
        // Almost every key is written without escapes and can be compared as it is.
        match K::written(token) {
            Some(key) if self.met & key.bit() == 0 => {
                self.met |= key.bit();
                Ok(Some(key))
            }
            Some(_) | None => self.read_unusual(token).map_err(HeadError::invalid),
        }
    }

    #[inline(never)]
    fn read_unusual(&mut self, token: &'a [u8]) -> Result<Option<K>, String> {
        self.admit(text::unescape(token).ok_or("a key contains a lone surrogate")?)
    }

    /// Checks a key that was unescaped.
    fn admit(&mut self, key: Cow<'a, str>) -> Result<Option<K>, String> {
        if let Some(known) = K::ALL.iter().find(|known| known.text() == key) {
            return self.meet(*known);
        }
        if let Some(known) = K::ALL.iter().find(|known| same_folded(known.text(), &key)) {
            return Err(format!("key {key:?} must be spelled {:?}", known.text()));
        }
        if let Some(twice) = self.others.get_or_insert_default().replace(key) {
            // Shortened, since the sender decides how long it is and the reason is sent back.
            let start: String = twice.chars().take(60).collect();
            return Err(format!("duplicate key {start:?}"));
        }
        Ok(None)
    }

    fn meet(&mut self, key: K) -> Result<Option<K>, String> {
        if self.met & key.bit() != 0 {
            return Err(format!("duplicate key {:?}", key.text()));
        }
        self.met |= key.bit();
        Ok(Some(key))
    }
}

/// Whether two keys or names are equal for a peer that ignores case. Go's encoding/json is one, and also folds the long s and
/// the Kelvin sign into ASCII.
pub(super) fn same_folded(known: &str, key: &str) -> bool {
    let fold = |letter: char| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    known.chars().map(fold).eq(key.chars().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    known_keys!(Sample { Params = "params", Token = "progressToken", });

    #[test]
    fn variants_and_duplicates_are_refused_and_others_pass() {
        let mut keys = Keys::<Sample>::new();
        assert_eq!(keys.admit("params".into()), Ok(Some(Sample::Params)));
        assert_eq!(keys.admit("param".into()), Ok(None));
        for refused in ["params", "Params", "paramſ", "PROGRESSTO\u{212a}EN", "param"] {
            assert!(keys.admit(refused.into()).is_err(), "{refused}");
        }
        assert_eq!(keys.admit("progressToken".into()), Ok(Some(Sample::Token)));
        for key in Sample::ALL {
            assert_eq!(Sample::written(format!("{:?}", key.text()).as_bytes()), Some(*key));
        }
        assert_eq!(Sample::written(b"\"progressTokem\""), None);
    }
}
