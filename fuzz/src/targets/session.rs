//! Reads any text as a session id, and any bytes as the plain text of one. Promises: only issued ids open, and an opened
//! session that is sealed again is the same session.

use std::sync::LazyLock;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use gateway::caller::{Scope, Viewer};
use mcp::session::Sessions;
use model::PrincipalId;
use seal::{PurposeSeal, Seal, SecretKey};

pub const DICTIONARY: &[&str] =
    &["=", "-", "_", "A", "AAAA", "\0\0", "dev", "claude", "1.2.3", "\u{1}", "\u{7}", "+", "/", "%", " "];

/// Ids that were issued under the key of the targets; they are also in the corpus.
const GENUINE: &[&str] = &[
    "Afdzv9H1Q-XPzlGgR-SEy3J7aV2NVkFOUTinPGXyANTVNDPNHKakdcpeOqVq3a7hmLw5YvNjUUpUJtlVp1pAQs2ubjhv2zkkorQHt0o",
    "AQCppbv9SpJ1HWCeEhUDaz4ZIfCYILEbF1mGXc1v6yZAtlM_HPkpQ8Xpr3ZoMTSCKN3YhEyKzXvWy-N2qUyrX_UDXfM-ZzVgre3GEpJ9RSA",
    "AdvV_sjziw3qONA5EhX41NGmz-oq7k8SjyVHR39XACj5st0q0oOwGvJR6cRC0NWPrIzRQC8riVPkYU6Dtn_q8NiLa_h6Lo_gxterwKzG",
];

/// Maximum length: sealing is slow in a debug build, and a session is short.
const LONGEST_PLAIN: usize = 1024;

/// The position of the scope's kind in the plain text of an id.
const SCOPE_AT: usize = 10;

static SESSIONS: LazyLock<(Sessions, PurposeSeal)> =
    LazyLock::new(|| (Sessions::new(seal("session")), seal("session")));

/// A seal under the key of the targets.
pub fn seal(purpose: &str) -> PurposeSeal {
    let key = SecretKey::from_hex(&"5a".repeat(32)).expect("a key in hex");
    Seal::new(&key).for_purpose(purpose)
}

pub fn run(input: &[u8]) {
    let (sessions, seal) = &*SESSIONS;
    let id = String::from_utf8_lossy(input);
    let opened = viewers().iter().filter(|viewer| sessions.find(&id, viewer).is_some()).count();
    assert_eq!(
        opened,
        usize::from(GENUINE.contains(&id.as_ref())),
        "a forged id opens, or a genuine one does not"
    );

    if input.len() > LONGEST_PLAIN {
        return;
    }
    let id = URL_SAFE_NO_PAD.encode(seal.seal(input));
    // One viewer is enough, since the result is the same for all: the one with the scope that the plain text names.
    let viewer = &viewers()[usize::from(input.get(SCOPE_AT).copied().unwrap_or_default()) % 3];
    if let Some(session) = sessions.find(&id, viewer) {
        assert_eq!(&session.viewer, viewer);
        let again = sessions.find(&sessions.id_of(&session), viewer).expect("its own id");
        assert_eq!((again.serial, again.version), (session.serial, session.version));
        assert_eq!((&again.viewer, &again.capabilities), (&session.viewer, &session.capabilities));
        assert!(session.client_name.starts_with(&*again.client_name));
    }
}

fn viewers() -> [Viewer; 3] {
    [
        Viewer { scope: Scope::Everything, principal: None },
        Viewer { scope: Scope::Group("dev".into()), principal: Some(PrincipalId(7)) },
        Viewer { scope: Scope::Server("a".into()), principal: None },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_what_is_genuine() {
        let corpus = crate::corpus::read("session").expect("a corpus");
        assert!(GENUINE.iter().all(|text| corpus.iter().any(|input| input == text.as_bytes())));
    }
}
