//! The MCP endpoints for agents, over streamable HTTP and the older HTTP+SSE, for everything, one group or one server.
//! Reading order: `endpoint` (dispatches a request), `legacy` and `modern` (handle its message in each era of the
//! protocol), `batch` (several messages in one body), `sse` (the older transport), `routing` (headers that repeat a message), `call` (a request that is forwarded
//! to a server), `park` (a call that waits for its client), `bridge` (differences between client and server), `cancel`, `session`, `live`, `listen`, `subscriptions` and `stream`
//! (state that outlives a request), `elsewhere` and `peer_links` (other gateways), `notify` (notifications outside of requests), `tasks`, `reply`, `boxed`.
//!
//! This crate does not serve HTTP itself: an [`Ask`] comes in, a [`Reply`] goes out.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod batch;
mod boxed;
pub mod bridge;
mod call;
mod cancel;
mod elsewhere;
mod endpoint;
mod legacy;
mod listen;
mod live;
mod modern;
mod notify;
mod park;
mod peer_links;
mod reply;
mod reply_head;
mod routing;
pub mod session;
mod sse;
mod stream;
mod subscriptions;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use budget::{Exceeded, Taken};
use gateway::Gateway;
use gateway::audience::Extent;
use gateway::caller::Profile;
use gateway::lists::Lists;
use gateway::refusal::Refusal;
use gateway::trail::Arrival;
use model::GrantId;
use seal::PurposeSeal;
use wire::{Era, Head, Version};

pub use boxed::boxed;
pub use elsewhere::{Alone, Forwarded, LinkAsk, Peers, Unreached};
pub use endpoint::{ClientTransport, EndpointPath};
pub use gateway::caller::{LinkScope, Scope, Viewer};
pub use reply::{Reply, ReplyBody};
pub use reply_head::{BodyKind, ReplyHead};
pub use routing::Routing;
pub use stream::{EventBody, Outlet};

use bridge::parking::Parking;
use bridge::state::States;
use live::LiveSessions;
use session::Sessions;

/// The state that all endpoints share.
pub struct Mcp {
    gateway: Arc<Gateway>,
    sessions: Sessions,
    states: States,
    parking: Parking,
    lives: Arc<LiveSessions>,
    peers: Arc<dyn Peers>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The seals for data that agents keep for the gateway, one for each kind of data.
pub struct Seals {
    pub sessions: PurposeSeal,
    pub states: PurposeSeal,
}

/// An HTTP request to an MCP endpoint, reduced to what matters here.
pub struct Ask<'a> {
    pub method: &'a str,
    pub transport: ClientTransport,
    pub viewer: Viewer,
    /// Cancelled when the client's credential ends.
    pub revoked: Option<CancellationToken>,
    /// The grant of an agent that acts for a user.
    pub grant: Option<GrantId>,
    pub session: Option<&'a str>,
    pub version: Option<&'a str>,
    /// The routing headers, which only modern clients send.
    pub routing: Option<Arc<Routing>>,
    /// Whether the client accepts an event stream as the response.
    pub accepts_events: bool,
    pub query: Option<&'a str>,
    pub body: Bytes,
    /// Whether another gateway on the same database forwarded it.
    pub is_forwarded: bool,
    /// How it arrived.
    pub arrival: Arrival,
}

impl Ask<'_> {
    /// Whether the version header alone makes it a modern request: legacy clients send only legacy versions.
    fn names_modern_version(&self) -> bool {
        let version = self.version.map(|version| Version::parse(version).map(Version::era));
        version.is_some_and(|era| era != Some(Era::Legacy))
    }

    /// The id of the session that it names.
    fn session_id(&self) -> Option<&str> {
        match self.transport {
            ClientTransport::Streamable => self.session,
            ClientTransport::Message => {
                self.query?.split('&').find_map(|pair| pair.strip_prefix("sessionId="))
            }
            ClientTransport::Sse => None,
        }
    }
}

impl Mcp {
    pub fn start(
        gateway: Arc<Gateway>,
        seals: Seals,
        peers: Arc<dyn Peers>,
        idle_limit: Option<Duration>,
    ) -> Arc<Self> {
        let mcp = Arc::new(Self {
            gateway,
            sessions: Sessions::new(seals.sessions),
            states: States::new(seals.states),
            parking: Parking::default(),
            lives: Arc::default(),
            peers,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let ended = mcp.clone();
        mcp.tasks.spawn(async move {
            for serial in ended.gateway.ended_sessions().await {
                ended.sessions.end(serial);
            }
        });
        let watch = notify::watch(mcp.clone(), idle_limit);
        let stop = mcp.stop.clone();
        mcp.tasks.spawn(async move { stop.run_until_cancelled(watch).await });
        mcp
    }

    /// The lists for a request that asks for one of them.
    async fn lists_for(
        &self,
        head: &Head<'_>,
        viewer: &Viewer,
        profile: &Profile,
    ) -> Result<Arc<Lists>, Refusal> {
        refuse_cursor(head)?;
        if !self.gateway.has_lists_for(viewer, profile, Extent::All) {
            // Boxed, since it is rarely needed.
            Box::pin(self.gateway.prepare_lists(viewer, profile, Extent::All)).await;
        }
        self.lists_of(viewer, profile)
    }

    fn lists_of(&self, viewer: &Viewer, profile: &Profile) -> Result<Arc<Lists>, Refusal> {
        let lists = self.gateway.lists(viewer, profile);
        lists.ok_or_else(|| Refusal::Invalid("this endpoint no longer exists".into()))
    }

    /// Makes sure that the endpoint of one server greets as that server greets clients like this one. Aggregated endpoints
    /// greet alike whatever their servers say.
    async fn prepare_greeting(&self, viewer: &Viewer, profile: &Profile) {
        if viewer.scope.server().is_some() && !self.gateway.has_lists_for(viewer, profile, Extent::All) {
            Box::pin(self.gateway.prepare_lists(viewer, profile, Extent::All)).await;
        }
    }

    /// Notes which lists the reader of a new stream knows. Reading them for the first time is no change of them: the
    /// stream knows none until then.
    fn know_lists(self: &Arc<Self>, serial: u64, viewer: &Viewer, profile: &Profile) {
        if self.gateway.has_lists_for(viewer, profile, Extent::Shared) {
            let now = self.gateway.fingerprint(viewer, profile);
            let stream_of =
                |live: &mut live::Live| live.stream.as_mut().map(|it| it.known = it.known.or(now));
            self.lives.look(serial, stream_of);
            return;
        }
        let changes = self.gateway.change_count();
        let known =
            self.lives.look(serial, |live| live.stream.as_mut().and_then(|stream| stream.known.take()));
        let (mcp, viewer, profile) = (self.clone(), viewer.clone(), profile.clone());
        self.tasks.spawn(async move {
            let prepare = mcp.gateway.prepare_lists(&viewer, &profile, Extent::Shared);
            mcp.stop.run_until_cancelled(prepare).await;
            let Some(now) = mcp.gateway.fingerprint(&viewer, &profile) else { return };
            // Other changes happened meanwhile, which the reader must hear of.
            let has_changed = mcp.gateway.change_count() != changes;
            mcp.lives.look(serial, |live| {
                if let Some(stream) = &mut live.stream {
                    stream.known = Some(known.flatten().filter(|_| has_changed).unwrap_or(now));
                    stream.tell_changes(now);
                }
            });
        });
    }

    /// Passes a client's notice on to the server whose endpoint it was sent to, if the gateway has no use for it itself.
    async fn pass_notice(&self, head: &Head<'_>, notice: &Bytes, viewer: &Viewer, profile: &Profile) {
        let known = ["notifications/initialized", "notifications/cancelled", "notifications/progress"];
        let is_known = known.contains(&head.method.as_deref().unwrap_or_default());
        if viewer.scope.server().is_some() && !is_known {
            // Boxed, since it is rarely needed.
            Box::pin(self.gateway.pass_notice(viewer, profile, notice)).await;
        }
    }

    /// Takes the part of a principal's budget that an open stream needs.
    fn stream_slot(&self, viewer: &Viewer) -> Result<Taken, Exceeded> {
        self.gateway.usage(viewer.principal).streams.take(1)
    }

    /// Sends a new stream the changes that happened while it was opened: the task that notifies all streams may have
    /// missed it.
    fn catch_up(&self, serial: u64, viewer: &Viewer, profile: &Profile) {
        if let Some(now) = self.gateway.fingerprint(viewer, profile) {
            self.lives.look(serial, |live| live.stream.as_mut().map(|stream| stream.tell_changes(now)));
        }
    }

    /// The number of sessions that hold something: a stream, subscriptions or a log level.
    pub fn live_sessions(&self) -> usize {
        self.lives.count()
    }

    /// Ends all streams at once. Calls in flight are left to the HTTP server that serves them.
    pub fn end_streams(&self) {
        self.stop.cancel();
        self.lives.close_all();
    }

    pub async fn stop(&self) {
        self.end_streams();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Refuses a cursor: lists are always complete, so the gateway never issued one.
fn refuse_cursor(head: &Head<'_>) -> Result<(), Refusal> {
    match head.params.as_ref().is_some_and(|params| params.cursor.is_some()) {
        true => {
            Err(Refusal::Invalid("unknown cursor: the gateway returns complete lists, without pages".into()))
        }
        false => Ok(()),
    }
}
