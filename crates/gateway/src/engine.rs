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
use super::caller::Profile;
use super::catalog::Entry;
use super::clock::{Clock, Overdue, Pause};
use super::ending::{CalledTool, Ending};
use super::input::{InputRound, MOST_ROUNDS};
use super::question::Question;
use super::spans::AttemptSpan;
use super::trail::Trail;
use super::wording::Wording;
use budget::{Exceeded, Taken};
use model::PrincipalId;
use telemetry::Outcome;
use upstream::{CallError, Exchange, Inbound, Link, RelatedTask, Upstream};
use wire::{Era, Head, Response};

/// How often a call that the server did not run is sent again.
const MOST_RESENDS: u32 = 2;

/// When a call that found no room may be tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request to a server, and for whom it is made.
pub struct CallRequest {
    pub entry: Arc<Entry>,
    pub wording: Wording,
    /// Decides which link it uses.
    pub profile: Profile,
    /// Whether the server may run it twice without harm.
    pub is_repeatable: bool,
    /// Ends the call when the caller's token is no longer valid, even if the caller has disconnected.
    pub revoked: Option<CancellationToken>,
    /// Whose limits it counts towards; `None` for requests that are not limited.
    pub payer: Option<Payer>,
    /// Whether it only waits for something that the server does anyway, and so does not count towards `max_concurrency`.
    pub only_waits: bool,
    /// What is recorded of it.
    pub trail: Trail,
}

/// The principal whose limits a call counts towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payer {
    /// Everybody together, in development mode.
    Everybody,
    Principal(PrincipalId),
}

impl Payer {
    /// The payer of a request with this method; `None` if it is none of those that are limited.
    pub fn of(method: &str, principal: Option<PrincipalId>) -> Option<Self> {
        let is_limited = matches!(method, "tools/call" | "prompts/get" | "resources/read");
        is_limited.then(|| principal.map_or(Payer::Everybody, Payer::Principal))
    }

    pub fn principal(self) -> Option<PrincipalId> {
        match self {
            Payer::Everybody => None,
            Payer::Principal(principal) => Some(principal),
        }
    }
}

/// A call that a limit refused before anything was sent to the server.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{exceeded}")]
pub struct Throttled {
    pub exceeded: Exceeded,
    /// When it makes sense to try again.
    pub retry_after: Duration,
}

impl From<Exceeded> for Throttled {
    fn from(exceeded: Exceeded) -> Self {
        Self { exceeded, retry_after: RETRY_AFTER }
    }
}

/// Why a call has no response.
#[derive(Debug)]
pub enum Failure {
    /// The server is disabled.
    Disabled,
    /// The caller's token was revoked.
    Revoked,
    /// A limit was reached.
    Throttled(Throttled),
    /// The caller did not give the input that the server asked for in time.
    Unanswered(CallError),
    Call(CallError),
}

/// A call in flight. Dropping it before its response cancels it at the server.
pub struct Call {
    request: CallRequest,
    upstream: Upstream,
    /// The link on which it was sent, and the exchange there; `None` between two attempts.
    attempt: Option<(Arc<Link>, Exchange)>,
    /// The span of that attempt, if calls are traced.
    span: Option<Box<AttemptSpan>>,
    deadline: Option<Instant>,
    /// Replaces the deadline as soon as the server asks something.
    clock: Option<Arc<Clock>>,
    /// How often the server asked for input with a response, and the request was sent again.
    rounds: u32,
    /// How often it was sent again after an attempt that the server did not run.
    resends: u32,
    /// Whether it was sent again after an attempt whose response was lost.
    was_repeated: bool,
    ending: Ending,
    permit: Option<OwnedSemaphorePermit>,
    /// Its part of the payer's budget of calls in flight.
    in_flight: Option<Taken>,
}

impl Gateway {
    /// Sends a request, and returns when it is sent. `tool` is the tool under which the call is counted, if it is;
    /// `head` is the head of a message that is passed on. The call is boxed, since it is large and moved often.
    pub async fn begin_call(
        &self,
        request: CallRequest,
        tool: Option<CalledTool>,
        head: Option<&Head<'_>>,
    ) -> Result<Box<Call>, Failure> {
        let mut ending = Ending::new(self, Some(request.entry.clone()), tool, request.trail.clone());
        let Some(upstream) = request.entry.upstream.clone() else {
            ending.denied();
            return Err(Failure::Disabled);
        };
        let charged = match self.store.is_shared() {
            // Boxed, since the future is large and not always needed.
            true => Box::pin(self.charge_shared(&request, ending.tool())).await,
            false => self.charge(&request, ending.tool()),
        };
        let in_flight = match charged {
            Ok(in_flight) => in_flight,
            Err(throttled) => {
                ending.set(Outcome::Limited, || throttled.to_string());
                return Err(Failure::Throttled(throttled));
            }
        };
        let limit = request.entry.registration.config.timeout();
        let begun = Instant::from_std(ending.watch.begun());
        let mut call = Box::new(Call {
            request,
            upstream,
            attempt: None,
            span: None,
            deadline: limit.map(|limit| begun + limit),
            clock: None,
            rounds: 0,
            resends: 0,
            was_repeated: false,
            ending,
            permit: None,
            in_flight,
        });
        let (deadline, revoked) = (call.deadline, call.request.revoked.clone());
        let begun = {
            // Pinned here, since moving a large future is expensive.
            let begun = pin!(async {
                if !call.request.only_waits && call.upstream.has_slots() {
                    call.ending.watch.wait_for_slot();
                    let permit = call.upstream.permit().await;
                    call.permit = permit.map_err(|exceeded| Failure::Throttled(exceeded.into()))?;
                }
                call.send(head).await.map_err(Failure::Call)
            });
            within(deadline, None, limit, revoked.as_ref(), begun).await
        };
        match begun {
            Ok(()) => Ok(call),
            Err(failure) => Err(call.fail(failure)),
        }
    }
}

impl Gateway {
    /// Charges a call to the limits of its payer, before anything is sent.
    fn charge(&self, request: &CallRequest, tool: Option<&str>) -> Result<Option<Taken>, Throttled> {
        let Some(payer) = request.payer else { return Ok(None) };
        let usage = self.usage(payer.principal());
        let in_flight = usage.calls.take(1)?;
        self.charge_quotas(payer, &usage, &request.entry, tool)?;
        Ok(Some(in_flight))
    }

    /// The same, if gateways on the same database share the limits.
    async fn charge_shared(
        &self,
        request: &CallRequest,
        tool: Option<&str>,
    ) -> Result<Option<Taken>, Throttled> {
        let Some(payer) = request.payer else { return Ok(None) };
        let usage = self.usage(payer.principal());
        let in_flight = usage.calls.take(1)?;
        self.charge_shared_quotas(payer, &usage, &request.entry, tool).await?;
        Ok(Some(in_flight))
    }
}

impl Call {
    /// Receives the next message from the server. Nothing comes after a response or a failure.
    pub async fn next(&mut self) -> Result<Inbound, Failure> {
        let (deadline, clock, revoked) = (self.deadline, self.clock.clone(), self.request.revoked.clone());
        let limit = self.request.entry.registration.config.timeout();
        let received =
            within(deadline, clock.as_deref(), limit, revoked.as_ref(), pin!(self.receive())).await;
        match received {
            Ok(Inbound::Answer(answer)) => {
                self.ending.watch.note_answer();
                self.ending.answered(&answer);
                if let Some(mut span) = self.span.take() {
                    span.answered(&answer);
                }
                Ok(Inbound::Answer(answer))
            }
            Ok(Inbound::Notice(notice)) => {
                self.note_heard();
                self.request.trail.mark(|| mark_of(&notice));
                Ok(Inbound::Notice(notice))
            }
            Ok(Inbound::Request(request)) => {
                self.note_heard();
                Ok(Inbound::Request(request))
            }
            Err(failure) => Err(self.fail(failure)),
        }
    }

    /// Notes when the server was first heard, if that is recorded.
    fn note_heard(&mut self) {
        if self.request.trail.is_recorded() {
            self.ending.watch.note_heard();
        }
    }

    async fn receive(&mut self) -> Result<Inbound, Failure> {
        loop {
            let Some((link, exchange)) = &mut self.attempt else {
                // Boxed, since it is large and rarely needed.
                Box::pin(self.send(None)).await.map_err(Failure::Call)?;
                continue;
            };
            match exchange.next().await {
                Ok(inbound) => return Ok(inbound),
                Err(error) => {
                    let link = link.clone();
                    self.attempt = None;
                    self.end_span(&error);
                    self.try_again(error, &link).map_err(Failure::Call)?;
                }
            }
        }
    }

    /// Sends the request on the link for its caller.
    async fn send(&mut self, head: Option<&Head<'_>>) -> Result<(), CallError> {
        self.ending.watch.wait_for_server();
        loop {
            let link = self.upstream.link_for(&self.request.profile).await?;
            let era = if link.is_modern() { Era::Modern } else { Era::Legacy };
            (self.ending.server_era, self.ending.attempts) = (Some(era), self.ending.attempts + 1);
            if self.request.trail.is_recorded() {
                self.ending.watch.note_sent();
            }
            self.span = self.request.trail.begin_attempt(&self.request.entry, self.ending.tool(), &link);
            let trace = self.span.as_ref().map_or(&[][..], |span| span.members());
            match self.request.wording.send(&link, head, trace).await {
                Ok(exchange) => {
                    if exchange.has_begun() {
                        self.note_heard();
                    }
                    if let Some(span) = &mut self.span {
                        span.sent_as(exchange.id());
                    }
                    self.attempt = Some((link, exchange));
                    return Ok(());
                }
                Err(error) => {
                    self.end_span(&error);
                    self.try_again(error, &link)?;
                }
            }
        }
    }

    /// Ends the span of an attempt that failed.
    fn end_span(&mut self, error: &CallError) {
        if let Some(mut span) = self.span.take() {
            span.failed(error);
        }
    }

    /// The retry policy: twice if the server certainly did not run the call, since the link of its caller and the first
    /// link, which may serve instead, can both be outdated; and once if its response was lost and running it twice does
    /// no harm. A server that restarts during a call may cause all of that, one after the other.
    fn try_again(&mut self, error: CallError, link: &Arc<Link>) -> Result<(), CallError> {
        match &error {
            error if error.did_not_run() => {
                self.upstream.report(link, error);
                self.resends += 1;
            }
            CallError::Lost(_) if self.request.is_repeatable && !self.was_repeated => {
                self.was_repeated = true;
                return Ok(());
            }
            _ => return Err(error),
        }
        match self.resends > MOST_RESENDS {
            true => Err(error),
            false => Ok(()),
        }
    }

    fn fail(&mut self, failure: Failure) -> Failure {
        self.ending.watch.stop_waiting();
        if let Failure::Call(error) = &failure {
            self.end_span(error);
        }
        self.span = None;
        match &failure {
            Failure::Unanswered(error) | Failure::Call(error @ CallError::TimedOut(_)) => {
                self.ending.set(Outcome::TimedOut, || error.to_string());
            }
            Failure::Call(CallError::NoRoom(exceeded)) => {
                self.ending.set(Outcome::Limited, || exceeded.to_string());
            }
            Failure::Call(error) => self.ending.set(Outcome::UpstreamError, || error.to_string()),
            Failure::Throttled(throttled) => self.ending.set(Outcome::Limited, || throttled.to_string()),
            Failure::Disabled => self.ending.denied(),
            // Counts as cancelled, as if the caller had disconnected.
            Failure::Revoked => {}
        }
        failure
    }

    /// Counts the call as timed out, since the caller did not come back to it.
    pub fn is_abandoned(&mut self) {
        self.ending.set(Outcome::TimedOut, || "the caller did not come back in time".to_owned());
    }

    /// Counts the call as failed although the server responded, since the caller cannot use the response.
    pub fn fails_because(&mut self, reason: &str) {
        self.ending.set(Outcome::UpstreamError, || reason.to_owned());
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

    /// Stops the clock until the caller has answered: that time is not the server's.
    pub fn pause(&mut self) -> Pause {
        let budgets = self.upstream.budgets();
        let clock = self.clock.get_or_insert_with(|| Clock::new(self.deadline, budgets.clone()));
        self.ending.watch.asks(clock);
        clock.pause()
    }

    /// The question that a request of the server puts to the caller. From then on the call is not repeated: its caller
    /// would have to answer again. `task` is the one that the request is related to, if the caller knows that under another
    /// id. `None` if the request cannot be answered.
    pub fn question(&mut self, request: Bytes, task: Option<RelatedTask>) -> Option<Question> {
        self.request.is_repeatable = false;
        self.note_round();
        let pause = self.pause();
        let (_, exchange) = self.attempt.as_ref()?;
        Question::read(request, exchange.replier().about(task), pause)
    }

    fn note_round(&mut self) {
        self.ending.rounds += 1;
        self.request.trail.mark(|| "input");
    }

    /// The input that a response asks for, if the gateway may send the request again with it. The error is a sentence.
    pub fn input_round(&mut self, response: &Response) -> Result<InputRound, String> {
        self.ending.reopen();
        self.note_round();
        if self.rounds == MOST_ROUNDS {
            return Err(format!("the server asked for input more than {MOST_ROUNDS} times"));
        }
        InputRound::read(response)
    }

    /// Sends the request again with the input that the server asked for: `members` are added to its params.
    pub fn again(&mut self, members: Vec<(&'static str, Vec<u8>)>) {
        self.rounds += 1;
        (self.resends, self.was_repeated) = (0, false);
        self.request.wording.set_round(members);
        self.attempt = None;
    }

    /// Drops the request itself, which may be large and is not sent again after the server asked something.
    pub fn forget_message(&mut self) {
        if !self.request.is_repeatable {
            self.request.wording.forget();
        }
    }

    /// Notes whether the server waits for the caller, who was told so and is gone meanwhile.
    pub fn set_parked(&self, is_parked: bool) {
        if let Some((_, exchange)) = &self.attempt {
            exchange.set_parked(is_parked);
        }
    }

    /// Gives back what the call holds of the limits. If the server has not answered, the call is cancelled.
    pub fn give_back(&mut self) {
        (self.permit, self.in_flight, self.attempt, self.span) = (None, None, None, None);
    }

    /// Refuses a request of the server, which this caller cannot serve.
    pub fn refuse(&self, request: &Bytes) {
        if let Some((_, exchange)) = &self.attempt {
            exchange.refuse(request);
        }
    }
}

/// What a notice of a server is called in the record of its call.
fn mark_of(notice: &[u8]) -> &'static str {
    let head = Head::parse(notice).ok();
    match head.as_ref().and_then(|head| head.method.as_deref()) {
        Some("notifications/progress") => "progress",
        _ => "notice",
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    clock: Option<&Clock>,
    limit: Option<Duration>,
    revoked: Option<&CancellationToken>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = || Failure::Call(CallError::TimedOut(limit.unwrap_or_default()));
    let timed = async {
        match (clock, deadline) {
            (Some(clock), _) => tokio::select! {
                biased;
                done = work => done,
                overdue = clock.overdue() => Err(match overdue {
                    Overdue::Server => late(),
                    Overdue::Caller(exceeded) => {
                        Failure::Unanswered(CallError::Exceeded(exceeded.to_string()))
                    }
                }),
            },
            (None, None) => work.await,
            (None, Some(deadline)) => timeout_at(deadline, work).await.unwrap_or_else(|_| Err(late())),
        }
    };
    match revoked {
        None => timed.await,
        Some(revoked) => revoked.run_until_cancelled(timed).await.unwrap_or(Err(Failure::Revoked)),
    }
}
