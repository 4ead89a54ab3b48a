//! Sessions of legacy clients. The id is the session: it contains the sealed result of the handshake, so that an idle
//! session uses no memory and a restarted gateway still knows it. Only ended sessions are remembered, up to a limit.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, RwLock};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use foldhash::fast::RandomState;

use gateway::caller::{LinkScope, Owner, Profile, Scope, Viewer};
use model::{Capabilities, PrincipalId, deep_json};
use seal::{PurposeSeal, RandomPool};
use wire::{Era, Version};

const REMEMBERED_ENDS: usize = 100_000;
/// The size of the cache: enough for the agents that are active at the same time, and still small.
const REMEMBERED_SESSIONS: usize = 1024;
/// Longer names of clients are cut, so that an id stays short.
const LONGEST_NAME: usize = 64;
/// A longer declaration of capabilities is kept in memory; the id has only its hash.
const LONGEST_DECLARATION: usize = 400;
const REMEMBERED_DECLARATIONS: usize = 256;
/// Stands for no client in an id.
const NOBODY: u64 = 0;

/// What a client and the gateway agreed on in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub serial: u64,
    pub version: Version,
    pub capabilities: Capabilities,
    pub client_name: Arc<str>,
    pub client_version: Arc<str>,
    /// Who opened it and through which endpoint; it is valid for no other client and no other endpoint.
    pub viewer: Viewer,
}

impl Session {
    /// Decides which links to servers its requests use.
    pub fn profile(&self) -> Profile {
        Profile {
            era: Era::Legacy,
            capabilities: self.capabilities.clone(),
            owner: Some(Owner::Session(self.serial)),
        }
    }
}

pub struct Sessions {
    seal: PurposeSeal,
    random: RandomPool,
    ended: RwLock<EndedSessions>,
    /// A cache of sessions in use, by id: opening a seal costs more than a lookup.
    recent: RwLock<HashMap<Box<str>, Arc<Session>, RandomState>>,
    /// Declarations of capabilities that are too long for an id, by their hash.
    declarations: RwLock<HashMap<u64, Capabilities>>,
}

#[derive(Default)]
struct EndedSessions {
    serials: HashSet<u64, RandomState>,
    order: VecDeque<u64>,
}

impl Sessions {
    pub fn new(seal: PurposeSeal) -> Self {
        Self {
            seal,
            random: RandomPool::default(),
            ended: RwLock::default(),
            recent: RwLock::default(),
            declarations: RwLock::default(),
        }
    }

    pub fn new_serial(&self) -> u64 {
        u64::from_le_bytes(self.random.take())
    }

    pub fn id_of(&self, session: &Session) -> String {
        let declaration = session.capabilities.declaration();
        if let Some(declaration) = declaration.filter(|text| text.len() > LONGEST_DECLARATION) {
            let mut kept = self.declarations.write().expect("no code panics while it holds the declarations");
            if kept.len() >= REMEMBERED_DECLARATIONS {
                kept.clear();
            }
            kept.insert(hash(declaration), session.capabilities.clone());
        }
        URL_SAFE_NO_PAD.encode(self.seal.seal(&session.to_bytes()))
    }

    /// The session of an id, if the gateway issued it to this viewer and it has not ended.
    pub fn find(&self, id: &str, viewer: &Viewer) -> Option<Arc<Session>> {
        let known = self.recent.read().expect("no code panics while it holds the sessions").get(id).cloned();
        let session = known.or_else(|| self.open(id))?;
        (session.viewer == *viewer && !self.has_ended(session.serial)).then_some(session)
    }

    fn open(&self, id: &str) -> Option<Arc<Session>> {
        let sealed = URL_SAFE_NO_PAD.decode(id).ok()?;
        let (mut session, declaration) = Session::from_bytes(&self.seal.open(&sealed).ok()?)?;
        if let Some(declaration) = declaration {
            let kept = self.declarations.read().expect("no code panics while it holds the declarations");
            // After a restart, only the known capabilities are left.
            session.capabilities = kept.get(&declaration).cloned().unwrap_or(session.capabilities);
        }
        let session = Arc::new(session);
        let mut recent = self.recent.write().expect("no code panics while it holds the sessions");
        if recent.len() >= REMEMBERED_SESSIONS {
            // Those that are still in use are cached again when they are used.
            recent.clear();
        }
        recent.insert(id.into(), session.clone());
        Some(session)
    }

    pub fn end(&self, serial: u64) {
        let mut ended = self.ended.write().expect("no code panics while it holds the serials");
        if ended.serials.insert(serial) {
            ended.order.push_back(serial);
        }
        if ended.order.len() > REMEMBERED_ENDS
            && let Some(oldest) = ended.order.pop_front()
        {
            ended.serials.remove(&oldest);
        }
    }

    pub fn has_ended(&self, serial: u64) -> bool {
        self.ended.read().expect("no code panics while it holds the serials").serials.contains(&serial)
    }
}

impl Session {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend_from_slice(&self.serial.to_le_bytes());
        let version =
            Version::SUPPORTED.iter().position(|version| *version == self.version).unwrap_or_default();
        let (scope, name) = match &self.viewer.scope {
            Scope::Everything => (0, ""),
            Scope::Group(name) => (1, name.as_str()),
            Scope::Server(name) => (2, name.as_str()),
            Scope::Link(link) => (3, link.server.as_str()),
        };
        bytes.extend_from_slice(&[version as u8, self.capabilities.bits(), scope]);
        // A link of another gateway is no client.
        let number = self.viewer.scope.link().map(|link| link.number);
        let client = number.or(self.viewer.principal.map(|client| client.0)).unwrap_or(NOBODY);
        bytes.extend_from_slice(&client.to_le_bytes());
        let declaration = self.capabilities.declaration().map_or("", |text| text);
        let (short, long) = match declaration.len() <= LONGEST_DECLARATION {
            true => (declaration, None),
            false => ("", Some(hash(declaration))),
        };
        for text in [name, cut(&self.client_name), cut(&self.client_version), short] {
            bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend(long.into_iter().flat_map(u64::to_le_bytes));
        bytes
    }

    /// Reads a session, and the hash of its declaration of capabilities if that is not part of the id.
    fn from_bytes(bytes: &[u8]) -> Option<(Self, Option<u64>)> {
        let (serial, rest) = bytes.split_first_chunk()?;
        let ([version, capabilities, scope], rest) = rest.split_first_chunk()?;
        let (client, mut rest) = rest.split_first_chunk()?;
        let number = u64::from_le_bytes(*client);
        let client = Some(number).filter(|client| *client != NOBODY && *scope != 3).map(PrincipalId);
        let mut text = || {
            let (length, after) = rest.split_first_chunk()?;
            let (text, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
            rest = after;
            String::from_utf8(text.to_vec()).ok()
        };
        let name = text()?;
        let scope = match scope {
            0 => Scope::Everything,
            1 => Scope::Group(name),
            2 => Scope::Server(name),
            3 => Scope::Link(LinkScope { server: name, number }),
            _ => return None,
        };
        let (client_name, client_version) = (text()?, text()?);
        // Ids from before declarations were part of them end here.
        let declaration = text().filter(|text| !text.is_empty());
        let declared = declaration.and_then(|text| deep_json::parse(&text).ok());
        let session = Self {
            serial: u64::from_le_bytes(*serial),
            version: *Version::SUPPORTED.get(usize::from(*version))?,
            capabilities: declared
                .map_or_else(|| Capabilities::from_bits(*capabilities), |value| Capabilities::of(&value)),
            client_name: client_name.into(),
            client_version: client_version.into(),
            viewer: Viewer { scope, principal: client },
        };
        Some((session, rest.split_first_chunk().map(|(hash, _)| u64::from_le_bytes(*hash))))
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_NAME)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use seal::{Seal, SecretKey};

    fn viewer(client: u64) -> Viewer {
        Viewer { scope: Scope::Group("dev".into()), principal: Some(PrincipalId(client)) }
    }

    fn session(serial: u64) -> Session {
        Session {
            serial,
            version: Version::V2025_06_18,
            capabilities: Capabilities::from_bits(17),
            client_name: "claude".into(),
            client_version: "1.2.3".into(),
            viewer: viewer(7),
        }
    }

    #[test]
    fn an_id_is_the_whole_session() {
        let key = SecretKey::random();
        let sessions = Sessions::new(Seal::new(&key).for_purpose("session"));
        let id = sessions.id_of(&session(7));
        assert!(id.len() < 1024);
        assert_eq!(sessions.find(&id, &viewer(7)), Some(Arc::new(session(7))));
        let restarted = Sessions::new(Seal::new(&key).for_purpose("session"));
        assert!(restarted.find(&id, &viewer(7)).is_some());
        assert_eq!(sessions.find(&id, &viewer(8)), None);
        for foreign in
            [Viewer { scope: Scope::Everything, ..viewer(7) }, Viewer { principal: None, ..viewer(7) }]
        {
            assert_eq!(sessions.find(&id, &foreign), None);
        }
        assert_eq!(sessions.find(&id[1..], &viewer(7)), None);
        assert_eq!(sessions.find("", &viewer(7)), None);
    }

    #[test]
    fn a_session_of_a_link_belongs_to_that_link() {
        let sessions = Sessions::new(Seal::new(&SecretKey::random()).for_purpose("session"));
        let link = |number| {
            let scope = Scope::Link(LinkScope { server: "s".into(), number });
            Viewer { scope, principal: None }
        };
        let id = sessions.id_of(&Session { viewer: link(7), ..session(1) });
        assert_eq!(sessions.find(&id, &link(7)).map(|found| found.viewer.clone()), Some(link(7)));
        let server = Viewer { scope: Scope::Server("s".into()), principal: Some(PrincipalId(7)) };
        assert!(sessions.find(&id, &link(8)).is_none() && sessions.find(&id, &server).is_none());
    }

    #[test]
    fn an_id_has_the_whole_declaration_of_capabilities() {
        let key = SecretKey::random();
        let sessions = Sessions::new(Seal::new(&key).for_purpose("session"));
        for length in [1, 300, 3000] {
            let declared = serde_json::json!({"roots": {}, "extensions": {"x": {"y": "z".repeat(length)}}});
            let session = Session { capabilities: Capabilities::of(&declared), ..session(length as u64) };
            let id = sessions.id_of(&session);
            assert!(id.len() <= 1024);
            assert_eq!(sessions.find(&id, &viewer(7)).as_deref(), Some(&session));
            let restarted = Sessions::new(Seal::new(&key).for_purpose("session"));
            let found = restarted.find(&id, &viewer(7)).unwrap();
            match length > LONGEST_DECLARATION {
                true => assert_eq!(found.capabilities, Capabilities::from_bits(1)),
                false => assert_eq!(*found, session),
            }
        }
    }

    #[test]
    fn an_ended_session_stays_ended() {
        let sessions = Sessions::new(Seal::new(&SecretKey::random()).for_purpose("session"));
        let id = sessions.id_of(&session(1));
        sessions.end(1);
        for serial in 2..1000 {
            sessions.end(serial);
        }
        assert_eq!(sessions.find(&id, &viewer(7)), None);
    }
}
