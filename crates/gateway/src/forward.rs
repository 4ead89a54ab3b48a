//! Forwards an agent's request and all that comes back for it, as bytes: the server is removed from the name, id and
//! progress token are replaced by the link's own, and in what comes back by the caller's again. Nothing else changes if
//! both sides are of the same era. No SQL, one copy. The engine does the sending.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::Gateway;
use super::answer::{Answer, Asked, Settled};
use super::audience::Extent;
use super::caller::Caller;
use super::catalog::{Catalog, Entry};
use super::destination::{self, Destination, Reading, ReturnedState, is_list};
use super::disclosure::Disclosure;
use super::ending::CalledTool;
use super::engine::{Call, CallRequest, Failure, Payer};
use super::input::InputRound;
use super::lists::Caching;
use super::question::Question;
use super::refusal::Refusal;
use super::shared_uris::ServerLinks;
use super::tasks::TaskUse;
use super::trail::Trail;
use super::wording::{Passed, Wording};
use model::Mode;
use upstream::Inbound;
use wire::{Era, Head, OwnedId, Patch, Response, walk};

pub use super::clock::Pause;

/// How many messages are kept for a caller that is not there to receive them. Further notices are dropped, and further
/// requests of the server refused.
const KEPT_MESSAGES: usize = 64;

/// A message for the caller.
pub enum Outbound {
    /// Progress or a log line, ready to be sent.
    Notice(Bytes),
    /// A request of a legacy server to the caller.
    Question(Question),
    /// A modern server needs input, with which a modern caller then sends its request again. Nothing comes after it.
    InputRequired(Bytes),
    /// A modern server needs input of a legacy caller, with which the gateway sends the request again.
    Round(InputRound),
    /// The response, ready to be sent. Nothing comes after it.
    Answer(Answer),
}

/// An agent's request in flight.
pub struct Forward {
    call: Box<Call>,
    /// What came while nobody waited for it, in order; the last may be the response or the failure.
    backlog: VecDeque<Result<Inbound, Failure>>,
    era: Era,
    /// The caller's own id and progress token, as it wrote them.
    id: OwnedId,
    token: Option<OwnedId>,
    reads: Option<Reading>,
    reads_are_private: bool,
    /// The URIs of the server that are not unique in the caller's view.
    links: Option<Arc<ServerLinks>>,
    tasks: TaskUse,
    disclosure: Disclosure,
    trail: Trail,
}

impl Gateway {
    /// Sends a caller's request to its server. `state` is what the server expects back, if the caller sends another
    /// round of an earlier request.
    pub async fn forward(
        &self,
        caller: Arc<Caller>,
        head: &Head<'_>,
        message: &Bytes,
        state: Option<ReturnedState>,
        trail: &Trail,
    ) -> Result<Forward, Refusal> {
        let begun = self.begin_forward(caller, head, message, state, trail).await;
        begun.inspect_err(|refusal| {
            self.note_asked(trail, asked_name(head).unwrap_or_default());
            trail.refused(refusal);
        })
    }

    async fn begin_forward(
        &self,
        caller: Arc<Caller>,
        head: &Head<'_>,
        message: &Bytes,
        state: Option<ReturnedState>,
        trail: &Trail,
    ) -> Result<Forward, Refusal> {
        let found = self.destination(&caller, head).await;
        let (catalog, destination) = found.inspect_err(|_| self.deny(head))?;
        let mut destination = destination.returning(head, state).inspect_err(|_| self.deny(head))?;
        let disclosure = self.disclosure(caller.viewer.principal);
        let tasks = self.task_use(&caller, destination.entry.name(), head, &mut destination.edits)?;
        if tasks.needs_same_era() {
            // Boxed, since it is rarely needed.
            Box::pin(self.check_task_era(&destination.entry, &caller.profile, disclosure)).await?;
        }
        let revoked = caller.revoked.clone();
        let (id, token) = identity(head);
        let (era, profile) = (caller.profile.era, caller.profile.clone());
        let entry = destination.entry.clone();
        let links = self.shared_uris(&catalog, &caller.viewer, entry.name());
        let method = head.method.as_deref().unwrap_or_default();
        // The gateway of a link has charged its caller, and reads lists whatever calls there are.
        let is_link = caller.viewer.scope.link().is_some();
        let payer = Payer::of(method, caller.viewer.principal).filter(|_| !is_link);
        let only_waits = tasks.only_waits() || is_link && is_list(method);
        let request = CallRequest {
            entry: destination.entry,
            wording: Wording::Passed(Passed {
                caller,
                message: message.clone(),
                edits: destination.edits,
                round: Vec::new(),
            }),
            profile,
            is_repeatable: destination.is_repeatable,
            revoked,
            payer,
            only_waits,
            trail: trail.clone(),
        };
        if destination.tool.is_none() && trail.is_recorded() {
            let read = destination.reads.as_ref().map(|reading| reading.known_as.as_str());
            let name = read.map_or_else(|| native_name(&entry, head), str::to_owned);
            trail.found(&entry, CalledTool::Unlisted(name));
        }
        trail.keep_arguments(|| arguments(head));
        let begun = self.begin_call(request, destination.tool, Some(head)).await;
        let call = begun.map_err(|failure| explain(&entry, failure, disclosure))?;
        let reads_are_private = self.mode == Mode::Enterprise;
        let reads = destination.reads;
        let backlog = VecDeque::new();
        let trail = trail.clone();
        Ok(Forward {
            call,
            backlog,
            era,
            id,
            token,
            reads,
            reads_are_private,
            links,
            tasks,
            disclosure,
            trail,
        })
    }

    /// Checks that a request still reaches this server. A call that was interrupted for input goes on only if its
    /// caller could make it now. Counts nothing.
    pub async fn reaches(&self, caller: &Caller, head: &Head<'_>, server: &str) -> Result<(), Refusal> {
        let (_, destination) = self.destination(caller, head).await?;
        match destination.entry.name().as_str() == server {
            true => Ok(()),
            false => Err(Refusal::Invalid("params.requestState belongs to another server".into())),
        }
    }

    /// The server for a caller's request, and the catalog in which it was found.
    async fn destination(
        &self,
        caller: &Caller,
        head: &Head<'_>,
    ) -> Result<(Arc<Catalog>, Destination), Refusal> {
        self.check_uris(head)?;
        let mut catalog = self.catalog_for(&caller.profile);
        let mut found = destination::find(&catalog, caller, head);
        if found.is_err() {
            // The server may list it to callers like this one. Boxed, since it is rarely needed.
            let server = destination::named_server(&caller.viewer.scope, head);
            let extent = server.as_deref().map_or(Extent::All, Extent::Server);
            Box::pin(self.prepare_lists(&caller.viewer, &caller.profile, extent)).await;
            catalog = self.catalog_for(&caller.profile);
            found = destination::find(&catalog, caller, head);
        }
        Ok((catalog, found?))
    }

    /// Counts a refused request, if it is a call.
    fn deny(&self, head: &Head<'_>) {
        if head.method.as_deref() == Some("tools/call") {
            self.deny_call();
        }
    }

    fn check_uris(&self, head: &Head<'_>) -> Result<(), Refusal> {
        let Some(params) = &head.params else { return Ok(()) };
        let reference = params.reference.as_ref().and_then(|reference| reference.uri.as_ref());
        for uri in params.uri.iter().chain(reference) {
            self.check_uri(&uri.value)?;
        }
        Ok(())
    }
}

impl Forward {
    pub async fn next(&mut self) -> Result<Outbound, Refusal> {
        loop {
            let inbound = match self.backlog.pop_front() {
                Some(inbound) => inbound,
                None => self.call.next().await,
            };
            match inbound {
                Ok(Inbound::Answer(answer)) => return self.finish(answer),
                Ok(Inbound::Notice(notice)) => {
                    if let Some(notice) = self.for_caller(notice) {
                        return Ok(Outbound::Notice(notice));
                    }
                }
                Ok(Inbound::Request(message)) => {
                    match self.tasks.adapt_question(self.call.entry().name(), message) {
                        Ok((message, task)) => {
                            if let Some(question) = self.call.question(message, task) {
                                return Ok(Outbound::Question(question));
                            }
                        }
                        Err(foreign) => self.call.refuse(&foreign),
                    }
                }
                Err(failure) => {
                    let refusal = explain(self.call.entry(), failure, self.disclosure);
                    self.trail.refused(&refusal);
                    return Err(refusal);
                }
            }
        }
    }

    /// Receives what the server sends while nobody waits for it, until the call has ended. What the call holds of the
    /// limits is then given back.
    pub async fn keep(&mut self) {
        self.call.set_parked(true);
        self.call.forget_message();
        let is_end = |inbound: &Result<Inbound, Failure>| matches!(inbound, Ok(Inbound::Answer(_)) | Err(_));
        while !self.backlog.back().is_some_and(is_end) {
            let inbound = self.call.next().await;
            match inbound {
                Ok(Inbound::Notice(_)) if self.backlog.len() >= KEPT_MESSAGES => {}
                Ok(Inbound::Request(request)) if self.backlog.len() >= KEPT_MESSAGES => {
                    self.call.refuse(&request);
                }
                inbound => self.backlog.push_back(inbound),
            }
        }
        self.call.give_back();
    }

    /// Hands the call over to another request of the same caller, which gets everything from now on.
    pub fn hand_over(&mut self, head: &Head<'_>) {
        self.call.set_parked(false);
        self.trail.mark(|| "answer");
        (self.id, self.token) = identity(head);
    }

    /// Stops the clock of the call until the caller has answered.
    pub fn pause(&mut self) -> Pause {
        self.call.pause()
    }

    /// Sends the request again with the answers to a round; they are raw results by key.
    pub fn answer_round(&mut self, round: &InputRound, answers: &[(&str, Bytes)]) {
        self.trail.mark(|| "answer");
        self.call.again(round.answered(answers));
    }

    /// The name of the server that received the request.
    pub fn server(&self) -> &str {
        self.call.entry().name().as_str()
    }

    /// Whether the server that responded is a modern one.
    pub fn is_modern(&self) -> bool {
        self.call.is_modern()
    }

    fn server_era(&self) -> Era {
        if self.call.is_modern() { Era::Modern } else { Era::Legacy }
    }

    fn finish(&mut self, mut response: Response) -> Result<Outbound, Refusal> {
        self.trail.keep_result(|| response.message().clone());
        if let Some(error) = response.error() {
            self.trail.set_code(error.code);
            self.trail.told(|| error.message.into_owned());
        }
        let server_era = self.server_era();
        if self.tasks.concerns(&response, server_era) {
            let adapted =
                self.tasks.adapt(self.call.entry().name(), self.links.as_deref(), response, server_era);
            response = adapted.inspect_err(|refusal| self.call.fails_because(&refusal.to_string()))?;
        }
        if self.era == Era::Legacy && self.call.is_modern() && response.asks_for_input() {
            let round = self.call.input_round(&response).map_err(Refusal::Upstream);
            return round.inspect_err(|refusal| self.fails_because(refusal)).map(Outbound::Round);
        }
        let caching = Caching { ttl_ms: 0, is_private: self.reads_are_private };
        let asked = Asked {
            id: &self.id,
            caller: self.era,
            server: server_era,
            refused_with: self.call.refused_with(),
            reads: self.reads.as_ref().map(|reading| (reading, caching)),
            links: self.links.as_deref(),
        };
        Ok(match asked.settle(&response) {
            Settled::Answer(answer) => {
                if let Some(fault) = answer.fault {
                    self.trail.set_code(fault.code);
                }
                Outbound::Answer(answer)
            }
            Settled::InputRequired(answer) => Outbound::InputRequired(answer),
        })
    }

    /// What is recorded of the call.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// Cancels the call at the server.
    pub fn cancel(&mut self) {
        self.call.give_back();
    }

    /// Counts the call as timed out, since the caller did not come back to it.
    pub fn is_abandoned(&mut self) {
        self.call.is_abandoned();
    }

    /// Counts the call as failed, since the caller cannot give what the server asks for.
    pub fn fails_because(&mut self, refusal: &Refusal) {
        self.trail.refused(refusal);
        self.call.fails_because(&refusal.to_string());
    }

    /// Restores the caller's own progress token and ids of tasks in a notice; `None` if the notice is not for this caller.
    fn for_caller(&self, notice: Bytes) -> Option<Bytes> {
        let head = Head::parse(&notice).ok()?;
        let mut patch = Patch::new(&notice);
        if !self.tasks.adapt_notice(&mut patch, self.call.entry().name(), &head, self.server_era()) {
            return None;
        }
        let token = head.params.as_ref().and_then(|params| params.progress_token.as_ref());
        if let Some(token) = token {
            patch.replace(token.span.clone(), self.token.as_deref()?);
        }
        if patch.is_empty() {
            drop((patch, head));
            return Some(notice);
        }
        Some(patch.apply())
    }
}

/// The name or URI that a request asks for.
pub fn asked_name<'a>(head: &'a Head<'_>) -> Option<&'a str> {
    let params = head.params.as_ref()?;
    params.name.as_ref().or(params.uri.as_ref()).map(|asked| asked.value.as_ref())
}

/// The same as the server knows it.
fn native_name(entry: &Entry, head: &Head<'_>) -> String {
    let name = asked_name(head).unwrap_or_default();
    let prefix = format!("{}__", entry.name());
    name.strip_prefix(&prefix).unwrap_or(name).to_owned()
}

/// The arguments of a call, as the caller wrote them.
fn arguments(head: &Head<'_>) -> Bytes {
    let params = head.params.as_ref().map(|params| params.span.clone());
    let arguments = params.and_then(|params| walk::member(head.body, &params, "arguments"));
    Bytes::copy_from_slice(arguments.map_or(b"", |span| &head.body[span]))
}

/// The caller's own id and progress token, as it wrote them.
fn identity(head: &Head<'_>) -> (OwnedId, Option<OwnedId>) {
    let id = head.id.as_ref().map(OwnedId::from).unwrap_or_default();
    let token = head.meta().and_then(|meta| meta.progress_token.as_ref()).map(OwnedId::from);
    (id, token)
}

fn explain(entry: &Entry, failure: Failure, disclosure: Disclosure) -> Refusal {
    let error = match failure {
        Failure::Revoked => return Refusal::Revoked,
        Failure::Throttled(throttled) => return Refusal::Throttled(throttled),
        Failure::Disabled => return Refusal::Upstream("the server is disabled".into()),
        Failure::Unanswered(error) | Failure::Call(error) => error,
    };
    Refusal::Upstream(disclosure.sentence(&format!("server {:?}", entry.name().as_str()), &error, entry))
}
