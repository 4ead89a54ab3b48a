//! Messages of clients without a handshake: revision 2026-07-28. Each request is self-contained; closing the connection
//! cancels it.

use std::sync::Arc;

use super::bridge::state::{Bond, Returned};
use super::call::{Beside, ClientCall, Round};
use super::park::Resumption;
use super::reply::{Message, Reply};
use super::routing::{self, Routing};
use super::{Ask, Mcp};
use gateway::caller::{Caller, Logs, Profile, Viewer};
use gateway::destination::is_list;
use gateway::lists::{Caching, List, Lists};
use gateway::refusal::Refusal;
use model::{Capabilities, LogLevel, deep_json};
use wire::{Era, Head, MessageKind, OwnedId, Patch, Version, authored, meta, text, walk};

/// Methods that the revision removed: answered like any unknown method, even if a server knows them.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

impl Mcp {
    pub(super) async fn post_modern(self: &Arc<Self>, ask: Ask<'_>) -> Reply {
        let head = match Head::parse(&ask.body) {
            Ok(head) => head,
            Err(error) => return Reply::unreadable(&error),
        };
        let id = head.id.as_ref().map(OwnedId::from).unwrap_or_default();
        match head.kind {
            MessageKind::Request => {}
            // Only servers may need one: a request is cancelled by closing its connection.
            MessageKind::Notice => {
                if let Some(reply) = Reply::misspelled_method(Era::Modern, &head) {
                    return reply;
                }
                // Boxed, since it is rarely needed.
                if self.gateway.needs_home(&ask.viewer, &head)
                    && let Some(reply) = Box::pin(self.serve_at_home(&ask, &id)).await
                {
                    return reply;
                }
                self.pass_notice(&head, &ask.body, &ask.viewer, &profile(&head, &ask.viewer)).await;
                return Reply::accepted();
            }
            MessageKind::Result | MessageKind::Error => {
                return Reply::invalid_message(None, "no request of a server is waiting for an answer");
            }
        }
        let misspelled = || Reply::misspelled_method(Era::Modern, &head);
        if let Some(refusal) = self.object(&ask, &head).or_else(misspelled) {
            return refusal;
        }
        if self.gateway.needs_home(&ask.viewer, &head)
            && let Some(reply) = Box::pin(self.serve_at_home(&ask, &id)).await
        {
            return reply;
        }
        let method = head.method.as_deref().unwrap_or_default();
        if ask.viewer.scope.link().is_some() && is_list(method) {
            return self.call_modern(&ask, &head, id).await;
        }
        let listed = match method {
            "server/discover" => {
                self.discover(&head, &ask.viewer).await.map(|result| Message::result(&id, result.into()))
            }
            "tools/list" => self.list_modern(&head, &ask.viewer, &id, |lists| &lists.tools).await,
            "prompts/list" => self.list_modern(&head, &ask.viewer, &id, |lists| &lists.prompts).await,
            "resources/list" => self.list_modern(&head, &ask.viewer, &id, |lists| &lists.resources).await,
            "resources/templates/list" => {
                self.list_modern(&head, &ask.viewer, &id, |lists| &lists.templates).await
            }
            "subscriptions/listen" => return self.listen(&ask, &head, id).await,
            _ if REMOVED.contains(&method) => Err(Refusal::UnknownMethod(method.to_owned())),
            _ => return self.call_modern(&ask, &head, id).await,
        };
        match listed {
            Ok(message) => Reply::message(message),
            Err(refusal) => Reply::refusal(Era::Modern, &id, &refusal),
        }
    }

    /// The refusal of a request that does not pass the checks of the revision.
    pub(super) fn object(&self, ask: &Ask<'_>, head: &Head<'_>) -> Option<Reply> {
        // Another gateway has checked it.
        if ask.is_forwarded {
            return None;
        }
        let tool = head.params.as_ref().and_then(|params| params.name.as_ref());
        let params = match tool.filter(|_| head.method.as_deref() == Some("tools/call")) {
            Some(tool) => self.gateway.header_params(&ask.viewer, &profile(head, &ask.viewer), &tool.value),
            None => Vec::new(),
        };
        let unsaid = Routing::default();
        let routing = ask.routing.as_deref().unwrap_or(&unsaid);
        let objection = routing::check(ask.version, routing, head, &params).err()?;
        let trail = self.trail_of_refused(&Arc::new(caller_of(ask, head, Logs::None)), head);
        trail.refuse(|| objection.to_string());
        trail.set_code(objection.code().into());
        Some(Reply::objection(head.id.as_ref().map(|id| id.raw()), &objection).to_call(&trail))
    }

    async fn discover(&self, head: &Head<'_>, viewer: &Viewer) -> Result<Vec<u8>, Refusal> {
        let profile = profile(head, viewer);
        self.prepare_greeting(viewer, &profile).await;
        let lists = self.lists_of(viewer, &profile)?;
        self.note_modern_client(head, viewer);
        let versions = format!("[\"{}\"]", self.versions_at(viewer.scope.link()).join("\",\""));
        let greeting = &lists.greeting;
        let mut members: Vec<(&str, &[u8])> = vec![
            ("supportedVersions", versions.as_bytes()),
            ("capabilities", greeting.capabilities(Era::Modern)),
        ];
        members.extend(greeting.instructions.as_deref().map(|text| ("instructions", text)));
        let result = authored::object(&members);
        let opening = opening(lists.caching, &greeting.server_info, greeting.meta.as_deref());
        Ok([opening.as_slice(), &result[1..]].concat())
    }

    /// Notes that the client connected, which has no message of its own in this revision.
    fn note_modern_client(&self, head: &Head<'_>, viewer: &Viewer) {
        let (name, version) = client_info(head);
        self.gateway.note_client(&name, &version, &viewer.scope);
    }

    async fn list_modern(
        &self,
        head: &Head<'_>,
        viewer: &Viewer,
        id: &[u8],
        pick: fn(&Lists) -> &List,
    ) -> Result<Message, Refusal> {
        let lists = self.lists_for(head, viewer, &profile(head, viewer)).await?;
        // Not every client begins with `server/discover`.
        self.note_modern_client(head, viewer);
        let list = pick(&lists);
        let opening = opening(list.caching, &lists.greeting.server_info, list.meta.as_deref());
        Ok(Message::result_in_two(id, &opening, list.member.clone()))
    }

    async fn call_modern(self: &Arc<Self>, ask: &Ask<'_>, head: &Head<'_>, id: OwnedId) -> Reply {
        let method = head.method.as_deref().unwrap_or_default();
        let is_known = matches!(
            method,
            "tools/call"
                | "prompts/get"
                | "resources/read"
                | "completion/complete"
                | "tasks/get"
                | "tasks/update"
                | "tasks/cancel"
        );
        if !is_known && ask.viewer.scope.server().is_none() {
            return Reply::refusal(Era::Modern, &id, &Refusal::UnknownMethod(method.to_owned()));
        }
        let bond = Bond::of(&ask.viewer, &ask.body);
        // The gateway of a link has opened the state, and seals the next one.
        let is_link = ask.viewer.scope.link().is_some();
        let returned = if is_link { Ok(None) } else { self.returned_state(head, &bond) };
        let prepared = returned.and_then(|state| Ok((state, logs(head)?)));
        let (returned, logs) = match prepared {
            Ok(prepared) => prepared,
            Err(refusal) => {
                let trail = self.trail_of_refused(&Arc::new(caller_of(ask, head, Logs::None)), head);
                return Reply::refused_call(Era::Modern, head, &refusal, &trail);
            }
        };
        let caller = caller_of(ask, head, logs);
        let beside = if ask.accepts_events { Beside::NewStream } else { Beside::Nowhere };
        let (caller, message) = (Arc::new(caller), &ask.body);
        let state = match returned {
            None => None,
            Some(Returned::Server(state)) => Some(state),
            Some(Returned::ParkedCall(parked)) => {
                if let Some(reply) = Box::pin(self.resume_elsewhere(parked.number, ask)).await {
                    return reply;
                }
                // Boxed, since it is rarely needed.
                let resumption = Resumption { caller, id, head, message, beside, bond, parked };
                return Box::pin(self.resume(resumption)).await;
            }
        };
        let next_round = head.params.as_ref().filter(|params| !is_link && params.round_key.is_some());
        let resumed = next_round.and_then(|params| {
            let state = params.request_state.as_ref().map(|state| &state.value);
            self.gateway.resume_trail(&bond.next_round(state), head.body.len())
        });
        let trail = resumed.unwrap_or_else(|| self.trail(&caller, head));
        let round = (!is_link).then(|| Round { bond, state, declared: caller.profile.capabilities.clone() });
        let call = ClientCall::new(caller, id, round, trail);
        let reply = self.run_call(call, head, message, &beside).await;
        reply.unwrap_or_else(Reply::accepted)
    }

    fn returned_state(&self, head: &Head<'_>, bond: &Bond) -> Result<Option<Returned>, Refusal> {
        let Some(params) = &head.params else { return Ok(None) };
        // A state that is not a string was not issued by the gateway either, and a lenient server might accept it.
        let is_odd = params.mistyped.contains(&"requestState");
        if params.request_state.is_none() && !is_odd {
            return Ok(None);
        }
        let state = params.request_state.as_ref().and_then(|state| self.states.unwrap(&state.value, bond));
        let foreign = || Refusal::Invalid("params.requestState was not issued for this request".into());
        state.map(Some).ok_or_else(foreign)
    }
}

fn caller_of(ask: &Ask<'_>, head: &Head<'_>, logs: Logs) -> Caller {
    Caller {
        viewer: ask.viewer.clone(),
        profile: profile(head, &ask.viewer),
        client_name: Arc::default(),
        client_version: Arc::default(),
        version: Some(Version::MODERN),
        logs,
        revoked: ask.revoked.clone(),
        arrival: ask.arrival.clone(),
    }
}

/// The profile of the client that sent a request.
pub(super) fn profile(head: &Head<'_>, viewer: &Viewer) -> Profile {
    Profile { era: Era::Modern, capabilities: declared(head), owner: Some(viewer.owner()) }
}

/// The name and version that the client gives itself in the request; empty if it gives none.
pub(super) fn client_info(head: &Head<'_>) -> (Arc<str>, Arc<str>) {
    let info = head.meta().and_then(|meta| meta.client_info.as_ref());
    let member = |key: &str| -> Arc<str> {
        let value = info.and_then(|info| walk::member(head.body, info, key));
        let value = value.and_then(|span| text::unescape(&head.body[span]));
        value.unwrap_or_default().into()
    };
    (member("name"), member("version"))
}

/// The capabilities that the client declares in the request.
fn declared(head: &Head<'_>) -> Capabilities {
    let said = head.meta().and_then(|meta| meta.client_capabilities.clone());
    let said = said.map(|said| &head.body[said]).filter(|said| *said != b"{}");
    let said = said.and_then(|said| std::str::from_utf8(said).ok());
    said.map_or(Capabilities::NONE, |said| Capabilities::of(&deep_json::parse(said).unwrap_or_default()))
}

/// The log messages that a request asks for; none by default.
fn logs(head: &Head<'_>) -> Result<Logs, Refusal> {
    let Some(level) = head.meta().and_then(|meta| meta.log_level.as_ref()) else { return Ok(Logs::None) };
    let unknown = || Refusal::Invalid(format!("{} in params._meta must be a log level", meta::LOG_LEVEL));
    LogLevel::parse(&level.value).map(Logs::From).ok_or_else(unknown)
}

/// The beginning of a result that the gateway writes itself; the other members follow. `meta` is what a server adds to
/// it.
fn opening(caching: Caching, server_info: &[u8], meta: Option<&[u8]>) -> Vec<u8> {
    let ttl = caching.ttl_ms.to_string();
    let meta = meta.unwrap_or(b"{}");
    let mut patch = Patch::new(meta);
    patch.set_member(&(0..meta.len()), meta::SERVER_INFO, server_info);
    let meta = patch.apply();
    let members: [(&str, &[u8]); 4] = [
        ("resultType", br#""complete""#),
        ("ttlMs", ttl.as_bytes()),
        ("cacheScope", caching.scope()),
        ("_meta", &meta),
    ];
    let mut opening = authored::object(&members);
    opening.pop();
    opening.push(b',');
    opening
}
