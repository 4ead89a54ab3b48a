//! A signed JSON Web Token in its compact form, read but not verified: `KeySet::verifies` checks its signature, and
//! `claims` what it says.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

const LARGEST_TOKEN: usize = 16 * 1024;

pub struct SignedJwt<'a> {
    pub algorithm: SigningAlgorithm,
    pub key_id: Option<String>,
    /// The `typ` of the header, in lower case and without `application/`.
    pub media_type: Option<String>,
    pub claims: Members,
    /// What is signed.
    pub message: &'a [u8],
    pub signature: Vec<u8>,
}

/// The algorithms that are accepted. `none` and those with shared secrets never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningAlgorithm {
    Rs256,
    Es256,
    EdDsa,
}

/// The members of a JSON object, each of which occurs once.
pub struct Members(HashMap<String, Value>);

impl SigningAlgorithm {
    pub const ALL: [SigningAlgorithm; 3] =
        [SigningAlgorithm::Rs256, SigningAlgorithm::Es256, SigningAlgorithm::EdDsa];

    /// Its name in headers and metadata.
    pub fn name(self) -> &'static str {
        match self {
            SigningAlgorithm::Rs256 => "RS256",
            SigningAlgorithm::Es256 => "ES256",
            SigningAlgorithm::EdDsa => "EdDSA",
        }
    }
}

impl<'a> SignedJwt<'a> {
    /// Reads a token. The error is a sentence fragment that never contains a part of it.
    pub fn parse(token: &'a [u8]) -> Result<Self, String> {
        if token.len() > LARGEST_TOKEN {
            return Err(format!("has more than {} KiB", LARGEST_TOKEN / 1024));
        }
        let parts: Vec<&[u8]> = token.splitn(4, |byte| *byte == b'.').collect();
        let [header, claims, signature] = parts[..] else {
            return Err("does not consist of three parts".into());
        };
        let message = &token[..header.len() + 1 + claims.len()];
        let header = members(header).ok_or("has a header that is not valid")?;
        let claims = members(claims).ok_or("has claims that are not valid")?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| "has a signature that is not valid")?;
        // A critical extension must be understood, and none is. `b64` changes what is signed.
        if header.has("crit") || header.has("b64") {
            return Err("requires an extension that is not supported".into());
        }
        let named = |wanted: &SigningAlgorithm| header.text("alg") == Some(wanted.name());
        let algorithm = SigningAlgorithm::ALL.into_iter().find(named);
        let algorithm = algorithm.ok_or("is not signed with RS256, ES256 or EdDSA")?;
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err("has a key id that is not a text".into()),
        };
        let media_type = match header.get("typ") {
            None => None,
            Some(Value::String(name)) => {
                let name = name.to_ascii_lowercase();
                Some(name.strip_prefix("application/").map(str::to_owned).unwrap_or(name))
            }
            Some(_) => return Err("has a type that is not a text".into()),
        };
        Ok(Self { algorithm, key_id, media_type, claims, message, signature })
    }
}

impl Members {
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }
}

fn members(part: &[u8]) -> Option<Members> {
    Members::parse(&URL_SAFE_NO_PAD.decode(part).ok()?)
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = HashMap::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            match members.entry(name) {
                // Two programs could take different ones.
                Entry::Occupied(_) => return Err(Error::custom("a member occurs twice")),
                Entry::Vacant(place) => place.insert(value),
            };
        }
        Ok(Members(members))
    }
}
