//! The way of an agent's request to a server and of everything that comes back, as bytes: the name loses its server,
//! id and progress token become the link's own, and on the way back the caller's again. Nothing else is touched
//! where both sides are of the same era. No SQL, one copy.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Gateway;
use super::answer::{Answer, Asked, Settled};
use super::caller::Caller;
use super::catalog::Entry;
use super::lists::Caching;
use super::outcome::{outcome_of, said_by};
use super::route::{self, ReturnedState, Route};
use crate::model::{Mode, Redactor};
use crate::telemetry::{CallMeasure, Outcome};
use crate::upstream::{CallError, Exchange, Inbound, Link, OnBehalf};
use crate::wire::{Era, Head, Patch};

pub use crate::upstream::Replier;

/// Why a request does not reach a server, or its answer not the caller.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("method {0:?} is not known here")]
    UnknownMethod(String),
    #[error("{0}")]
    Invalid(String),
    #[error("unknown tool: {0}")]
    UnknownTool(String),
    #[error("unknown prompt: {0}")]
    UnknownPrompt(String),
    #[error("resource not found: {0}")]
    UnknownResource(String),
    /// The server wants something of the client that it did not declare, by the name of the capability.
    #[error("the server needs the client capability {0:?}, which the request does not declare")]
    MissingCapability(&'static str),
    #[error("{0}")]
    Upstream(String),
    #[error("the token of this client was revoked")]
    Revoked,
    /// The upstream's own error, passed on.
    #[error("{message}")]
    Rpc { code: i64, message: String, data: Option<Bytes> },
}

/// A message for the caller.
pub enum Outbound {
    /// Progress or a log line, ready to be sent.
    Notice(Bytes),
    /// The server asks the caller for something; the answer goes back through the replier.
    Request { message: Bytes, replier: Replier },
    /// A modern server wants to know something and will then be asked again. Nothing comes after it.
    InputRequired(Bytes),
    /// The answer, ready to be sent. Nothing comes after it.
    Answer(Answer),
}

/// A request under way.
pub struct Forward {
    caller: Arc<Caller>,
    message: Bytes,
    route: Route,
    exchange: Exchange,
    link: Arc<Link>,
    deadline: Option<Instant>,
    /// The caller's own id and progress token, as it wrote them.
    id: Vec<u8>,
    token: Option<Vec<u8>>,
    has_retried: bool,
    /// Ends the request when the caller's token is no longer valid, whoever still waits for it.
    revoked: Option<CancellationToken>,
    reads_are_private: bool,
    measure: Option<CallMeasure>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Gateway {
    /// Sends the request of a caller to the server it is meant for. `state` is what the server wants to see again,
    /// where the caller asks for another round.
    pub async fn forward(
        &self,
        caller: Arc<Caller>,
        head: &Head<'_>,
        message: &Bytes,
        state: Option<ReturnedState>,
    ) -> Result<Forward, Refusal> {
        let catalog = self.catalog();
        let route = route::find(&catalog, &caller, head)?.returning(head, state)?;
        let revoked = match caller.viewer.client {
            None => None,
            Some(client) => Some(catalog.access().revocation(client).cloned().ok_or(Refusal::Revoked)?),
        };
        let id = head.id.as_ref().map(|id| id.raw().to_vec()).unwrap_or_default();
        let token =
            head.meta().and_then(|meta| meta.progress_token.as_ref()).map(|token| token.raw().to_vec());
        let measure =
            route.tool.as_deref().map(|tool| self.metrics.call_begins(route.entry.name().as_str(), tool));
        let deadline = route.entry.registration.config.timeout().map(|limit| Instant::now() + limit);
        let upstream =
            route.entry.upstream.clone().ok_or_else(|| Refusal::Upstream("the server is disabled".into()))?;
        let sent = {
            // Pinned here: moving a future costs as much as it is large.
            let sending = pin!(async {
                let permit = upstream.permit().await;
                let mut has_retried = false;
                loop {
                    let link = upstream.link_for(caller.capabilities, caller.owner).await?;
                    match send(&link, head, &route, &caller).await {
                        Ok(exchange) => return Ok((permit, link, exchange, has_retried)),
                        Err(error) if error.did_not_run() && !has_retried => {
                            upstream.report(&link, &error);
                            has_retried = true;
                        }
                        Err(error) => return Err(error),
                    }
                }
            });
            until(revoked.as_ref(), within(deadline, sending, &route.entry)).await?
        };
        let (permit, link, exchange, has_retried) = sent.map_err(|error| explain(&route.entry, &error))?;
        Ok(Forward {
            caller,
            message: message.clone(),
            route,
            exchange,
            link,
            deadline,
            id,
            token,
            has_retried,
            revoked,
            reads_are_private: self.mode == Mode::Enterprise,
            measure,
            _permit: permit,
        })
    }
}

impl Forward {
    pub async fn next(&mut self) -> Result<Outbound, Refusal> {
        let revoked = self.revoked.clone();
        until(revoked.as_ref(), pin!(self.receive())).await?
    }

    async fn receive(&mut self) -> Result<Outbound, Refusal> {
        loop {
            match within(self.deadline, self.exchange.next(), &self.route.entry).await {
                Ok(Inbound::Answer(answer)) => return self.finish(&answer),
                Ok(Inbound::Notice(notice)) => {
                    if let Some(notice) = self.for_caller(notice) {
                        return Ok(Outbound::Notice(notice));
                    }
                }
                Ok(Inbound::Request(message)) => {
                    let replier = self.exchange.replier();
                    return Ok(Outbound::Request { message, replier });
                }
                // In a box, since it is large and rarely needed.
                Err(error) => Box::pin(self.send_again(error)).await?,
            }
        }
    }

    /// A link that died is no reason to fail a call that may safely be made again.
    async fn send_again(&mut self, error: CallError) -> Result<(), Refusal> {
        let entry = self.route.entry.clone();
        let Some(upstream) = &entry.upstream else { return Err(self.fail(&error)) };
        if error.did_not_run() {
            upstream.report(&self.link, &error);
        }
        let may_repeat = matches!(error, CallError::Lost(_)) && self.route.is_repeatable;
        if self.has_retried || !(error.did_not_run() || may_repeat) {
            return Err(self.fail(&error));
        }
        self.has_retried = true;
        let head = Head::parse(&self.message).map_err(|error| Refusal::Invalid(error.to_string()))?;
        let sending = async {
            let link = upstream.link_for(self.caller.capabilities, self.caller.owner).await?;
            let exchange = send(&link, &head, &self.route, &self.caller).await?;
            Ok((link, exchange))
        };
        match within(self.deadline, sending, &entry).await {
            Ok((link, exchange)) => {
                (self.link, self.exchange) = (link, exchange);
                Ok(())
            }
            Err(error) => Err(self.fail(&error)),
        }
    }

    fn fail(&mut self, error: &CallError) -> Refusal {
        self.end(match error {
            CallError::TimedOut(_) => Outcome::TimedOut,
            _ => Outcome::Failed,
        });
        let refusal = explain(&self.route.entry, error);
        self.note(&refusal.to_string());
        refusal
    }

    /// Remembers why a tool failed, for people.
    fn note(&self, reason: &str) {
        if let (Some(tool), Some(upstream)) = (&self.route.tool, &self.route.entry.upstream) {
            upstream.note_failure(tool, reason);
        }
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(measure) = &mut self.measure {
            measure.ends(outcome);
        }
    }

    /// The server that was asked.
    pub fn server(&self) -> &str {
        self.route.entry.name().as_str()
    }

    fn finish(&mut self, answer: &Bytes) -> Result<Outbound, Refusal> {
        let caching = Caching { ttl_ms: 0, is_private: self.reads_are_private };
        let asked = Asked {
            id: &self.id,
            caller: self.caller.era,
            server: if self.link.is_modern() { Era::Modern } else { Era::Legacy },
            refused_with: self.exchange.refused_with(),
            reads: self.route.reads.as_deref().map(|uri| (uri, caching)),
        };
        let settled = asked.settle(answer);
        let outcome = if settled.is_none() { Outcome::Failed } else { outcome_of(answer) };
        if outcome != Outcome::Ok {
            self.note(&said_by(answer));
        }
        self.end(outcome);
        match settled {
            Some(Settled::Answer(answer)) => Ok(Outbound::Answer(answer)),
            Some(Settled::InputRequired(answer)) => Ok(Outbound::InputRequired(answer)),
            None => Err(Refusal::Upstream("the server's answer is not understood".into())),
        }
    }

    /// A notice with the caller's own progress token; `None` when it is not for this caller.
    fn for_caller(&self, notice: Bytes) -> Option<Bytes> {
        let head = Head::parse(&notice).ok()?;
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

async fn until<T>(revoked: Option<&CancellationToken>, work: impl Future<Output = T>) -> Result<T, Refusal> {
    match revoked {
        None => Ok(work.await),
        Some(revoked) => revoked.run_until_cancelled(work).await.ok_or(Refusal::Revoked),
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, CallError>>,
    entry: &Entry,
) -> Result<T, CallError> {
    let Some(deadline) = deadline else { return work.await };
    let late = || CallError::TimedOut(entry.registration.config.timeout().unwrap_or_default());
    timeout_at(deadline, work).await.unwrap_or_else(|_| Err(late()))
}

fn explain(entry: &Entry, error: &CallError) -> Refusal {
    let sentence = format!("server {:?} failed: {error}", entry.name().as_str());
    Refusal::Upstream(Redactor::of(&entry.registration.config).redact(&sentence))
}

async fn send(
    link: &Arc<Link>,
    head: &Head<'_>,
    route: &Route,
    caller: &Caller,
) -> Result<Exchange, CallError> {
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
    link.forward(head, &route.edits, &behalf).await
}
