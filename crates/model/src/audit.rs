//! The audit: who changed what, and when. `store` writes the entries and chains them, so that a removed or altered one shows.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    User,
    Client,
    /// Somebody without a token: everybody in development mode.
    Anonymous,
    /// The gateway itself, a command that opens the database, or a server that changes its lists.
    System,
}

impl ActorKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ActorKind::User => "user",
            ActorKind::Client => "client",
            ActorKind::Anonymous => "anonymous",
            ActorKind::System => "system",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        use ActorKind::{Anonymous, Client, System, User};
        [User, Client, Anonymous, System].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Who changed something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Actor {
    pub kind: ActorKind,
    pub name: String,
}

/// Who changed something, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct By {
    pub actor: Actor,
    /// The IP address of the caller; `None` for the gateway itself.
    pub address: Option<String>,
}

impl By {
    pub fn user(name: impl Into<String>, address: Option<String>) -> Self {
        Self { actor: Actor { kind: ActorKind::User, name: name.into() }, address }
    }

    pub fn client(name: impl Into<String>, address: Option<String>) -> Self {
        Self { actor: Actor { kind: ActorKind::Client, name: name.into() }, address }
    }

    pub fn anonymous(address: Option<String>) -> Self {
        Self { actor: Actor { kind: ActorKind::Anonymous, name: "anonymous".to_owned() }, address }
    }

    /// The gateway itself.
    pub fn gateway() -> Self {
        Self::system("gateway")
    }

    /// A command that opens the database without a gateway.
    pub fn command_line() -> Self {
        Self::system("command line")
    }

    /// A part of the system with this name, such as a server that changes its lists.
    pub fn system(name: impl Into<String>) -> Self {
        Self { actor: Actor { kind: ActorKind::System, name: name.into() }, address: None }
    }
}

/// How something ended that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuditOutcome {
    Ok,
    /// The caller was not allowed to.
    Refused,
    Failed,
}

impl AuditOutcome {
    pub const ALL: [AuditOutcome; 3] = [AuditOutcome::Ok, AuditOutcome::Refused, AuditOutcome::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            AuditOutcome::Ok => "ok",
            AuditOutcome::Refused => "refused",
            AuditOutcome::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// What is to be noted in the audit. Secrets in `before` and `after` are masked.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditNote {
    pub at_ms: i64,
    pub by: By,
    /// `<noun>.<verb>`, such as `server.register`.
    pub action: String,
    /// What it was done to, such as the name of a server.
    pub target: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub outcome: AuditOutcome,
    /// How often it happened; 1 unless several are summed.
    pub count: u64,
}

impl AuditNote {
    /// A change that is being made.
    pub fn new(by: &By, action: impl Into<String>, target: impl Into<String>, at_ms: i64) -> Self {
        Self {
            at_ms,
            by: by.clone(),
            action: action.into(),
            target: target.into(),
            before: None,
            after: None,
            outcome: AuditOutcome::Ok,
            count: 1,
        }
    }

    pub fn before(self, before: impl Into<Value>) -> Self {
        Self { before: Some(before.into()), ..self }
    }

    pub fn after(self, after: impl Into<Value>) -> Self {
        Self { after: Some(after.into()), ..self }
    }

    pub fn outcome(self, outcome: AuditOutcome) -> Self {
        Self { outcome, ..self }
    }
}

/// An entry of the audit.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Counts from 1 without gaps.
    pub number: i64,
    pub note: AuditNote,
}

/// The length of the id of an entry: its number with leading zeros, so that ids can be sorted as texts.
const ID_LENGTH: usize = 16;

impl AuditEntry {
    pub fn id(&self) -> String {
        format!("{:0ID_LENGTH$}", self.number)
    }

    /// The number of the entry with this id.
    pub fn parse_id(id: &str) -> Option<i64> {
        let is_id = id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_digit());
        is_id.then(|| id.parse().ok()).flatten()
    }
}

/// The number and the hash of an entry, which stand for all entries up to it. Written `<number>:<hash>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditHead {
    pub number: i64,
    pub hash: [u8; 32],
}

impl AuditHead {
    pub fn parse(text: &str) -> Option<Self> {
        let (number, hex) = text.split_once(':')?;
        let number = number.parse().ok().filter(|number| *number >= 0)?;
        if hex.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
            let digit = |index: usize| char::from(digits[index]).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self { number, hash })
    }
}

impl fmt::Display for AuditHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.number)?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_as_text() {
        let head = AuditHead { number: 42, hash: std::array::from_fn(|index| index as u8 * 7) };
        assert_eq!(AuditHead::parse(&head.to_string()), Some(head));
        let zeros = "0".repeat(64);
        assert_eq!(AuditHead::parse(&format!("0:{zeros}")), Some(AuditHead::default()));
        for wrong in [
            "",
            "1",
            ":",
            &zeros,
            &format!("-1:{zeros}"),
            &format!("1:{zeros}0"),
            &format!("1:g{}", &zeros[1..]),
        ] {
            assert_eq!(AuditHead::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_sort_as_their_numbers_do() {
        let id = |number| AuditEntry { number, note: AuditNote::new(&By::gateway(), "a.b", "", 0) }.id();
        assert!(id(9) < id(10) && id(10) < id(1_000_000));
        assert_eq!(AuditEntry::parse_id(&id(10)), Some(10));
        assert_eq!(AuditEntry::parse_id("10"), None);
    }
}
