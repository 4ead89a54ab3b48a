//! How a request is written: a caller's own message, passed on, or the gateway's words. It is written anew for each link
//! that it takes.

use std::sync::Arc;

use bytes::Bytes;

use super::caller::Caller;
use upstream::{CallError, Exchange, Link, LinkRequest, OnBehalf, Purpose};
use wire::{Era, Head, Span};

/// How the request is written, which depends on the link that it takes.
pub enum Wording {
    /// A caller's own message, passed on.
    Passed(Passed),
    /// In the gateway's words.
    Authored(Authored),
}

impl Wording {
    /// `head` is that of the passed message, where somebody has it at hand.
    pub async fn send(&self, link: &Arc<Link>, head: Option<&Head<'_>>) -> Result<Exchange, CallError> {
        match self {
            Wording::Passed(passed) => passed.send(link, head).await,
            Wording::Authored(authored) => authored.send(link).await,
        }
    }
}

/// A message of an agent, as it is passed on.
pub struct Passed {
    pub caller: Arc<Caller>,
    pub message: Bytes,
    /// Parts of the message that the server knows by another name.
    pub edits: Vec<(Span, Vec<u8>)>,
}

impl Passed {
    async fn send(&self, link: &Arc<Link>, head: Option<&Head<'_>>) -> Result<Exchange, CallError> {
        let parsed;
        let head = match head {
            Some(head) => head,
            None => {
                parsed = Head::parse(&self.message)
                    .map_err(|error| CallError::NotSent(format!("the request is not understood: {error}")))?;
                &parsed
            }
        };
        let caller = &self.caller;
        let behalf = match caller.era {
            Era::Modern => {
                if let Some(level) = caller.logs.level() {
                    link.raise_level(level).await;
                }
                OnBehalf::Modern
            }
            Era::Legacy => OnBehalf::Legacy {
                capabilities: caller.capabilities,
                client_name: &caller.client_name,
                client_version: &caller.client_version,
                log_level: caller.logs.level(),
            },
        };
        link.forward(head, &self.edits, &behalf).await
    }
}

/// A request in the gateway's words.
pub struct Authored {
    pub method: &'static str,
    /// The members of `params`, values as JSON.
    pub params: Vec<(&'static str, Vec<u8>)>,
    /// Whether its caller wants to hear about progress.
    pub wants_progress: bool,
}

impl Authored {
    async fn send(&self, link: &Arc<Link>) -> Result<Exchange, CallError> {
        let params: Vec<_> = self.params.iter().map(|(key, value)| (*key, value.as_slice())).collect();
        let request = LinkRequest {
            method: self.method,
            params: &params,
            progress: self.wants_progress,
            purpose: Purpose::Caller,
        };
        link.request(request).await
    }
}
