//! The chain of the audit: a hash of each entry and the one before it, under a key of its own. The key is sealed in the
//! database, so that another secret key changes no hash.

use crate::StoreError;
use model::{AuditEntry, AuditHead};
use seal::{KeyedHash, PurposeSeal, Seal, SecretKey};

/// The purpose for which the key of the chain is sealed.
const KEY_PURPOSE: &str = "audit key";
/// The purpose for which `before` and `after` of all entries are sealed. An entry with those of another one has a wrong hash.
const VALUE_PURPOSE: &str = "audit value";

const HASHED_FOR: &str = "audit chain";
/// The first part of what is hashed, so that a hash of one kind never passes as one of the other.
const ENTRY: &[u8] = b"entry";
const ANCHOR: &[u8] = b"anchor";

pub(crate) fn key_purpose(_name: &str) -> String {
    KEY_PURPOSE.to_owned()
}

pub(crate) fn value_purpose(_first: &str) -> String {
    VALUE_PURPOSE.to_owned()
}

/// Seals and opens `before` and `after`.
pub(super) fn values(seal: &Seal) -> PurposeSeal {
    seal.for_purpose(VALUE_PURPOSE)
}

/// Computes the hashes of the chain.
pub(super) struct Chain(KeyedHash);

impl Chain {
    /// A new key, sealed.
    pub(super) fn new_key(seal: &Seal) -> Vec<u8> {
        seal.seal(KEY_PURPOSE, SecretKey::random().to_hex().as_bytes())
    }

    pub(super) fn open(seal: &Seal, sealed: &[u8]) -> Result<Self, StoreError> {
        let damaged = || StoreError::Corrupt("the key of the audit cannot be opened".into());
        let plain = seal.open(KEY_PURPOSE, sealed).map_err(|_| damaged())?;
        let key = std::str::from_utf8(&plain).ok().and_then(|hex| SecretKey::from_hex(hex).ok());
        let key = key.ok_or_else(damaged)?;
        Ok(Self(Seal::new(&key).keyed_hash(HASHED_FOR)))
    }

    /// The hash of an entry that follows another one. `before` and `after` are JSON, or empty.
    pub(super) fn hash(&self, last: &[u8], entry: &AuditEntry, before: &[u8], after: &[u8]) -> [u8; 32] {
        let AuditEntry { number, note } = entry;
        let address = match &note.by.address {
            Some(address) => [&b"+"[..], address.as_bytes()].concat(),
            None => Vec::new(),
        };
        self.of(&[
            ENTRY,
            last,
            &number.to_be_bytes(),
            &note.at_ms.to_be_bytes(),
            note.by.actor.kind.as_str().as_bytes(),
            note.by.actor.name.as_bytes(),
            note.action.as_bytes(),
            note.target.as_bytes(),
            before,
            after,
            note.outcome.as_str().as_bytes(),
            &address,
            &note.count.to_be_bytes(),
        ])
    }

    /// Proves that a gateway deleted all entries up to this one.
    pub(super) fn proof(&self, anchor: &AuditHead) -> [u8; 32] {
        self.of(&[ANCHOR, &anchor.number.to_be_bytes(), &anchor.hash])
    }

    /// Hashes parts, each after its length, so that no part can pass as a piece of another one.
    fn of(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut text = Vec::with_capacity(parts.iter().map(|part| 8 + part.len()).sum());
        for part in parts {
            text.extend_from_slice(&(part.len() as u64).to_be_bytes());
            text.extend_from_slice(part);
        }
        self.0.of(&text)
    }
}
