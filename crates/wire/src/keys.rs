//! The keys of one object, checked to be canonical: each may occur once, and a key that a lax peer could take for one
//! that the gateway reads must be spelled exactly so. Else the name that was checked and the name that runs differ.

use std::borrow::Cow;
use std::collections::HashSet;

use super::head_error::HeadError;
use super::scan::Span;
use super::text;

/// The keys met so far in one object.
#[derive(Debug)]
pub struct Keys<'a> {
    known: &'static [&'static str],
    met: u32,
    /// A set, since the sender decides how many there are.
    others: HashSet<Cow<'a, str>>,
}

impl<'a> Keys<'a> {
    /// At most 32 known keys.
    pub fn new(known: &'static [&'static str]) -> Self {
        debug_assert!(known.len() <= 32);
        Self { known, met: 0, others: HashSet::new() }
    }

    /// Admits the key at `key` in `body`. It is unescaped before it is compared, so that no spelling gets around the check.
    pub(super) fn read(&mut self, body: &'a [u8], key: Span) -> Result<Option<&'static str>, HeadError> {
        let key = text::unescape(&body[key]);
        let key = key.ok_or_else(|| HeadError::invalid("a key holds a lone surrogate"))?;
        self.admit(key).map_err(HeadError::invalid)
    }

    /// The known key that `key` (unescaped) is, or `None` for a key that passes unread; the reason if it is
    /// refused.
    pub fn admit(&mut self, key: Cow<'a, str>) -> Result<Option<&'static str>, String> {
        if let Some(index) = self.known.iter().position(|known| *known == key) {
            let bit = 1 << index;
            if self.met & bit != 0 {
                return Err(format!("duplicate key {key:?}"));
            }
            self.met |= bit;
            return Ok(Some(self.known[index]));
        }
        if let Some(known) = self.known.iter().find(|known| same_folded(known, &key)) {
            return Err(format!("key {key:?} must be spelled {known:?}"));
        }
        if let Some(twice) = self.others.replace(key) {
            // As long as the sender liked; the reason is sent back.
            let start: String = twice.chars().take(60).collect();
            return Err(format!("duplicate key {start:?}"));
        }
        Ok(None)
    }
}

/// Equal in the eyes of a reader that ignores case. Go's encoding/json is one, and folds the long s and the
/// Kelvin sign into ASCII as well.
fn same_folded(known: &str, key: &str) -> bool {
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
