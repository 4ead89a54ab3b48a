//! Bearer tokens of users and clients, supplied by people or generated here.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use zeroize::Zeroizing;

use super::Secret;

const SHORTEST: usize = 8;
/// Longer than any sensible token, and short enough for every header.
const LONGEST: usize = 4096;
/// The number of random bytes in a generated token.
const ENTROPY: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    secret: Secret,
    /// A random number, different each time a token is given to somebody: what belongs to one holder must not pass to a
    /// later holder, even if both tokens have the same text.
    id: u64,
}

impl Token {
    pub fn generate() -> Self {
        let bytes: Zeroizing<[u8; ENTROPY]> = Zeroizing::new(random());
        Self::new(Secret::new(URL_SAFE_NO_PAD.encode(*bytes)))
    }

    /// Parses a token supplied by a person. The error is a sentence fragment that says what is wrong, without the
    /// token.
    pub fn parse(text: &str) -> Result<Self, String> {
        let length = text.chars().count();
        if length < SHORTEST {
            return Err(format!("must have at least {SHORTEST} characters"));
        }
        if length > LONGEST {
            return Err(format!("must have at most {LONGEST} characters"));
        }
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("must not contain white space or control characters".into());
        }
        Ok(Self::new(Secret::new(text)))
    }

    /// Restores a token that was stored.
    pub fn restore(secret: Secret, id: u64) -> Self {
        Self { secret, id }
    }

    fn new(secret: Secret) -> Self {
        // Zero is reserved: in stored ids it means nobody.
        Self { secret, id: u64::from_le_bytes(random()).max(1) }
    }

    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    pub fn id(&self) -> u64 {
        self.id
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_made_here_are_43_characters_and_never_the_same() {
        let (one, other) = (Token::generate(), Token::generate());
        assert_eq!(one.secret().expose().len(), 43);
        assert_ne!(one.secret(), other.secret());
        assert_ne!(one.id(), other.id());
        assert!(Token::parse(one.secret().expose()).is_ok());
        assert!(!format!("{one:?}").contains(one.secret().expose()));
    }

    #[test]
    fn tokens_that_could_not_be_sent_are_refused() {
        for bad in [
            "",
            "1234567",
            "ääääää7",
            "1234 5678",
            " 12345678",
            "12345678\n",
            "1234\u{a0}5678",
            "1234\x005678",
        ] {
            assert!(Token::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Token::parse(&"x".repeat(LONGEST + 1)).is_err());
        for good in ["12345678", "a.b-c_d~e+f/g==", "zwölfeins", &"x".repeat(LONGEST)] {
            assert!(Token::parse(good).is_ok(), "{good:?}");
        }
    }
}
