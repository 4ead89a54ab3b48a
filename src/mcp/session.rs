//! Sessions of legacy clients. The id is the session: what the handshake settled, sealed, so that an idle session
//! costs nothing here and a restarted gateway still knows it. Only ended ones are remembered, the last many of them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;

use crate::gateway::caller::Scope;
use crate::model::Capabilities;
use crate::seal::PurposeSeal;
use crate::wire::Version;

const REMEMBERED_ENDS: usize = 100_000;
/// Enough for the agents that talk at the same time; few enough to cost nothing.
const REMEMBERED_SESSIONS: usize = 256;
/// Longer names of clients are cut, so that an id stays short.
const LONGEST_NAME: usize = 64;

/// What a client and the gateway agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub serial: u64,
    pub version: Version,
    pub capabilities: Capabilities,
    pub client_name: String,
    pub client_version: String,
    /// Whose token it was opened with; empty where nobody is asked for one.
    pub principal: String,
    pub scope: Scope,
}

pub struct Sessions {
    seal: PurposeSeal,
    ended: Mutex<Ended>,
    /// Sessions in use, by id: opening a seal costs more than looking here.
    recent: Mutex<HashMap<Box<str>, Arc<Session>>>,
}

#[derive(Default)]
struct Ended {
    serials: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Sessions {
    pub fn new(seal: PurposeSeal) -> Self {
        Self { seal, ended: Mutex::default(), recent: Mutex::default() }
    }

    pub fn id_of(&self, session: &Session) -> String {
        URL_SAFE_NO_PAD.encode(self.seal.seal(&session.to_bytes()))
    }

    /// The session of an id, if it is one of ours, for this scope, and has not ended.
    pub fn find(&self, id: &str, scope: &Scope) -> Option<Arc<Session>> {
        let known = self.recent.lock().expect("no code panics while it holds the sessions").get(id).cloned();
        let session = known.or_else(|| self.open(id))?;
        (session.scope == *scope && !self.has_ended(session.serial)).then_some(session)
    }

    fn open(&self, id: &str) -> Option<Arc<Session>> {
        let sealed = URL_SAFE_NO_PAD.decode(id).ok()?;
        let session = Arc::new(Session::from_bytes(&self.seal.open(&sealed).ok()?)?);
        let mut recent = self.recent.lock().expect("no code panics while it holds the sessions");
        if recent.len() >= REMEMBERED_SESSIONS {
            // Those that are still in use come back by themselves.
            recent.clear();
        }
        recent.insert(id.into(), session.clone());
        Some(session)
    }

    pub fn end(&self, serial: u64) {
        let mut ended = self.ended.lock().expect("no code panics while it holds the serials");
        if ended.serials.insert(serial) {
            ended.order.push_back(serial);
        }
        if ended.order.len() > REMEMBERED_ENDS
            && let Some(oldest) = ended.order.pop_front()
        {
            ended.serials.remove(&oldest);
        }
    }

    fn has_ended(&self, serial: u64) -> bool {
        self.ended.lock().expect("no code panics while it holds the serials").serials.contains(&serial)
    }
}

pub fn new_serial() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
    u64::from_le_bytes(bytes)
}

impl Session {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&self.serial.to_le_bytes());
        let version =
            Version::SUPPORTED.iter().position(|version| *version == self.version).unwrap_or_default();
        let (scope, name) = match &self.scope {
            Scope::Everything => (0, ""),
            Scope::Group(name) => (1, name.as_str()),
            Scope::Server(name) => (2, name.as_str()),
        };
        bytes.extend_from_slice(&[version as u8, self.capabilities.bits(), scope]);
        for text in [name, &self.principal, cut(&self.client_name), cut(&self.client_version)] {
            // Names have at most 128 characters of at most 4 bytes.
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (serial, rest) = bytes.split_first_chunk()?;
        let ([version, capabilities, scope], mut rest) = rest.split_first_chunk()?;
        let mut text = || {
            let (length, after) = rest.split_first_chunk()?;
            let (text, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
            rest = after;
            String::from_utf8(text.to_vec()).ok()
        };
        let name = text()?;
        Some(Self {
            serial: u64::from_le_bytes(*serial),
            version: *Version::SUPPORTED.get(usize::from(*version))?,
            capabilities: Capabilities::from_bits(*capabilities),
            principal: text()?,
            client_name: text()?,
            client_version: text()?,
            scope: match scope {
                0 => Scope::Everything,
                1 => Scope::Group(name),
                2 => Scope::Server(name),
                _ => return None,
            },
        })
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_NAME)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{Seal, SecretKey};

    fn session(serial: u64) -> Session {
        Session {
            serial,
            version: Version::V2025_06_18,
            capabilities: Capabilities::from_bits(17),
            client_name: "claude".into(),
            client_version: "1.2.3".into(),
            principal: "agent".into(),
            scope: Scope::Group("dev".into()),
        }
    }

    #[test]
    fn an_id_is_the_whole_session() {
        let key = SecretKey::random();
        let sessions = Sessions::new(Seal::new(&key).for_purpose("session"));
        let id = sessions.id_of(&session(7));
        assert!(id.len() < 1024);
        assert_eq!(sessions.find(&id, &Scope::Group("dev".into())), Some(Arc::new(session(7))));
        let restarted = Sessions::new(Seal::new(&key).for_purpose("session"));
        assert!(restarted.find(&id, &Scope::Group("dev".into())).is_some());
        assert_eq!(sessions.find(&id, &Scope::Everything), None);
        assert_eq!(sessions.find(&id[1..], &Scope::Group("dev".into())), None);
        assert_eq!(sessions.find("", &Scope::Group("dev".into())), None);
    }

    #[test]
    fn an_ended_session_stays_ended() {
        let sessions = Sessions::new(Seal::new(&SecretKey::random()).for_purpose("session"));
        let id = sessions.id_of(&session(1));
        sessions.end(1);
        for serial in 2..1000 {
            sessions.end(serial);
        }
        assert_eq!(sessions.find(&id, &Scope::Group("dev".into())), None);
    }
}
