//! Encrypts data that must not be readable outside this gateway, and hashes data that must be looked up, under one key.
//! Every purpose has its own subkey, so data sealed for one purpose can never be opened for another. The callers decide
//! where the key comes from and where sealed bytes are stored.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

const KEY_LENGTH: usize = 32;
const NONCE_LENGTH: usize = 24;
/// The number of random bytes fetched at once.
const POOL_LENGTH: usize = 64 * NONCE_LENGTH;

/// The first byte of sealed data; another cipher or layout would get another number.
const VERSION: u8 = 1;

/// Makes our subkeys different from those that another program might derive from the same key.
const DERIVATION: &[u8] = b"toolgate seal 1: ";

/// The secret key of a gateway. It prints as `***` and is wiped when dropped.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; KEY_LENGTH]>);

#[derive(Debug, thiserror::Error)]
#[error("must be 64 hexadecimal characters")]
pub struct MalformedKey;

impl SecretKey {
    pub fn random() -> Self {
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        fill_random(&mut *key);
        Self(key)
    }

    pub fn from_hex(text: &str) -> Result<Self, MalformedKey> {
        if text.len() != 2 * KEY_LENGTH {
            return Err(MalformedKey);
        }
        let mut key = Zeroizing::new([0; KEY_LENGTH]);
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |index: usize| char::from(digits[index]).to_digit(16).ok_or(MalformedKey);
            *byte = (digit(0)? * 16 + digit(1)?) as u8;
        }
        Ok(Self(key))
    }

    pub fn to_hex(&self) -> Zeroizing<String> {
        // Allocated at its full size: a string that grows leaves copies behind that are not wiped.
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY_LENGTH));
        for byte in self.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("four bits are one hexadecimal digit"));
            }
        }
        text
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(other.0.iter());
        pairs.fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
    }
}

impl Eq for SecretKey {}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The data was sealed under another key or for another purpose, or was changed since.
#[derive(Debug, thiserror::Error)]
#[error("sealed data cannot be opened: wrong key, wrong purpose, or damaged data")]
pub struct UnsealError;

/// Seals under one key. While that key is being replaced, opens what is sealed under another one too.
#[derive(Clone, Debug)]
pub struct Seal {
    key: SecretKey,
    other: OtherKey,
}

/// The other key of a seal and of everything that was made from it.
#[derive(Clone, Debug, Default)]
struct OtherKey(Arc<RwLock<Option<SecretKey>>>);

impl OtherKey {
    fn get(&self) -> Option<SecretKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, key: &SecretKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
    }
}

impl Seal {
    pub fn new(key: &SecretKey) -> Self {
        Self { key: key.clone(), other: OtherKey::default() }
    }

    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// From now on, also opens what is sealed under another key. This applies to all clones, and to the seals for a purpose
    /// that were made before.
    pub fn also_open(&self, key: &SecretKey) {
        self.other.set(key);
    }

    /// A seal under the other key, if there is one.
    pub fn other(&self) -> Option<Seal> {
        self.other.get().map(|key| Seal::new(&key))
    }

    pub fn seal(&self, purpose: &str, plain: &[u8]) -> Vec<u8> {
        self.for_purpose(purpose).seal(plain)
    }

    pub fn open(&self, purpose: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        self.for_purpose(purpose).open(sealed)
    }

    /// Returns a seal with its subkey already derived, for frequent use.
    pub fn for_purpose(&self, purpose: &str) -> PurposeSeal {
        let (cipher, other) = (self.cipher(purpose), self.other.clone());
        PurposeSeal { cipher, purpose: purpose.into(), random: RandomPool::default(), other }
    }

    fn cipher(&self, purpose: &str) -> XChaCha20Poly1305 {
        let subkey = self.subkey(purpose);
        XChaCha20Poly1305::new_from_slice(&*subkey).expect("the cipher takes keys of 32 bytes")
    }

    /// Returns a hash function whose hashes cannot be made or checked without the key.
    pub fn keyed_hash(&self, purpose: &str) -> KeyedHash {
        let subkey = self.subkey(purpose);
        KeyedHash(Hmac::new_from_slice(&*subkey).expect("HMAC takes keys of any length"))
    }

    /// A short text that identifies the key without revealing it.
    pub fn fingerprint(&self) -> String {
        let hash = self.keyed_hash("key fingerprint").of(b"");
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn subkey(&self, purpose: &str) -> Zeroizing<[u8; KEY_LENGTH]> {
        let mut subkey = Zeroizing::new([0; KEY_LENGTH]);
        let derivation = Hkdf::<Sha256>::new(None, &*self.key.0);
        let derived = derivation.expand_multi_info(&[DERIVATION, purpose.as_bytes()], &mut *subkey);
        derived.expect("HKDF can derive 32 bytes");
        subkey
    }
}

/// Computes hashes for one purpose, with the subkey already derived.
#[derive(Clone)]
pub struct KeyedHash(Hmac<Sha256>);

impl KeyedHash {
    pub fn of(&self, text: &[u8]) -> [u8; 32] {
        let mut hash = self.0.clone();
        hash.update(text);
        hash.finalize().into_bytes().into()
    }
}

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Seals and opens for one purpose.
pub struct PurposeSeal {
    cipher: XChaCha20Poly1305,
    purpose: Box<str>,
    random: RandomPool,
    other: OtherKey,
}

impl PurposeSeal {
    /// Returns version, nonce and ciphertext; the same input gives different bytes every time.
    pub fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LENGTH] = self.random.take();
        let payload = Payload { msg: plain, aad: self.purpose.as_bytes() };
        let encrypted = self.cipher.encrypt(&XNonce::from(nonce), payload);
        let encrypted = encrypted.expect("only a text of 256 GB is too long for the cipher");
        let mut sealed = Vec::with_capacity(1 + NONCE_LENGTH + encrypted.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&encrypted);
        sealed
    }

    pub fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        self.open_with(&self.cipher, sealed).or_else(|error| {
            let other = self.other.get().ok_or(error)?;
            self.open_with(&Seal::new(&other).cipher(&self.purpose), sealed)
        })
    }

    fn open_with(
        &self,
        cipher: &XChaCha20Poly1305,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, UnsealError> {
        let (&version, rest) = sealed.split_first().ok_or(UnsealError)?;
        if version != VERSION {
            return Err(UnsealError);
        }
        let (nonce, encrypted) = rest.split_first_chunk::<NONCE_LENGTH>().ok_or(UnsealError)?;
        let payload = Payload { msg: encrypted, aad: self.purpose.as_bytes() };
        let plain = cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| UnsealError)?;
        Ok(Zeroizing::new(plain))
    }
}

/// A pool of random bytes from the operating system. Many are fetched at once, since each system call costs as much as
/// sealing. No byte is returned twice.
#[derive(Default)]
pub struct RandomPool(Mutex<Vec<u8>>);

impl RandomPool {
    pub fn take<const N: usize>(&self) -> [u8; N] {
        let mut pool = self.0.lock().expect("no code panics while it holds the lock");
        if pool.len() < N {
            pool.resize(POOL_LENGTH.max(N), 0);
            fill_random(&mut pool);
        }
        let rest = pool.len() - N;
        let taken = pool[rest..].try_into().expect("the slice has N bytes");
        pool.truncate(rest);
        taken
    }
}

fn fill_random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the operating system always has random bytes");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_again_and_never_looks_the_same() {
        let seal = Seal::new(&SecretKey::random());
        for plain in [&b""[..], b"x", &[7; 100_000]] {
            let sealed = seal.seal("a", plain);
            assert_eq!(*seal.open("a", &sealed).unwrap(), plain);
            assert_ne!(seal.seal("a", plain), sealed);
        }
    }

    #[test]
    fn another_key_another_purpose_or_any_change_does_not_open() {
        let seal = Seal::new(&SecretKey::random());
        let sealed = seal.seal("a", b"plain");
        assert!(seal.open("b", &sealed).is_err());
        assert!(Seal::new(&SecretKey::random()).open("a", &sealed).is_err());
        for end in 0..sealed.len() {
            assert!(seal.open("a", &sealed[..end]).is_err(), "cut at {end}");
            let mut changed = sealed.clone();
            changed[end] ^= 1;
            assert!(seal.open("a", &changed).is_err(), "changed at {end}");
        }
    }

    #[test]
    fn a_second_key_opens_too_and_nothing_is_sealed_under_it() {
        let (one, two) = (SecretKey::random(), SecretKey::random());
        let (first, second) = (Seal::new(&one), Seal::new(&two));
        let (clone, purpose) = (first.clone(), first.for_purpose("a"));
        let sealed = second.seal("a", b"plain");
        assert!(first.open("a", &sealed).is_err() && first.other().is_none());
        first.also_open(&two);
        assert_eq!(*clone.open("a", &sealed).unwrap(), b"plain");
        assert_eq!(*purpose.open(&sealed).unwrap(), b"plain");
        assert!(clone.open("b", &sealed).is_err());
        assert!(second.open("a", &clone.seal("a", b"plain")).is_err());
        assert_eq!(first.other().unwrap().fingerprint(), second.fingerprint());
        assert!(first.key() == &one && first.key() != &two);
    }

    #[test]
    fn a_key_survives_as_hex_and_does_not_print() {
        let key = SecretKey::random();
        let hex = key.to_hex();
        assert_eq!(SecretKey::from_hex(&hex.to_uppercase()).unwrap().to_hex(), hex);
        assert_eq!(
            format!("{key:?} {:?}", Seal::new(&key)),
            "*** Seal { key: ***, other: OtherKey(RwLock { data: None, poisoned: false, .. }) }"
        );
        for bad in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"ä".repeat(32)] {
            assert!(SecretKey::from_hex(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_hash_depends_on_key_and_purpose_and_stays_the_same() {
        let seal = Seal::new(&SecretKey::from_hex(&"0f".repeat(32)).unwrap());
        let hash = seal.keyed_hash("a").of(b"plain");
        assert_eq!(hash, seal.keyed_hash("a").of(b"plain"));
        assert_ne!(hash, seal.keyed_hash("a").of(b"plan"));
        assert_ne!(hash, seal.keyed_hash("b").of(b"plain"));
        assert_ne!(hash, Seal::new(&SecretKey::random()).keyed_hash("a").of(b"plain"));
        assert_eq!(hash[..4], HASHED);
    }

    #[test]
    fn the_layout_stays_readable_by_later_versions() {
        let seal = Seal::new(&SecretKey::from_hex(&"0f".repeat(32)).unwrap());
        let sealed = seal.seal("a", b"plain");
        assert_eq!((sealed[0], sealed.len()), (1, 1 + 24 + 5 + 16));
        assert_eq!(*seal.open("a", &STORED).unwrap(), b"plain");
    }

    /// Calculated with another implementation.
    const HASHED: [u8; 4] = [48, 157, 39, 240];

    /// Sealed by the first version.
    const STORED: [u8; 46] = [
        1, 213, 144, 32, 196, 116, 107, 80, 135, 38, 215, 33, 184, 14, 177, 218, 65, 115, 223, 140, 128, 241,
        216, 184, 98, 134, 181, 191, 7, 166, 200, 236, 54, 246, 52, 55, 190, 99, 196, 236, 58, 123, 241, 79,
        199, 248,
    ];
}
