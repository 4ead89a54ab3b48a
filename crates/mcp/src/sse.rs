//! The older HTTP+SSE transport: one event stream per client, which begins with the address to post to and then carries
//! every answer. The session lasts as long as the stream: when it closes, its calls are cancelled.

use std::sync::Arc;

use super::call::Beside;
use super::legacy::Sender;
use super::live::{Live, Stream};
use super::reply::Reply;
use super::session::Session;
use super::stream;
use super::{Ask, Mcp};
use gateway::caller::{LinkScope, Scope};
use model::Capabilities;
use wire::{Era, Head, Version};

impl Mcp {
    pub(super) fn open_sse(self: &Arc<Self>, ask: &Ask<'_>) -> Reply {
        let viewer = ask.viewer.clone();
        let (outlet, body) = match self.stream_slot(&viewer) {
            Ok(slot) => stream::open_in(&self.gateway.budgets().buffered, slot),
            Err(exceeded) => return Reply::too_many_streams(&exceeded),
        };
        let session = Session {
            serial: self.new_serial(),
            version: Version::V2024_11_05,
            capabilities: Capabilities::NONE,
            client_name: Arc::default(),
            client_version: Arc::default(),
            viewer: viewer.clone(),
        };
        let path = match &viewer.scope {
            Scope::Everything => "/message".to_owned(),
            Scope::Group(name) => format!("/v0/groups/{name}/message"),
            Scope::Server(name) | Scope::Link(LinkScope { server: name, .. }) => {
                format!("/v0/servers/{name}/message")
            }
        };
        let address = format!("{path}?sessionId={}", self.sessions.id_of(&session));
        outlet.send_event("endpoint", address.as_bytes());
        let (serial, gone) = (session.serial, outlet.gone.clone());
        let profile = session.profile();
        self.lives.with(serial, &viewer, &profile, |live| {
            // A client can know no lists before its handshake.
            live.stream = Some(Stream { outlet, known: None, listening: None });
            live.handshake = Some(Arc::new(session));
        });
        let mcp = self.clone();
        self.tasks.spawn(async move {
            mcp.stop.run_until_cancelled(gone.cancelled()).await;
            mcp.note_end(serial);
            mcp.release(serial);
        });
        Reply::events(body)
    }

    pub(super) async fn post_message(self: &Arc<Self>, ask: Ask<'_>) -> Reply {
        let query = ask.query.unwrap_or_default();
        let id = query.split('&').find_map(|pair| pair.strip_prefix("sessionId="));
        let Some(id) = id else { return Reply::bad_request("the query parameter \"sessionId\" is required") };
        let held = self.sessions.find(id, &ask.viewer).and_then(|session| {
            let held =
                |live: &mut Live| Some((live.handshake.clone()?, live.stream.as_ref()?.outlet.clone()));
            self.lives.look(session.serial, held).flatten()
        });
        let Some((session, outlet)) = held else { return Reply::unknown_session() };
        // The stream has no message for a refused notice.
        let refused = match Head::parse(&ask.body) {
            Ok(head) if head.id.is_none() => Reply::misspelled_method(Era::Legacy, &head),
            Ok(_) => None,
            Err(error) => Some(Reply::unreadable(&error)),
        };
        if let Some(reply) = refused {
            return reply;
        }
        let serial = session.serial;
        let beside = Beside::Stream(outlet.clone());
        let (viewer, revoked) = (ask.viewer.clone(), ask.revoked.clone());
        let arrival = self.in_session(ask.arrival, Some(id));
        let sender = Sender { viewer, revoked, session: Some(session), beside, arrival };
        let (mcp, body, gone) = (self.clone(), ask.body, outlet.gone.clone());
        self.tasks.spawn(async move {
            let Ok(head) = Head::parse(&body) else { return };
            let Some(Some(mut reply)) = gone.run_until_cancelled(mcp.take(&head, &body, &sender)).await
            else {
                return;
            };
            if let Some(opened) = reply.opened.take() {
                // The handshake supplies what was unknown when the stream was opened.
                let settled = Session { serial, ..Session::clone(&opened) };
                let profile = settled.profile();
                mcp.lives.with(serial, &sender.viewer, &profile, |live| {
                    live.profile = profile.clone();
                    live.handshake = Some(Arc::new(settled));
                });
                mcp.know_lists(serial, &sender.viewer, &profile);
            }
            if let Some(message) = reply.into_message() {
                outlet.send(&message);
            }
        });
        Reply::accepted()
    }
}
