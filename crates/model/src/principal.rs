//! Who somebody is, whatever they prove it with.

/// The identity of a user or client. Credentials point to it; replacing one changes no identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrincipalId(pub u64);

impl PrincipalId {
    pub fn random() -> Self {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
        // Zero stands for nobody where ids are written down.
        Self(u64::from_le_bytes(bytes).max(1))
    }
}
