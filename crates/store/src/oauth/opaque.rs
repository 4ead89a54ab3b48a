//! Secrets that are given out: codes, refresh tokens, cookies, access tokens. All but the last are stored as a digest only. They
//! have 256 random bits, so a plain digest reveals nothing and stays valid when the secret key is replaced. Each has a checksum
//! under a key of its own, so that a guess is refused without a look-up.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::super::db::on;
use super::super::{Store, StoreError};
use super::access_tokens;
use model::Secret;
use seal::{KeyedHash, PurposeSeal, RandomPool, Seal, SecretKey};

const PURPOSE: &str = "token key";
/// The name of the key in the table, and the purpose of its hashes.
const CHECKSUM_KEY: &str = "checksum";

const RANDOM: usize = 32;
pub(super) const CHECKSUM: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpaqueKind {
    Code,
    Refresh,
    Session,
    /// The client id of software that an admin registered: no secret, but looked up for anybody.
    Client,
}

impl OpaqueKind {
    fn prefix(self) -> &'static str {
        match self {
            OpaqueKind::Code => "tgc_",
            OpaqueKind::Refresh => "tgr_",
            OpaqueKind::Session => "tgs_",
            OpaqueKind::Client => "tgo_",
        }
    }
}

/// Makes and reads what is given out.
pub struct OpaqueTokens {
    checksums: KeyedHash,
    pub(super) access: PurposeSeal,
    random: RandomPool,
}

/// A secret that is about to be given out, and what is stored of it.
pub struct NewOpaque {
    pub secret: Secret,
    pub digest: OpaqueDigest,
}

/// The digest by which a secret is stored. It exists only for one whose checksum is right.
#[derive(Clone, PartialEq, Eq)]
pub struct OpaqueDigest(String);

impl OpaqueDigest {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Store {
    /// Reads the key of the checksums, or makes one if there is none yet.
    pub async fn opaque_tokens(&self) -> Result<OpaqueTokens, StoreError> {
        const PUT: &str =
            "INSERT INTO token_keys (name, content) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
        let key = match self.checksum_key().await? {
            Some(key) => key,
            None => {
                let made = SecretKey::random().to_hex();
                let sealed = self.seal.seal(&purpose(CHECKSUM_KEY), made.as_bytes());
                let mut tx = self.write().await?;
                on!(&mut tx, |db| {
                    sqlx::query(PUT).bind(CHECKSUM_KEY).bind(sealed).execute(db).await.map(|_| ())
                })?;
                tx.commit().await?;
                // Another gateway may have been first.
                let missing = || StoreError::Corrupt("the key of checksums cannot be stored".into());
                self.checksum_key().await?.ok_or_else(missing)?
            }
        };
        let checksums = Seal::new(&key).keyed_hash(CHECKSUM_KEY);
        let access = self.seal_for(access_tokens::PURPOSE);
        Ok(OpaqueTokens { checksums, access, random: RandomPool::default() })
    }

    async fn checksum_key(&self) -> Result<Option<SecretKey>, StoreError> {
        const GET: &str = "SELECT content FROM token_keys WHERE name = $1";
        let mut tx = self.read().await?;
        let sealed: Option<Vec<u8>> =
            on!(&mut tx, |db| sqlx::query_scalar(GET).bind(CHECKSUM_KEY).fetch_optional(db).await)?;
        tx.commit().await?;
        let Some(sealed) = sealed else { return Ok(None) };
        let unreadable = || StoreError::Corrupt("the key of checksums cannot be opened".into());
        let plain = self.seal.open(&purpose(CHECKSUM_KEY), &sealed).map_err(|_| unreadable())?;
        let key = std::str::from_utf8(&plain).ok().and_then(|text| SecretKey::from_hex(text).ok());
        key.map(Some).ok_or_else(unreadable)
    }
}

impl OpaqueTokens {
    pub fn generate(&self, kind: OpaqueKind) -> NewOpaque {
        let mut bytes = Zeroizing::new([0; RANDOM + CHECKSUM]);
        let random: Zeroizing<[u8; RANDOM]> = Zeroizing::new(self.random.take());
        bytes[..RANDOM].copy_from_slice(&*random);
        bytes[RANDOM..].copy_from_slice(&self.checksum(kind.prefix(), &*random));
        let secret = Secret::new(format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(&bytes[..])));
        let digest = OpaqueDigest(digest(&[secret.expose()]));
        NewOpaque { secret, digest }
    }

    /// The digest of what was given out; `None` for anything else.
    pub fn digest(&self, kind: OpaqueKind, text: &str) -> Option<OpaqueDigest> {
        let encoded = text.strip_prefix(kind.prefix())?;
        // Nothing else has this length.
        if encoded.len() != (RANDOM + CHECKSUM) / 3 * 4 {
            return None;
        }
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(encoded).ok()?);
        let (random, checksum) = bytes.split_at_checked(RANDOM)?;
        (self.checksum(kind.prefix(), random) == checksum).then(|| OpaqueDigest(digest(&[text])))
    }

    pub(super) fn checksum(&self, prefix: &str, bytes: &[u8]) -> [u8; CHECKSUM] {
        let hash = self.checksums.of(&Zeroizing::new([prefix.as_bytes(), bytes].concat()));
        hash[..CHECKSUM].try_into().expect("a hash is longer than a checksum")
    }
}

/// The token that a form of a browser session must send: whoever does not have the cookie cannot make it.
pub fn form_token(cookie: &Secret) -> String {
    let hash = Sha256::new().chain_update("form of ").chain_update(cookie.expose()).finalize();
    URL_SAFE_NO_PAD.encode(hash)
}

/// The digest of texts, in hexadecimal digits. Their lengths are part of it, so that no two lists have the same one by
/// accident; that of a single text is plain.
pub(super) fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        if texts.len() > 1 {
            hash.update((text.len() as u64).to_le_bytes());
        }
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The purpose for which a key is sealed.
pub(in super::super) fn purpose(name: &str) -> String {
    format!("{PURPOSE} {name}")
}
