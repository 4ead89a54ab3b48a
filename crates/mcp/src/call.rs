//! A request that is forwarded to a server, and the response to the client: plain JSON if there is only the answer, an
//! event stream as soon as another message comes before it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::Mcp;
use super::boxed::boxed;
use super::bridge::asking::Asking;
use super::bridge::need;
use super::bridge::open_questions::OpenQuestions;
use super::bridge::state::{Bond, given_state};
use super::live::CallInFlight;
use super::modern::client_info;
use super::reply::{Message, Reply};
use super::stream::{self, Outlet};
use budget::Bound;
use gateway::answer::Answer;
use gateway::caller::{Caller, Owner};
use gateway::destination::ReturnedState;
use gateway::forward::{Forward, Outbound, asked_name};
use gateway::question::Question;
use gateway::refusal::Refusal;
use gateway::trail::Trail;
use model::Capabilities;
use wire::error::code;
use wire::{Era, Head, OwnedId};

/// Where messages that come before an answer are sent.
#[derive(Clone)]
pub enum Beside {
    /// The client accepts event streams: the response becomes one when needed.
    NewStream,
    /// To a stream that is open already, as on HTTP+SSE.
    Stream(Outlet),
    /// Nowhere: the client accepts only the answer.
    Nowhere,
}

/// A message of a call for its client. All variants but the first end the call, or interrupt it.
enum Pumped {
    /// Progress, a log message or a server's request, before the answer.
    Before(Bytes),
    Answer(Answer),
    /// The server asks for input; the client then sends the request again with it.
    Input(Bytes),
    /// The call waits for input of its client, which comes back to it.
    Parked,
    /// The server refused the call until a person has visited pages.
    Pages(Answer),
    Refused(Refusal),
}

/// The state of a running call.
pub struct ClientCall {
    pub caller: Arc<Caller>,
    /// The id of the request, as the client wrote it.
    pub id: OwnedId,
    /// `None` for legacy clients.
    pub round: Option<Round>,
    pub in_flight: Option<CallInFlight>,
    /// What a modern client has to answer to a legacy server.
    pub open: OpenQuestions,
    /// What a legacy client has to answer to a modern server.
    pub asking: Option<Box<Asking>>,
    /// What is recorded of it.
    pub trail: Trail,
}

impl ClientCall {
    /// A call that has not begun. It is boxed, since it is large and moved often.
    pub fn new(caller: Arc<Caller>, id: OwnedId, round: Option<Round>, trail: Trail) -> Box<Self> {
        let open = OpenQuestions::default();
        Box::new(Self { caller, id, round, in_flight: None, open, asking: None, trail })
    }
}

/// One round of a modern request.
pub struct Round {
    /// The client and request that a state of this round is bound to.
    pub bond: Bond,
    /// The state of the round before.
    pub state: Option<ReturnedState>,
    /// The capabilities that its client declared.
    pub declared: Capabilities,
}

impl Mcp {
    /// Runs one request until its answer. `None` when the client cancelled it: it then gets no answer.
    pub(super) async fn run_call(
        self: &Arc<Self>,
        mut call: Box<ClientCall>,
        head: &Head<'_>,
        message: &Bytes,
        beside: &Beside,
    ) -> Option<Reply> {
        call.in_flight = match call.caller.profile.owner {
            Some(Owner::Session(serial)) => Some(self.lives.begin_call(serial, &call.id)),
            Some(Owner::Principal(_) | Owner::Anybody | Owner::Link(_)) | None => None,
        };
        let cancelled = call.in_flight.as_ref().map(|call| call.cancelled.clone());
        let logged_with = call.trail.clone();
        // Pinned here, because moving a large future is expensive.
        let run = pin!(self.begin(call, head, message, beside));
        let run = logged_with.within(run);
        match cancelled {
            Some(cancelled) => cancelled.run_until_cancelled(run).await,
            None => Some(run.await),
        }
    }

    async fn begin(
        self: &Arc<Self>,
        mut call: Box<ClientCall>,
        head: &Head<'_>,
        message: &Bytes,
        beside: &Beside,
    ) -> Reply {
        let state = call.round.as_mut().and_then(|round| round.state.take());
        match self.gateway.forward(call.caller.clone(), head, message, state, &call.trail).await {
            Ok(forward) => self.answer(call, forward, beside).await,
            Err(refusal) => Reply::refusal(call.caller.profile.era, &call.id, &refusal).to_call(&call.trail),
        }
    }

    /// Begins what is recorded of a request, if it is a call.
    pub(super) fn trail(&self, caller: &Arc<Caller>, head: &Head<'_>) -> Trail {
        let method = head.method.as_deref().unwrap_or_default();
        let trail = self.gateway.trail_of_agent(caller, method, head.body.len());
        if trail.is_recorded() {
            if head.meta().is_some_and(|meta| meta.client_info.is_some()) {
                let (name, version) = client_info(head);
                trail.set_agent(|| format!("{name} {version}"));
            }
            trail.set_trace(head);
        }
        trail
    }

    /// The same for a request that is refused before it is looked at.
    pub(super) fn trail_of_refused(&self, caller: &Arc<Caller>, head: &Head<'_>) -> Trail {
        if head.method.as_deref() == Some("tools/call") {
            self.gateway.deny_call();
        }
        let trail = self.trail(caller, head);
        self.gateway.note_asked(&trail, asked_name(head).unwrap_or_default());
        trail
    }

    /// Carries a call until its answer, or until its response becomes a stream.
    pub(super) async fn answer(
        self: &Arc<Self>,
        mut call: Box<ClientCall>,
        mut forward: Forward,
        beside: &Beside,
    ) -> Reply {
        let trail = call.trail.clone();
        loop {
            let message = match self.pump(&mut call, &mut forward, beside).await {
                Pumped::Before(message) => message,
                Pumped::Answer(answer) => return Reply::answer(answer).to_call(&trail),
                Pumped::Input(answer) => return Reply::whole(answer).to_call(&trail),
                Pumped::Parked => return Reply::message(self.park(call, forward)).to_call(&trail),
                Pumped::Pages(refused) => {
                    let parked = self.park_for_pages(call, forward.server(), refused);
                    return Reply::message(parked).to_call(&trail);
                }
                Pumped::Refused(refusal) => {
                    return Reply::refusal(call.caller.profile.era, &call.id, &refusal).to_call(&trail);
                }
            };
            trail.answered(message.len());
            match beside {
                Beside::Nowhere => {}
                Beside::Stream(outlet) => {
                    outlet.room().await;
                    outlet.send(&message);
                }
                Beside::NewStream => {
                    let (outlet, body) = stream::open(&self.gateway.budgets().buffered);
                    outlet.send(&message);
                    let mcp = self.clone();
                    self.tasks.spawn(async move {
                        trail.within(pin!(mcp.go_on(call, forward, outlet))).await;
                    });
                    return Reply::events(body);
                }
            }
        }
    }

    /// Carries the rest of a call whose response has become a stream.
    async fn go_on(self: &Arc<Self>, mut call: Box<ClientCall>, mut forward: Forward, outlet: Outlet) {
        let cancelled = call.in_flight.as_ref().map(|call| call.cancelled.clone()).unwrap_or_default();
        let gone = outlet.gone.clone();
        let (era, trail) = (call.caller.profile.era, call.trail.clone());
        let carry = async {
            let beside = Beside::Stream(outlet.clone());
            let mut is_closed = false;
            loop {
                let pumped = tokio::select! {
                    biased;
                    pumped = self.pump(&mut call, &mut forward, &beside) => pumped,
                    () = outlet.gone.cancelled(), if !is_closed => {
                        is_closed = true;
                        // Nobody can answer them any more, and the time of the call goes on.
                        call.in_flight.iter_mut().for_each(CallInFlight::refuse_questions);
                        continue;
                    }
                };
                match pumped {
                    Pumped::Before(message) => {
                        trail.answered(message.len());
                        outlet.room().await;
                        outlet.send(&message);
                    }
                    last => return last,
                }
            }
        };
        let last = match era {
            // The stream may break while the call goes on: disconnecting is not cancelling.
            Era::Legacy => cancelled.run_until_cancelled(carry).await,
            Era::Modern => gone.run_until_cancelled(carry).await,
        };
        if let Some(last) = last {
            let message = match last {
                Pumped::Before(message) | Pumped::Input(message) => message,
                Pumped::Answer(answer) => answer.message(),
                Pumped::Parked => self.park(call, forward).join(),
                Pumped::Pages(refused) => self.park_for_pages(call, forward.server(), refused).join(),
                Pumped::Refused(refusal) => {
                    Message::refusal(call.caller.profile.era, &call.id, &refusal).join()
                }
            };
            trail.answered(message.len());
            outlet.send(&message);
        }
        outlet.finish();
    }

    /// Waits for the next message of a call for its client.
    async fn pump(&self, call: &mut ClientCall, forward: &mut Forward, beside: &Beside) -> Pumped {
        loop {
            if call.asking.is_some() {
                // Boxed, since it is rarely needed.
                match Box::pin(self.ask_client(call, forward, beside)).await {
                    Ok(Some(request)) => return Pumped::Before(request),
                    Ok(None) => {}
                    Err(refusal) => {
                        forward.fails_because(&refusal);
                        return Pumped::Refused(refusal);
                    }
                }
            }
            let outbound = match call.open.told_at() {
                None => forward.next().await,
                // Further questions may follow; all of them are told at once.
                Some(at) => match tokio::time::timeout_at(at, forward.next()).await {
                    Ok(outbound) => outbound,
                    Err(_) => return Pumped::Parked,
                },
            };
            let handled = match outbound {
                Ok(Outbound::Answer(answer)) => return last(call, answer, forward.is_modern()),
                Ok(Outbound::InputRequired(answer)) => {
                    let Some(round) = &call.round else { return Pumped::Input(answer) };
                    let answer = self.states.wrap(answer, &round.bond, forward.server());
                    self.gateway.pause_trail(|| round.bond.next_round(given_state(&answer)), &call.trail);
                    return Pumped::Input(answer);
                }
                Ok(Outbound::Notice(notice)) if call.caller.logs.pass(&notice) => {
                    return Pumped::Before(notice);
                }
                Ok(Outbound::Notice(_)) => Ok(None),
                Ok(Outbound::Question(question)) => match call.missing_capability(&question) {
                    None => Ok(call.take_question(question, beside)),
                    Some(missing) => {
                        // In this order: the server must not go on with the call.
                        forward.cancel();
                        question.refuse();
                        Err(Refusal::MissingCapability(missing))
                    }
                },
                Ok(Outbound::Round(round)) => {
                    let pause = forward.pause();
                    let declared = &call.caller.profile.capabilities;
                    let in_flight = call.in_flight.as_mut().filter(|_| beside.can_ask());
                    Asking::begin(round, declared, in_flight, pause).map(|asking| {
                        call.asking = Some(Box::new(asking));
                        None
                    })
                }
                Err(refusal) => return Pumped::Refused(refusal),
            };
            match handled {
                Ok(Some(message)) => return Pumped::Before(message),
                Ok(None) => {}
                Err(refusal) => {
                    forward.fails_because(&refusal);
                    return Pumped::Refused(refusal);
                }
            }
        }
    }

    /// Sends the next request of a modern server to a legacy client; after the last one, waits until all are answered and
    /// sends the call again. Nothing goes to the server once the client cannot answer any more.
    async fn ask_client(
        &self,
        call: &mut ClientCall,
        forward: &mut Forward,
        beside: &Beside,
    ) -> Result<Option<Bytes>, Refusal> {
        let Some(asking) = &mut call.asking else { return Ok(None) };
        if let Some(request) = asking.unsent() {
            return Ok(Some(request));
        }
        let ended = |reason: &str| Refusal::Upstream(reason.to_owned());
        let budgets = self.gateway.budgets();
        let revoked = call.caller.revoked.clone().unwrap_or_default();
        tokio::select! {
            biased;
            () = revoked.cancelled() => return Err(Refusal::Revoked),
            () = beside.closed() => return Err(ended("the client closed the stream of the call")),
            () = self.stop.cancelled() => return Err(ended("the gateway is stopping")),
            answered = asking.answered() => answered?,
            () = tokio::time::sleep(budgets.limits.answer_time) => {
                let seconds = budgets.limits.answer_time.as_secs();
                return Err(ended(&budgets.exceeded(Bound::AnswerTime, seconds).to_string()));
            }
        }
        if let Some(asking) = call.asking.take() {
            asking.send_again(forward);
        }
        Ok(None)
    }
}

/// The end of a call with a response. A legacy server may have refused it until a person has visited pages, which a modern
/// client learns as a request for input.
fn last(call: &mut ClientCall, answer: Answer, is_modern: bool) -> Pumped {
    let round = call.round.as_ref().filter(|_| !is_modern);
    let Some(round) = round else { return Pumped::Answer(answer) };
    let is_refused = |code: i64| code == i64::from(code::URL_ELICITATION_REQUIRED);
    let has_pages = answer.fault.is_some_and(|fault| is_refused(fault.code))
        && call.open.replace_by_pages(&answer.message());
    match (has_pages, round.declared.has_url_elicitation()) {
        (false, _) => Pumped::Answer(answer),
        (true, true) => Pumped::Pages(answer),
        (true, false) => Pumped::Refused(Refusal::MissingCapability("elicitation.url")),
    }
}

impl ClientCall {
    /// The capability that a modern client must have for a question of a legacy server, and did not declare. Without
    /// it the call fails; only the question for roots has an answer nevertheless.
    fn missing_capability(&self, question: &Question) -> Option<&'static str> {
        let declared = &self.round.as_ref()?.declared;
        let missing = need::missing_capability(declared, question.method(), question.params());
        missing.filter(|missing| *missing != "roots")
    }

    /// Takes a question of a legacy server. Returns the message for a client that is asked right away; a modern one is
    /// told later what is open.
    fn take_question(&mut self, question: Question, beside: &Beside) -> Option<Bytes> {
        let method = question.method();
        match (&self.round, &mut self.in_flight) {
            (Some(_), _) if !need::is_question(method) => question.refuse(),
            (Some(round), _) if method == "roots/list" && !round.declared.has_roots() => {
                question.answer(br#"{"roots":[]}"#);
            }
            (Some(_), _) => self.open.add(question),
            (None, Some(in_flight))
                if beside.can_ask()
                    && need::declares_kind(&self.caller.profile.capabilities, method)
                    && in_flight.may_ask() =>
            {
                return Some(in_flight.ask(question));
            }
            (None, Some(_) | None) => question.refuse(),
        }
        None
    }
}

impl Beside {
    /// Whether the client can be sent requests.
    fn can_ask(&self) -> bool {
        match self {
            Beside::NewStream => true,
            Beside::Stream(outlet) => !outlet.gone.is_cancelled(),
            Beside::Nowhere => false,
        }
    }

    /// Waits until the client has closed the stream.
    async fn closed(&self) {
        match self {
            Beside::Stream(outlet) => outlet.gone.cancelled().await,
            Beside::NewStream | Beside::Nowhere => std::future::pending().await,
        }
    }
}

/// A future whose work continues in the background when it is dropped, until the gateway stops.
pub struct RunsOn<F: Future + Send + 'static> {
    work: Option<Pin<Box<F>>>,
    owner: Arc<Mcp>,
}

/// Runs the future that `make` returns.
pub fn runs_on<F: Future + Send + 'static>(owner: Arc<Mcp>, make: impl FnOnce() -> F) -> RunsOn<F> {
    RunsOn { work: Some(boxed(make)), owner }
}

impl<F: Future + Send + 'static> Future for RunsOn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F: Future + Send + 'static> Drop for RunsOn<F> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.work.take(), tokio::runtime::Handle::try_current()) {
            let stop = self.owner.stop.clone();
            let rest = async move { drop(stop.run_until_cancelled(work).await) };
            self.owner.tasks.spawn_on(rest, &runtime);
        }
    }
}
