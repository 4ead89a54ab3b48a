//! The id of a grant: of software that acts for a user.

use std::fmt;

const LENGTH: usize = 16;

/// A random number, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantId([u8; LENGTH]);

impl GrantId {
    pub fn random() -> Self {
        let mut bytes = [0; LENGTH];
        getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
        Self(bytes)
    }

    pub fn from_bytes(bytes: [u8; LENGTH]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }

    /// Reads an id as it is shown: 32 hexadecimal digits in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 2 * LENGTH || !text.bytes().all(is_digit) {
            return None;
        }
        let mut bytes = [0; LENGTH];
        for (byte, index) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[index..index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_shown_and_in_no_other_way() {
        let id = GrantId::random();
        assert_eq!(GrantId::parse(&id.to_string()), Some(id));
        for wrong in ["", "0", &"0".repeat(31), &"A".repeat(32), &"é".repeat(16), &"+1".repeat(16)] {
            assert_eq!(GrantId::parse(wrong), None, "{wrong}");
        }
    }
}
