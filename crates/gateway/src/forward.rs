//! Forwards an agent's request and all that comes back for it, as bytes: the server is removed from the name, id and
//! progress token are replaced by the link's own, and in what comes back by the caller's again. Nothing else changes if
//! both sides are of the same era. No SQL, one copy. The engine does the sending.

use std::sync::Arc;

use bytes::Bytes;

use super::Gateway;
use super::answer::{Answer, Asked, Settled};
use super::audience::Extent;
use super::caller::Caller;
use super::catalog::Entry;
use super::destination::{self, Reading, ReturnedState};
use super::disclosure::Disclosure;
use super::engine::{Call, CallRequest, Failure, Payer};
use super::lists::Caching;
use super::refusal::Refusal;
use super::shared_uris::ServerLinks;
use super::tasks::{self, TaskAccess};
use super::wording::{Passed, Wording};
use model::Mode;
use upstream::Inbound;
use wire::{Era, Head, Patch, Response};

pub use upstream::Replier;

/// A message for the caller.
pub enum Outbound {
    /// Progress or a log line, ready to be sent.
    Notice(Bytes),
    /// A request of the server to the caller; the reply goes back through the replier.
    Request { message: Bytes, replier: Replier },
    /// A modern server needs input, with which the caller then sends its request again. Nothing comes after it.
    InputRequired(Bytes),
    /// The response, ready to be sent. Nothing comes after it.
    Answer(Answer),
}

/// An agent's request in flight.
pub struct Forward {
    call: Call,
    era: Era,
    /// The caller's own id and progress token, as it wrote them.
    id: Vec<u8>,
    token: Option<Vec<u8>>,
    reads: Option<Reading>,
    reads_are_private: bool,
    /// The URIs of the server that are not unique in the caller's view.
    links: Option<Arc<ServerLinks>>,
    /// `None` in development mode.
    tasks: Option<TaskAccess>,
    disclosure: Disclosure,
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
    ) -> Result<Forward, Refusal> {
        self.check_uris(head)?;
        let mut catalog = self.catalog_for(&caller.profile);
        let mut found = destination::find(&catalog, &caller, head);
        if found.is_err() {
            // The server may list it to callers like this one. Boxed, since it is rarely needed.
            let server = destination::named_server(&caller.viewer.scope, head);
            let extent = server.as_deref().map_or(Extent::All, Extent::Server);
            Box::pin(self.prepare_lists(&caller.viewer, &caller.profile, extent)).await;
            catalog = self.catalog_for(&caller.profile);
            found = destination::find(&catalog, &caller, head);
        }
        let found = found.and_then(|destination| destination.returning(head, state));
        let destination = found.inspect_err(|_| {
            if head.method.as_deref() == Some("tools/call") {
                self.deny_call();
            }
        })?;
        let tasks = match caller.viewer.client {
            None => None,
            client => {
                let server = destination.entry.name().as_str();
                Some(TaskAccess::check(self.usage(client), server, head)?)
            }
        };
        let (revoked, client) = (caller.revoked.clone(), caller.viewer.client);
        let id = head.id.as_ref().map(|id| id.raw().to_vec()).unwrap_or_default();
        let token =
            head.meta().and_then(|meta| meta.progress_token.as_ref()).map(|token| token.raw().to_vec());
        let (era, profile) = (caller.profile.era, caller.profile.clone());
        let entry = destination.entry.clone();
        let links = self.shared_uris(&catalog, &caller.viewer, entry.name());
        let payer = Payer::of(head.method.as_deref().unwrap_or_default(), caller.viewer.client);
        let request = CallRequest {
            entry: destination.entry,
            wording: Wording::Passed(Passed { caller, message: message.clone(), edits: destination.edits }),
            profile,
            is_repeatable: destination.is_repeatable,
            revoked,
            payer,
        };
        let disclosure = self.disclosure(client);
        let begun = self.begin_call(request, destination.tool, Some(head)).await;
        let call = begun.map_err(|failure| explain(&entry, failure, disclosure))?;
        let reads_are_private = self.mode == Mode::Enterprise;
        let reads = destination.reads;
        Ok(Forward { call, era, id, token, reads, reads_are_private, links, tasks, disclosure })
    }
}

impl Gateway {
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
            match self.call.next().await {
                Ok(Inbound::Answer(answer)) => return self.finish(answer),
                Ok(Inbound::Notice(notice)) => {
                    if let Some(notice) = self.for_caller(notice) {
                        return Ok(Outbound::Notice(notice));
                    }
                }
                Ok(Inbound::Request(message)) => {
                    if let Some(replier) = self.call.replier() {
                        return Ok(Outbound::Request { message, replier });
                    }
                }
                Err(failure) => return Err(explain(self.call.entry(), failure, self.disclosure)),
            }
        }
    }

    /// The name of the server that received the request.
    pub fn server(&self) -> &str {
        self.call.entry().name().as_str()
    }

    fn finish(&mut self, mut response: Response) -> Result<Outbound, Refusal> {
        let own_tasks = self.tasks.as_ref().and_then(|tasks| tasks.respond(self.server(), &response));
        if let Some(own_tasks) = own_tasks {
            let unreadable = || Refusal::Upstream("the server's list of tasks cannot be read".into());
            response = tasks::replaced(&response, own_tasks).ok_or_else(unreadable)?;
        }
        let caching = Caching { ttl_ms: 0, is_private: self.reads_are_private };
        let asked = Asked {
            id: &self.id,
            caller: self.era,
            server: if self.call.is_modern() { Era::Modern } else { Era::Legacy },
            refused_with: self.call.refused_with(),
            reads: self.reads.as_ref().map(|reading| (reading, caching)),
            links: self.links.as_deref(),
        };
        Ok(match asked.settle(&response) {
            Settled::Answer(answer) => Outbound::Answer(answer),
            Settled::InputRequired(answer) => Outbound::InputRequired(answer),
        })
    }

    /// Counts the call as failed, since the caller cannot give what the server asks for.
    pub fn fails_because(&mut self, refusal: &Refusal) {
        self.call.fails_because(&refusal.to_string());
    }

    /// Restores the caller's own progress token in a notice; `None` if the notice is not for this caller.
    fn for_caller(&self, notice: Bytes) -> Option<Bytes> {
        let head = Head::parse(&notice).ok()?;
        if self.tasks.as_ref().is_some_and(|tasks| !tasks.admits(self.server(), &head)) {
            return None;
        }
        let token = head.params.as_ref().and_then(|params| params.progress_token.as_ref());
        let Some(token) = token else {
            drop(head);
            return Some(notice);
        };
        let mut patch = Patch::new(&notice);
        patch.replace(token.span.clone(), self.token.as_deref()?);
        Some(patch.apply())
    }
}

fn explain(entry: &Entry, failure: Failure, disclosure: Disclosure) -> Refusal {
    let error = match failure {
        Failure::Revoked => return Refusal::Revoked,
        Failure::Throttled(throttled) => return Refusal::Throttled(throttled),
        Failure::Disabled => return Refusal::Upstream("the server is disabled".into()),
        Failure::Call(error) => error,
    };
    Refusal::Upstream(disclosure.sentence(&format!("server {:?}", entry.name().as_str()), &error, entry))
}
