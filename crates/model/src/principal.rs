//! The identity of a user or client, independent of their credentials.

/// The identity of a user or client. Credentials refer to it; replacing them does not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrincipalId(pub u64);

impl PrincipalId {
    pub fn random() -> Self {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
        // Zero is reserved: in stored ids it means nobody.
        Self(u64::from_le_bytes(bytes).max(1))
    }
}
