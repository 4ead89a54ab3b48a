//! The call engine: sends every request to a server, for every caller. It takes a slot and a link, enforces the
//! deadline, retries where that is safe, and ends each call with exactly one outcome. What requests and responses
//! contain is up to the callers of the engine: `forward` for agents, `request` for everybody else.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Gateway;
use super::caller::Owner;
use super::catalog::Entry;
use super::ending::Ending;
use super::wording::Wording;
use model::Capabilities;
use telemetry::Outcome;
use upstream::{CallError, Exchange, Inbound, Link, Replier, Upstream};
use wire::Head;

/// A request to a server, and for whom it is made.
pub struct CallRequest {
    pub entry: Arc<Entry>,
    pub wording: Wording,
    /// What the server may ask the caller for during the call.
    pub capabilities: Capabilities,
    /// The owner of the link to a stateful server; `None` for the gateway's own requests.
    pub owner: Option<Owner>,
    /// Whether the server may run it twice without harm.
    pub is_repeatable: bool,
    /// Ends the call when the caller's token is no longer valid, even if the caller has disconnected.
    pub revoked: Option<CancellationToken>,
}

/// Why a call has no response.
#[derive(Debug)]
pub enum Failure {
    /// The server is disabled.
    Disabled,
    /// The caller's token was revoked.
    Revoked,
    Call(CallError),
}

/// A call in flight. Dropping it before its response cancels it at the server.
pub struct Call {
    request: CallRequest,
    upstream: Upstream,
    /// The link on which it was sent, and the exchange there; `None` between two attempts.
    attempt: Option<(Arc<Link>, Exchange)>,
    deadline: Option<Instant>,
    /// Whether it was sent again after an attempt that the server did not run.
    was_resent: bool,
    /// Whether it was sent again after an attempt whose response was lost.
    was_repeated: bool,
    ending: Ending,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Gateway {
    /// Sends a request, and returns when it is sent. `tool` is the name under which the call is counted, if it is;
    /// `head` is the head of a message that is passed on.
    pub async fn begin_call(
        &self,
        request: CallRequest,
        tool: Option<String>,
        head: Option<&Head<'_>>,
    ) -> Result<Call, Failure> {
        let mut ending = Ending::new(self, Some(request.entry.clone()), tool);
        let Some(upstream) = request.entry.upstream.clone() else {
            ending.denied();
            return Err(Failure::Disabled);
        };
        let limit = request.entry.registration.config.timeout();
        let mut call = Call {
            request,
            upstream,
            attempt: None,
            deadline: limit.map(|limit| Instant::now() + limit),
            was_resent: false,
            was_repeated: false,
            ending,
            _permit: None,
        };
        let (deadline, revoked) = (call.deadline, call.request.revoked.clone());
        let begun = {
            // Pinned here, since moving a large future is expensive.
            let begun = pin!(async {
                call._permit = call.upstream.permit().await;
                call.send(head).await
            });
            within(deadline, limit, revoked.as_ref(), begun).await
        };
        match begun {
            Ok(()) => Ok(call),
            Err(failure) => Err(call.fail(failure)),
        }
    }
}

impl Call {
    /// Receives the next message from the server. Nothing comes after a response or a failure.
    pub async fn next(&mut self) -> Result<Inbound, Failure> {
        let (deadline, revoked) = (self.deadline, self.request.revoked.clone());
        let limit = self.request.entry.registration.config.timeout();
        let received = within(deadline, limit, revoked.as_ref(), pin!(self.receive())).await;
        match received {
            Ok(Inbound::Answer(answer)) => {
                self.ending.answered(&answer);
                Ok(Inbound::Answer(answer))
            }
            Ok(inbound) => Ok(inbound),
            Err(failure) => Err(self.fail(failure)),
        }
    }

    async fn receive(&mut self) -> Result<Inbound, CallError> {
        loop {
            let Some((link, exchange)) = &mut self.attempt else {
                // Boxed, since it is large and rarely needed.
                Box::pin(self.send(None)).await?;
                continue;
            };
            match exchange.next().await {
                Ok(inbound) => return Ok(inbound),
                Err(error) => {
                    let link = link.clone();
                    self.attempt = None;
                    self.try_again(error, &link)?;
                }
            }
        }
    }

    /// Sends the request on the link for its caller.
    async fn send(&mut self, head: Option<&Head<'_>>) -> Result<(), CallError> {
        loop {
            let link = self.upstream.link_for(self.request.capabilities, self.request.owner).await?;
            match self.request.wording.send(&link, head).await {
                Ok(exchange) => {
                    self.attempt = Some((link, exchange));
                    return Ok(());
                }
                Err(error) => self.try_again(error, &link)?,
            }
        }
    }

    /// The retry policy: once if the server certainly did not run the call, and once if its response was lost and
    /// running it twice does no harm. A server that restarts during a call may cause both, one after the other.
    fn try_again(&mut self, error: CallError, link: &Arc<Link>) -> Result<(), CallError> {
        let was_retried = match &error {
            error if error.did_not_run() => {
                self.upstream.report(link, error);
                &mut self.was_resent
            }
            CallError::Lost(_) if self.request.is_repeatable => &mut self.was_repeated,
            _ => return Err(error),
        };
        match std::mem::replace(was_retried, true) {
            true => Err(error),
            false => Ok(()),
        }
    }

    fn fail(&mut self, failure: Failure) -> Failure {
        match &failure {
            Failure::Call(error @ CallError::TimedOut(_)) => {
                self.ending.set(Outcome::TimedOut, || error.to_string());
            }
            Failure::Call(error) => self.ending.set(Outcome::Failed, || error.to_string()),
            Failure::Disabled => self.ending.denied(),
            // Counts as cancelled, as if the caller had disconnected.
            Failure::Revoked => {}
        }
        failure
    }

    /// Counts the call as failed although the server responded, since the caller cannot use the response.
    pub fn fails_because(&mut self, reason: &str) {
        self.ending.set(Outcome::Failed, || reason.to_owned());
    }

    pub fn entry(&self) -> &Arc<Entry> {
        &self.request.entry
    }

    /// Whether the server that responded is a modern one.
    pub fn is_modern(&self) -> bool {
        self.attempt.as_ref().is_some_and(|(link, _)| link.is_modern())
    }

    /// The HTTP status of the response, unless it was a success.
    pub fn refused_with(&self) -> Option<u16> {
        self.attempt.as_ref().and_then(|(_, exchange)| exchange.refused_with())
    }

    /// The replier for requests that the server sends during this call.
    pub fn replier(&self) -> Option<Replier> {
        self.attempt.as_ref().map(|(_, exchange)| exchange.replier())
    }

    /// Refuses a request of the server, which this caller cannot serve.
    pub fn refuse(&self, request: &Bytes) {
        if let Some((_, exchange)) = &self.attempt {
            exchange.refuse(request);
        }
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    limit: Option<Duration>,
    revoked: Option<&CancellationToken>,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, Failure> {
    let timed = async {
        match deadline {
            None => work.await,
            Some(deadline) => {
                let late = || CallError::TimedOut(limit.unwrap_or_default());
                timeout_at(deadline, work).await.unwrap_or_else(|_| Err(late()))
            }
        }
    };
    let done = match revoked {
        None => timed.await,
        Some(revoked) => revoked.run_until_cancelled(timed).await.ok_or(Failure::Revoked)?,
    };
    done.map_err(Failure::Call)
}
