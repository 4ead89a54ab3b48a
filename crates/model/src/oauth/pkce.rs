//! Proof Key for Code Exchange (RFC 7636), method S256, the only one that is accepted.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use sha2::{Digest, Sha256};

/// The length of a SHA-256 hash in base64url.
const CHALLENGE_LENGTH: usize = 43;

/// Whether the text can be a challenge.
pub fn is_challenge(text: &str) -> bool {
    text.len() == CHALLENGE_LENGTH && URL_SAFE_NO_PAD.decode(text).is_ok_and(|hash| hash.len() == 32)
}

/// Whether the verifier is well formed and belongs to the challenge. Takes the same time wherever they differ.
pub fn is_proven(challenge: &str, verifier: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if !(43..=128).contains(&verifier.len()) || !verifier.bytes().all(is_allowed) {
        return false;
    }
    let computed = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
    super::software::is_same(computed.as_bytes(), challenge.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn a_verifier_belongs_to_its_challenge() {
        assert!(is_challenge(CHALLENGE) && is_proven(CHALLENGE, VERIFIER));
        assert!(!is_proven(CHALLENGE, &VERIFIER.replace('d', "e")));
        assert!(!is_proven(VERIFIER, VERIFIER), "the method plain is not accepted");
    }

    #[test]
    fn malformed_verifiers_and_challenges_are_refused() {
        for bad in ["", "short", &VERIFIER[..42], &VERIFIER.replace('-', "+"), &"a".repeat(129)] {
            let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(bad));
            assert!(!is_proven(&challenge, bad), "{bad}");
        }
        let long = "a".repeat(128);
        assert!(is_proven(&URL_SAFE_NO_PAD.encode(Sha256::digest(&long)), &long));
        for bad in ["", &CHALLENGE[..42], &format!("{CHALLENGE}="), &CHALLENGE.replace('-', "+")] {
            assert!(!is_challenge(bad), "{bad}");
        }
    }
}
