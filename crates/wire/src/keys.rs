//! Checks that the keys of one object are canonical: each may occur once, and a key that a lenient peer could confuse
//! with one that the gateway reads must be spelled exactly like it. Otherwise the name that was checked and the name
//! that is used could differ.

use std::borrow::Cow;
use std::collections::HashSet;

use super::head_error::HeadError;
use super::scan::Span;
use super::text;

/// The keys read so far in one object.
#[derive(Debug)]
pub struct Keys<'a> {
    known: &'static [&'static str],
    met: u32,
    /// A set, since the sender decides how many there are; `None` as long as there are none.
    others: Option<HashSet<Cow<'a, str>>>,
}

impl<'a> Keys<'a> {
    /// Accepts at most 32 known keys.
    pub fn new(known: &'static [&'static str]) -> Self {
        debug_assert!(known.len() <= 32);
        Self { known, met: 0, others: None }
    }

    /// Checks the key at `key` in `body`. Returns the known key that it is, or `None` for any other key; the error says why the
    /// key is rejected.
    pub(super) fn read(&mut self, body: &'a [u8], key: Span) -> Result<Option<&'static str>, HeadError> {
        let token = &body[key];
        // Almost every key is written without escapes and can be compared as it is.
        match self.known.iter().position(|known| text::is_plainly(token, known)) {
            Some(index) if self.met & (1 << index) == 0 => {
                self.met |= 1 << index;
                Ok(Some(self.known[index]))
            }
            Some(_) | None => self.read_unusual(token).map_err(HeadError::invalid),
        }
    }

    #[inline(never)]
    fn read_unusual(&mut self, token: &'a [u8]) -> Result<Option<&'static str>, String> {
        self.admit(text::unescape(token).ok_or("a key contains a lone surrogate")?)
    }

    /// Checks a key that was unescaped.
    pub fn admit(&mut self, key: Cow<'a, str>) -> Result<Option<&'static str>, String> {
        if let Some(index) = self.known.iter().position(|known| *known == key) {
            return self.meet(index);
        }
        if let Some(known) = self.known.iter().find(|known| same_folded(known, &key)) {
            return Err(format!("key {key:?} must be spelled {known:?}"));
        }
        if let Some(twice) = self.others.get_or_insert_default().replace(key) {
            // Shortened, since the sender decides how long it is and the reason is sent back.
            let start: String = twice.chars().take(60).collect();
            return Err(format!("duplicate key {start:?}"));
        }
        Ok(None)
    }

    fn meet(&mut self, index: usize) -> Result<Option<&'static str>, String> {
        let (key, bit) = (self.known[index], 1 << index);
        if self.met & bit != 0 {
            return Err(format!("duplicate key {key:?}"));
        }
        self.met |= bit;
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

    #[test]
    fn variants_and_duplicates_are_refused_and_others_pass() {
        let mut keys = Keys::new(&["params", "progressToken"]);
        assert_eq!(keys.admit("params".into()), Ok(Some("params")));
        assert_eq!(keys.admit("param".into()), Ok(None));
        for refused in ["params", "Params", "paramſ", "PROGRESSTO\u{212a}EN", "param"] {
            assert!(keys.admit(refused.into()).is_err(), "{refused}");
        }
        assert_eq!(keys.admit("progressToken".into()), Ok(Some("progressToken")));
    }
}
