//! What lives in the memory of one gateway is reached through any gateway on the same database: sessions and parked calls
//! have numbers that tell which one gave them, and requests for them are forwarded there. So are requests of callers without a
//! session that need links of their own to stateful servers, which are at the caller's home. A request is forwarded once.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reply::{Reply, ReplyBody};
use super::stream::{self, Outlet};
use super::{Ask, ClientTransport, Mcp};
use gateway::caller::{LinkScope, Scope, Viewer};
use gateway::refusal::Refusal;
use gateway::trail::Arrival;
use model::{Door, GrantId, PrincipalId};
use wire::Era;

/// The bits of a number that tell which gateway gave it.
const SLOT_BITS: u32 = 12;

/// Sends requests to other gateways.
#[async_trait]
pub trait Peers: Send + Sync {
    /// Lets another gateway answer a request.
    async fn forward(&self, slot: u16, request: Forwarded) -> Result<Reply, Unreached>;
}

/// Why another gateway did not answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// It did not get the request.
    NotSent,
    /// It may have got the request.
    Lost,
}

/// A gateway without others.
pub struct Alone;

#[async_trait]
impl Peers for Alone {
    async fn forward(&self, _slot: u16, _request: Forwarded) -> Result<Reply, Unreached> {
        Err(Unreached::NotSent)
    }
}

/// A request for what another gateway holds, from a client that has been identified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarded {
    pub method: String,
    transport: u8,
    scope: u8,
    name: String,
    pub client: Option<u64>,
    /// The grant of an agent that acts for a user.
    #[serde(default)]
    grant: Option<String>,
    session: Option<String>,
    version: Option<String>,
    accepts_events: bool,
    query: Option<String>,
    /// The number of a link, if the request comes on one.
    #[serde(default)]
    link: u64,
    /// The trace that the HTTP headers name, as a `traceparent`, and the `tracestate` beside it.
    #[serde(default)]
    trace: Option<String>,
    #[serde(default)]
    trace_state: Option<String>,
    #[serde(skip)]
    pub body: Bytes,
}

/// A request on a link of this gateway to a server that another one runs.
pub struct LinkAsk<'a> {
    pub method: &'a str,
    pub session: Option<&'a str>,
    pub version: Option<&'a str>,
    pub body: Bytes,
}

impl Forwarded {
    fn of(ask: &Ask<'_>) -> Self {
        let (scope, name) = match &ask.viewer.scope {
            Scope::Everything => (0, String::new()),
            Scope::Group(name) => (1, name.clone()),
            Scope::Server(name) => (2, name.clone()),
            Scope::Link(link) => (3, link.server.clone()),
        };
        Self {
            method: ask.method.to_owned(),
            transport: match ask.transport {
                ClientTransport::Streamable => 0,
                ClientTransport::Sse => 1,
                ClientTransport::Message => 2,
            },
            scope,
            name,
            client: ask.viewer.principal.map(|principal| principal.0),
            grant: ask.grant.map(|grant| grant.to_string()),
            session: ask.session.map(str::to_owned),
            version: ask.version.map(str::to_owned),
            accepts_events: ask.accepts_events,
            query: ask.query.map(str::to_owned),
            link: ask.viewer.scope.link().map_or(0, |link| link.number),
            trace: ask.arrival.trace.map(|trace| trace.to_string()),
            trace_state: ask.arrival.trace_state.as_deref().map(str::to_owned),
            body: ask.body.clone(),
        }
    }

    /// Whether it begins something in a session: a request or a stream. Answers, notices, the end of a session and requests that
    /// resume a parked call do not.
    pub fn begins(&self) -> bool {
        let is_request = |message: &Value| message.get("method").is_some() && message.get("id").is_some();
        let is_in_session = self.session.is_some() || self.transport != 0;
        match self.method.as_str() {
            "GET" => true,
            "POST" if is_in_session => match serde_json::from_slice(&self.body) {
                Ok(Value::Array(batch)) => batch.iter().any(is_request),
                Ok(message) => is_request(&message),
                Err(_) => false,
            },
            _ => false,
        }
    }

    /// A request on a link.
    pub fn on_link(link: LinkScope, request: LinkAsk<'_>) -> Self {
        Self::of(&Ask {
            method: request.method,
            transport: ClientTransport::Streamable,
            viewer: Viewer { scope: Scope::Link(link), principal: None },
            revoked: None,
            grant: None,
            session: request.session,
            version: request.version,
            routing: None,
            accepts_events: true,
            query: None,
            body: request.body,
            is_forwarded: false,
            arrival: Arrival::now(Door::Mcp, None),
        })
    }
}

impl Mcp {
    /// A number for something that only this gateway knows.
    pub(super) fn new_serial(&self) -> u64 {
        let random = self.sessions.new_serial();
        match self.gateway.slot() {
            0 => random,
            slot => u64::from(slot) << (u64::BITS - SLOT_BITS) | random >> SLOT_BITS,
        }
    }

    /// Notes that a session has ended, here and for the gateways that come after this one.
    pub(super) fn note_end(&self, serial: u64) {
        self.sessions.end(serial);
        self.gateway.share_session_end(serial);
    }

    /// The gateway that gave a number, if it was another one.
    fn other_owner(&self, serial: u64) -> Option<u16> {
        let own = self.gateway.slot();
        let slot = (serial >> (u64::BITS - SLOT_BITS)) as u16;
        (own != 0 && slot != own).then_some(slot)
    }

    /// Lets the gateway that holds the session of a request answer it. `None` if that is this one.
    pub(super) async fn serve_elsewhere(&self, ask: &Ask<'_>) -> Option<Reply> {
        if ask.is_forwarded || self.gateway.slot() == 0 {
            return None;
        }
        let session = self.sessions.find(ask.session_id()?, &ask.viewer)?;
        let slot = self.other_owner(session.serial)?;
        Some(self.forward(slot, ask).await.unwrap_or_else(Reply::unknown_session))
    }

    /// Lets the gateway that holds a parked call answer the request of a client that comes back to it. `None` if that is this
    /// one, or cannot be reached.
    pub(super) async fn resume_elsewhere(&self, number: u64, ask: &Ask<'_>) -> Option<Reply> {
        if ask.is_forwarded {
            return None;
        }
        self.forward(self.other_owner(number)?, ask).await
    }

    /// Lets the gateway answer that has the caller's links to stateful servers, if the request needs them. `None` if that is
    /// this one.
    pub(super) async fn serve_at_home(&self, ask: &Ask<'_>, id: &[u8]) -> Option<Reply> {
        let owner = ask.viewer.owner();
        let mut slot = self.gateway.home_elsewhere(owner).await?;
        // Twice: a home that has stopped did not get the request, and the caller may have a new one.
        for _ in 0..2 {
            if ask.is_forwarded {
                break;
            }
            match self.peers.forward(slot, Forwarded::of(ask)).await {
                Ok(reply) => return Some(reply),
                Err(Unreached::Lost) => break,
                Err(Unreached::NotSent) => self.gateway.doubt_home(owner),
            }
            slot = self.gateway.home_elsewhere(owner).await?;
        }
        self.gateway.doubt_home(owner);
        let sentence = "the gateway that has this client's sessions with stateful servers cannot be reached; try \
                        again in some seconds";
        Some(Reply::refusal(Era::Modern, id, &Refusal::Upstream(sentence.into())))
    }

    async fn forward(&self, slot: u16, ask: &Ask<'_>) -> Option<Reply> {
        self.peers.forward(slot, Forwarded::of(ask)).await.ok()
    }

    /// Answers a request that another gateway forwarded.
    pub async fn serve_forwarded(self: &Arc<Self>, request: Forwarded) -> Reply {
        let scope = match request.scope {
            0 => Scope::Everything,
            1 => Scope::Group(request.name),
            2 => Scope::Server(request.name),
            3 => Scope::Link(LinkScope { server: request.name, number: request.link }),
            _ => return Reply::bad_request("unknown scope"),
        };
        let transport = match request.transport {
            0 => ClientTransport::Streamable,
            2 => ClientTransport::Message,
            _ => return Reply::bad_request("unknown transport"),
        };
        let principal = request.client.map(PrincipalId);
        let catalog = self.gateway.catalog();
        let known = principal.and_then(|principal| catalog.principals().by_id(principal));
        // Its token was revoked meanwhile.
        if known.is_none() && principal.is_some() {
            return Reply::unknown_session();
        }
        let grant = request.grant.as_deref().and_then(GrantId::parse);
        let revoked = match grant {
            Some(grant) => match self.gateway.grant_ends(grant).await {
                Ok(Some(ends)) => Some(ends),
                Ok(None) | Err(_) => return Reply::unknown_session(),
            },
            None => known.map(|principal| principal.revoked().clone()),
        };
        let ask = Ask {
            method: &request.method,
            transport,
            viewer: Viewer { scope, principal },
            revoked,
            grant,
            session: request.session.as_deref(),
            version: request.version.as_deref(),
            routing: None,
            accepts_events: request.accepts_events,
            query: request.query.as_deref(),
            body: request.body,
            is_forwarded: true,
            arrival: Arrival::now(transport.door(), known.cloned())
                .in_trace(request.trace.as_deref(), request.trace_state.as_deref()),
        };
        if let Some(link) = ask.viewer.scope.link()
            && let Some(reply) = self.serve_link(&ask, link).await
        {
            return reply;
        }
        self.serve(ask).await
    }

    /// Opens an event stream whose events come from another gateway.
    pub fn open_forwarded(&self) -> (Outlet, ReplyBody) {
        let (outlet, body) = stream::open(&self.gateway.budgets().buffered);
        (outlet, ReplyBody::Events(Box::new(body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(method: &str, session: Option<&str>, body: &'static str) -> Forwarded {
        let (session, body) = (session.map(str::to_owned), Bytes::from(body));
        Forwarded {
            method: method.to_owned(),
            transport: 0,
            scope: 0,
            name: String::new(),
            client: None,
            grant: None,
            session,
            version: None,
            link: 0,
            trace: None,
            trace_state: None,
            accepts_events: true,
            query: None,
            body,
        }
    }

    #[test]
    fn requests_and_streams_of_a_session_begin_something() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let notice = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let batch = r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
        for (method, body, begins) in [
            ("GET", "", true),
            ("POST", request, true),
            ("POST", batch, true),
            ("POST", notice, false),
            ("POST", answer, false),
            ("POST", "[]", false),
            ("POST", "not JSON", false),
            ("DELETE", "", false),
        ] {
            assert_eq!(forwarded(method, Some("s"), body).begins(), begins, "{method} {body}");
        }
        assert!(!forwarded("POST", None, request).begins(), "it resumes a parked call");
        let message = Forwarded { transport: 2, ..forwarded("POST", None, request) };
        assert!(message.begins());
    }
}
