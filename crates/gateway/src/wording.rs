//! The content of a request: an agent's own message that is passed on, or one that the gateway writes. It is written
//! again for each link on which it is sent.

use std::sync::Arc;

use bytes::Bytes;

use super::caller::{Caller, Logs, Scope};
use super::destination::is_list;
use upstream::{Additions, CallError, Exchange, Link, LinkRequest, OnBehalf, Purpose};
use wire::{Era, Head, Span};

/// The content of a request; how it is written depends on the link.
pub enum Wording {
    /// An agent's own message, which is passed on.
    Passed(Passed),
    /// A request that the gateway writes.
    Authored(Authored),
}

impl Wording {
    /// Sets the members of `params` with which a modern server gets the request again, after it asked for input.
    pub fn set_round(&mut self, members: Vec<(&'static str, Vec<u8>)>) {
        match self {
            Wording::Passed(passed) => passed.round = members,
            Wording::Authored(authored) => authored.round = members,
        }
    }

    /// Drops the content of a request that is never sent again.
    pub fn forget(&mut self) {
        if let Wording::Passed(passed) = self {
            passed.message = Bytes::new();
        }
    }

    /// Sends the request on a link. `head` is the head of the passed message, if it is already parsed. `trace` are the
    /// members of `_meta` that name the trace of the call; none if it is not traced.
    pub async fn send(
        &self,
        link: &Arc<Link>,
        head: Option<&Head<'_>>,
        trace: &[(&'static str, Vec<u8>)],
    ) -> Result<Exchange, CallError> {
        match self {
            Wording::Passed(passed) => passed.send(link, head, trace).await,
            Wording::Authored(authored) => authored.send(link, trace).await,
        }
    }
}

/// An agent's own message, with what is needed to pass it on.
pub struct Passed {
    pub caller: Arc<Caller>,
    pub message: Bytes,
    /// Parts of the message to be replaced by the server's own names.
    pub edits: Vec<(Span, Vec<u8>)>,
    /// The input that a modern server asked for, as members of `params`; for callers that cannot send it themselves.
    pub round: Vec<(&'static str, Vec<u8>)>,
}

impl Passed {
    async fn send(
        &self,
        link: &Arc<Link>,
        head: Option<&Head<'_>>,
        trace: &[(&'static str, Vec<u8>)],
    ) -> Result<Exchange, CallError> {
        let parsed;
        let head = match head {
            Some(head) => head,
            None => {
                parsed = Head::parse(&self.message)
                    .map_err(|error| CallError::NotSent(format!("the request cannot be parsed: {error}")))?;
                &parsed
            }
        };
        let caller = &self.caller;
        let behalf = match caller.profile.era {
            Era::Modern => {
                if let Some(level) = caller.logs.level() {
                    link.raise_level(level).await;
                }
                OnBehalf::Modern
            }
            Era::Legacy => OnBehalf::Legacy {
                capabilities: &caller.profile.capabilities,
                client_name: &caller.client_name,
                client_version: &caller.client_version,
                log_level: caller.logs.level(),
            },
        };
        let purpose = match caller.viewer.scope {
            // Not for a caller: the gateway of the link reads the lists.
            Scope::Link(_) if head.method.as_deref().is_some_and(is_list) => Purpose::OurOwn,
            _ => Purpose::Caller(caller.viewer.principal),
        };
        let additions = Additions { edits: &self.edits, round: &self.round, trace };
        link.forward(head, &additions, &behalf, purpose).await
    }
}

/// A request that the gateway writes.
pub struct Authored {
    pub method: &'static str,
    /// The members of `params`, values as JSON.
    pub params: Vec<(&'static str, Vec<u8>)>,
    /// The input that a modern server asked for, as further members of `params`.
    pub round: Vec<(&'static str, Vec<u8>)>,
    /// The client capabilities that a modern server is told.
    pub capabilities: Vec<u8>,
    /// Whether its caller wants progress notifications.
    pub wants_progress: bool,
    /// The log messages that its caller wants.
    pub logs: Logs,
    /// Whether the server may ask its caller for something.
    pub purpose: Purpose,
}

impl Authored {
    async fn send(&self, link: &Arc<Link>, trace: &[(&'static str, Vec<u8>)]) -> Result<Exchange, CallError> {
        let params: Vec<_> =
            self.params.iter().chain(&self.round).map(|(key, value)| (*key, value.as_slice())).collect();
        let request = LinkRequest {
            method: self.method,
            params: &params,
            capabilities: &self.capabilities,
            progress: self.wants_progress,
            log_level: self.logs.level(),
            purpose: self.purpose,
            trace,
        };
        if let Some(level) = self.logs.level() {
            link.raise_level(level).await;
        }
        link.request(request).await
    }
}
