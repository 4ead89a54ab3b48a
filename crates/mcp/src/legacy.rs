//! Messages of clients with a handshake: revisions 2024-11-05 to 2025-11-25. Requests that the gateway can answer
//! itself are answered here; the rest are forwarded to a server.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::batch::BatchAnswer;
use super::call::{Beside, ClientCall, RunsOn, runs_on};
use super::reply::{Message, Reply};
use super::routing::{self, Routing};
use super::session::Session;
use super::stream;
use super::{Ask, Mcp};
use budget::{BATCH_ANSWER_BYTES, BATCH_MESSAGES, Bound};
use gateway::caller::{Caller, Logs, Owner, Profile, Viewer};
use gateway::destination::is_list;
use gateway::lists::Lists;
use gateway::refusal::Refusal;
use gateway::trail::Arrival;
use model::{Capabilities, LogLevel, deep_json};
use wire::{Era, Head, MessageKind, OwnedId, Version, authored, text, walk};

/// The sender of a message, and how it may be answered.
#[derive(Clone)]
pub struct Sender {
    pub viewer: Viewer,
    /// Cancelled when the client's token is revoked.
    pub revoked: Option<CancellationToken>,
    /// `None` where the client sent a message without a session, as revision 2025-03-26 allows.
    pub session: Option<Arc<Session>>,
    pub beside: Beside,
    /// How the message arrived.
    pub arrival: Arrival,
}

/// The body of a POST, with the data from its headers.
struct Post {
    /// `None` if the client named no session, `Some(None)` if the one it named was not found.
    session: Option<Option<Arc<Session>>>,
    version: Option<String>,
    routing: Option<Arc<Routing>>,
    beside: Beside,
    viewer: Viewer,
    revoked: Option<CancellationToken>,
    body: Bytes,
    arrival: Arrival,
}

impl Mcp {
    /// Not async itself, so that the request is not kept in another future.
    pub(super) fn post(self: &Arc<Self>, ask: Ask<'_>) -> RunsOn<impl Future<Output = Reply> + use<>> {
        let post = Post {
            session: ask.session.map(|id| self.sessions.find(id, &ask.viewer)),
            version: ask.version.map(str::to_owned),
            beside: if ask.accepts_events { Beside::NewStream } else { Beside::Nowhere },
            routing: ask.routing,
            viewer: ask.viewer,
            revoked: ask.revoked,
            body: ask.body,
            arrival: self.in_session(ask.arrival, ask.session),
        };
        // Disconnecting is not cancelling: the request runs on, and its answer is dropped.
        runs_on(self.clone(), || self.clone().answer_post(post))
    }

    async fn answer_post(self: Arc<Self>, post: Post) -> Reply {
        let Post { session, version, routing, beside, viewer, revoked, body, arrival } = post;
        let is_batch = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
        let head = if is_batch { None } else { Some(Head::parse(&body)) };
        let head = match head.transpose() {
            Ok(head) => head,
            Err(error) => return Reply::unreadable(&error),
        };
        let modern = head.as_ref().and_then(|head| object_to_modern(version.as_deref(), routing, head));
        if let Some(reply) = modern {
            return reply;
        }
        let session = match session {
            Some(None) => return Reply::unknown_session(),
            Some(Some(session)) => Some(session),
            None => None,
        };
        if let Some(session) = &session {
            self.lives.touch(session.serial);
        }
        let sender = Sender { viewer, revoked, session, beside, arrival };
        match head {
            // Boxed, to keep the common future small.
            None => Box::pin(self.take_batch(&body, version.as_deref(), sender)).await,
            Some(head) => self.take(&head, &body, &sender).await.unwrap_or_else(Reply::accepted),
        }
    }

    /// Handles one message; `None` when it needs no answer.
    pub(super) async fn take(
        self: &Arc<Self>,
        head: &Head<'_>,
        body: &Bytes,
        sender: &Sender,
    ) -> Option<Reply> {
        if let Some(reply) = Reply::misspelled_method(Era::Legacy, head) {
            return Some(reply);
        }
        match head.kind {
            MessageKind::Request => self.answer_request(head, body, sender).await,
            MessageKind::Notice => {
                self.take_notice(head, body, sender).await;
                None
            }
            MessageKind::Result | MessageKind::Error => {
                if let Some(session) = &sender.session {
                    self.lives.take_answer(session.serial, head);
                }
                None
            }
        }
    }

    /// Handles several messages in one body, which only revision 2025-03-26 allows.
    async fn take_batch(self: &Arc<Self>, body: &Bytes, said: Option<&str>, mut sender: Sender) -> Reply {
        let version = match &sender.session {
            Some(session) => Some(session.version),
            None => said.and_then(Version::parse),
        };
        if version.is_some_and(|version| version != Version::V2025_03_26) {
            return Reply::invalid_message(None, "batches exist only in protocol version 2025-03-26");
        }
        // Each message has its own levels, and is refused alone if it has too many.
        let array = match walk::whole_of_any_depth(body) {
            Ok(array) => array,
            Err(error) => return Reply::unreadable(&error.into()),
        };
        let elements = walk::elements(body, &array).take(BATCH_MESSAGES + 1);
        let messages: Vec<_> = elements.map(|span| body.slice(span)).collect();
        if messages.is_empty() {
            return Reply::invalid_message(None, "a batch must have at least one message");
        }
        let budgets = self.gateway.budgets();
        if messages.len() > BATCH_MESSAGES {
            let exceeded = budgets.exceeded(Bound::BatchMessages, BATCH_MESSAGES as u64);
            return Reply::invalid_message(None, &exceeded.to_string());
        }
        // All answers are sent as one array, so no message can come before them.
        sender.beside = Beside::Nowhere;
        let mut answers = BatchAnswer::to(&messages);
        for message in &messages {
            let head = Head::parse(message);
            let reply = match &head {
                Ok(head) => match unfit_for_batch(head, &sender) {
                    Some(reply) => Some(reply),
                    None => self.take(head, message, &sender).await,
                },
                Err(error) => Some(Reply::unreadable(error)),
            };
            let id = head.as_ref().ok().and_then(|head| head.id.as_ref()).map(|id| id.raw());
            answers
                .add(message, id, reply, || budgets.exceeded(Bound::BatchAnswer, BATCH_ANSWER_BYTES as u64));
        }
        answers.into_reply()
    }

    async fn answer_request(
        self: &Arc<Self>,
        head: &Head<'_>,
        body: &Bytes,
        sender: &Sender,
    ) -> Option<Reply> {
        let id = head.id.as_ref().map(OwnedId::from).unwrap_or_default();
        if let Some(key) = head.params.as_ref().and_then(|params| params.round_key) {
            let refusal = Refusal::Invalid(format!(
                "params.{key} exists only in revision 2026-07-28, which this request does not use"
            ));
            let trail = self.trail_of_refused(&Arc::new(self.caller(sender)), head);
            return Some(Reply::refused_call(Era::Legacy, head, &refusal, &trail));
        }
        let method = head.method.as_deref().unwrap_or_default();
        if sender.viewer.scope.link().is_some() && is_list(method) {
            return self.forward_request(head, body, sender, id).await;
        }
        let result = match method {
            "initialize" => return Some(Box::pin(self.initialize(head, &id, &sender.viewer)).await),
            "ping" => Ok(Bytes::from_static(b"{}")),
            "tools/list" => self.list(head, sender, |lists| &lists.tools.result).await,
            "prompts/list" => self.list(head, sender, |lists| &lists.prompts.result).await,
            "resources/list" => self.list(head, sender, |lists| &lists.resources.result).await,
            "resources/templates/list" => self.list(head, sender, |lists| &lists.templates.result).await,
            "tasks/list" if sender.viewer.scope.server().is_none() => {
                Box::pin(self.list_tasks(head, &sender.viewer, &self.profile(sender))).await
            }
            method @ ("logging/setLevel" | "resources/subscribe" | "resources/unsubscribe") => {
                let Some(session) = &sender.session else {
                    return Some(Reply::bad_request(&needs_session(method)));
                };
                match method {
                    "logging/setLevel" => Box::pin(self.set_level(head, session)).await,
                    "resources/subscribe" => Box::pin(self.subscribe(head, session)).await,
                    _ => Box::pin(self.unsubscribe(head, session)).await,
                }
            }
            _ => return self.forward_request(head, body, sender, id).await,
        };
        Some(Reply::message(match result {
            Ok(result) => Message::result(&id, result),
            Err(refusal) => Message::refusal(Era::Legacy, &id, &refusal),
        }))
    }

    async fn forward_request(
        self: &Arc<Self>,
        head: &Head<'_>,
        body: &Bytes,
        sender: &Sender,
        id: OwnedId,
    ) -> Option<Reply> {
        let caller = Arc::new(self.caller(sender));
        let trail = self.trail(&caller, head);
        let call = ClientCall::new(caller, id, None, trail);
        self.run_call(call, head, body, &sender.beside).await
    }

    async fn initialize(&self, head: &Head<'_>, id: &[u8], viewer: &Viewer) -> Reply {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            protocol_version: String,
            #[serde(borrow)]
            capabilities: Option<&'a RawValue>,
            #[serde(borrow)]
            client_info: Option<&'a RawValue>,
        }
        let params = head.params.as_ref().map(|params| &head.body[params.span.clone()]).unwrap_or(b"{}");
        let params: Params<'_> = match serde_json::from_slice(params) {
            Ok(params) => params,
            Err(error) => {
                let refusal = Refusal::Invalid(format!("params of initialize: {error}"));
                return Reply::refusal(Era::Legacy, id, &refusal);
            }
        };
        let asked = Version::parse(&params.protocol_version).filter(|version| version.era() == Era::Legacy);
        let read = |part: Option<&RawValue>| {
            part.and_then(|part| deep_json::parse(part.get()).ok()).unwrap_or_default()
        };
        let client_info = read(params.client_info);
        let info = |key: &str| client_info.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let session = Session {
            serial: self.new_serial(),
            version: asked.unwrap_or(Version::LATEST_LEGACY),
            capabilities: Capabilities::of(&read(params.capabilities)),
            client_name: info("name").into(),
            client_version: info("version").into(),
            viewer: viewer.clone(),
        };
        let profile = session.profile().shared();
        self.prepare_greeting(viewer, &profile).await;
        let lists = match self.lists_of(viewer, &profile) {
            Ok(lists) => lists,
            Err(refusal) => return Reply::not_found(refusal.to_string()),
        };
        self.gateway.note_client(&session.client_name, &session.client_version, &viewer.scope);
        let greeting = &lists.greeting;
        let version = text::quote(session.version.as_str());
        let mut members: Vec<(&str, &[u8])> = vec![
            ("protocolVersion", &version),
            ("capabilities", greeting.capabilities(Era::Legacy)),
            ("serverInfo", &greeting.server_info),
        ];
        members.extend(greeting.instructions.as_deref().map(|instructions| ("instructions", instructions)));
        members.extend(greeting.meta.as_deref().map(|meta| ("_meta", meta)));
        let answer = authored::result(id, &authored::object(&members));
        let mut reply = Reply::message(Message::whole(answer));
        reply.session = Some(self.sessions.id_of(&session));
        reply.opened = Some(Arc::new(session));
        reply
    }

    async fn list(
        &self,
        head: &Head<'_>,
        sender: &Sender,
        pick: fn(&Lists) -> &Bytes,
    ) -> Result<Bytes, Refusal> {
        let profile = self.profile(sender);
        Ok(pick(&*self.lists_for(head, &sender.viewer, &profile).await?).clone())
    }

    /// Decides which links the requests of a sender use.
    fn profile(&self, sender: &Sender) -> Profile {
        match &sender.session {
            None => Profile {
                era: Era::Legacy,
                capabilities: Capabilities::NONE,
                owner: Some(sender.viewer.owner()),
            },
            Some(session) => {
                let profile = session.profile();
                if self.gateway.has_stateful_servers() {
                    // Creates the session's entry, so that links that it opens are closed with the session.
                    self.lives.with(session.serial, &session.viewer, &profile, |_| {});
                }
                profile
            }
        }
    }

    async fn set_level(&self, head: &Head<'_>, session: &Session) -> Result<Bytes, Refusal> {
        let level = head.params.as_ref().and_then(|params| params.level.as_ref());
        let level = level.and_then(|level| LogLevel::parse(&level.value));
        let level = level.ok_or_else(|| Refusal::Invalid("params.level must be a log level".into()))?;
        let profile = session.profile();
        self.lives.with(session.serial, &session.viewer, &profile, |live| live.level = Some(level));
        if let Some(level) = self.lives.collect(|_, live| live.level).into_iter().min() {
            self.gateway.set_log_level(level, &session.viewer, &profile).await;
        }
        Ok(Bytes::from_static(b"{}"))
    }

    async fn take_notice(&self, head: &Head<'_>, body: &Bytes, sender: &Sender) {
        let cancelled =
            head.params.as_ref().filter(|_| head.method.as_deref() == Some("notifications/cancelled"));
        if let (Some(id), Some(session)) =
            (cancelled.and_then(|params| params.request_id.as_ref()), &sender.session)
        {
            self.lives.cancel_call(session.serial, id.raw());
        }
        if sender.session.is_some() {
            self.pass_notice(head, body, &sender.viewer, &self.profile(sender)).await;
        }
    }

    fn caller(&self, sender: &Sender) -> Caller {
        let (session, profile) = (sender.session.as_ref(), self.profile(sender));
        Caller {
            viewer: sender.viewer.clone(),
            profile,
            client_name: session.map(|session| session.client_name.clone()).unwrap_or_default(),
            client_version: session.map(|session| session.client_version.clone()).unwrap_or_default(),
            version: session.map(|session| session.version),
            logs: session.and_then(|of| self.lives.level_of(of.serial)).map_or(Logs::All, Logs::From),
            revoked: sender.revoked.clone(),
            arrival: sender.arrival.clone(),
        }
    }

    /// Notes the session that a request names, if calls are traced.
    pub(super) fn in_session(&self, arrival: Arrival, id: Option<&str>) -> Arrival {
        match self.gateway.is_traced() {
            true => Arrival { session: id.map(Arc::from), ..arrival },
            false => arrival,
        }
    }

    /// Opens the stream for messages outside of any call; a second one replaces the first.
    pub(super) fn open_stream(self: &Arc<Self>, ask: &Ask<'_>) -> Reply {
        let Some(id) = ask.session else {
            return Reply::bad_request("the stream belongs to a session; send its Mcp-Session-Id");
        };
        let Some(session) = self.sessions.find(id, &ask.viewer) else { return Reply::unknown_session() };
        if !ask.accepts_events {
            return Reply::not_acceptable("this is an event stream; accept text/event-stream");
        }
        let (outlet, body) = match self.stream_slot(&session.viewer) {
            Ok(slot) => stream::open_in(&self.gateway.budgets().buffered, slot),
            Err(exceeded) => return Reply::too_many_streams(&exceeded),
        };
        let (serial, viewer, profile) = (session.serial, &session.viewer, session.profile());
        let known = self.gateway.fingerprint(viewer, &profile);
        let stream = super::live::Stream { outlet, known, listening: None };
        let replaced = self.lives.with(serial, viewer, &profile, |live| live.stream.replace(stream));
        if let Some(replaced) = replaced {
            replaced.end();
        }
        self.catch_up(serial, viewer, &profile);
        self.know_lists(serial, viewer, &profile);
        Reply::events(body)
    }

    pub(super) fn end_session(self: &Arc<Self>, ask: &Ask<'_>) -> Reply {
        let Some(id) = ask.session else {
            return Reply::bad_request("send the Mcp-Session-Id of the session to end");
        };
        let Some(session) = self.sessions.find(id, &ask.viewer) else { return Reply::unknown_session() };
        self.note_end(session.serial);
        self.release(session.serial);
        Reply::session_ended()
    }

    /// Releases everything that a session holds.
    pub(super) fn release(self: &Arc<Self>, serial: u64) {
        // Whatever a session holds, it has an entry.
        let Some(live) = self.lives.remove(serial) else { return };
        self.gateway.release_links_of(|owner| owner == Owner::Session(serial));
        let mcp = self.clone();
        self.tasks.spawn(async move { mcp.unsubscribe_all(live.subscriptions).await });
    }
}

fn needs_session(method: &str) -> String {
    format!("{method} needs a session; initialize one first")
}

/// Refuses a message that cannot be part of a batch, because its response needs more than a JSON-RPC message.
fn unfit_for_batch(head: &Head<'_>, sender: &Sender) -> Option<Reply> {
    let id = head.id.as_ref().filter(|_| head.kind == MessageKind::Request)?.raw();
    let sentence = match head.method.as_deref().unwrap_or_default() {
        _ if head.declares_version() => {
            "a request of revision 2026-07-28 cannot be part of a batch".to_owned()
        }
        "initialize" => "initialize cannot be part of a batch".to_owned(),
        method @ ("logging/setLevel" | "resources/subscribe" | "resources/unsubscribe")
            if sender.session.is_none() =>
        {
            needs_session(method)
        }
        _ => return None,
    };
    Some(Reply::invalid_message(Some(id), &sentence))
}

/// Refuses a modern request, which is one that names its version. Here its version header is missing or names a legacy
/// version, so a check always fails.
fn object_to_modern(version: Option<&str>, routing: Option<Arc<Routing>>, head: &Head<'_>) -> Option<Reply> {
    if head.kind != MessageKind::Request || !head.declares_version() {
        return None;
    }
    let objection = routing::check(version, &routing.unwrap_or_default(), head, &[]).err()?;
    Some(Reply::objection(head.id.as_ref().map(|id| id.raw()), &objection))
}
