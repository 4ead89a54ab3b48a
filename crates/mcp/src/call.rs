//! A request that is forwarded to a server, and the response to the client: plain JSON if there is only the answer, an
//! event stream as soon as another message comes before it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::bridge::state::Bond;
use super::live::CallInFlight;
use super::reply::{Message, Reply};
use super::stream::{self, Outlet};
use super::{Mcp, bridge};
use gateway::answer::Answer;
use gateway::caller::{Caller, Owner};
use gateway::destination::ReturnedState;
use gateway::forward::{Forward, Outbound};
use gateway::refusal::Refusal;
use model::Capabilities;
use wire::{Era, Head};

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

/// A message of a call for its client. The last three variants end the call.
enum Pumped {
    /// Progress, a log message or a server's request, before the answer.
    Before(Bytes),
    Answer(Answer),
    /// The server asks for input; the client then sends the request again with it.
    Input(Bytes),
    Refused(Refusal),
}

/// The state of a running call.
struct ClientCall {
    caller: Arc<Caller>,
    /// The id of the request, as the client wrote it.
    id: Vec<u8>,
    round: Option<Round>,
    in_flight: Option<CallInFlight>,
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
        caller: Arc<Caller>,
        id: Vec<u8>,
        head: &Head<'_>,
        message: &Bytes,
        beside: &Beside,
        round: Option<Round>,
    ) -> Option<Reply> {
        let in_flight = match caller.profile.owner {
            Some(Owner::Session(serial)) => Some(self.lives.begin_call(serial, &id)),
            Some(Owner::Principal(_) | Owner::Anybody) | None => None,
        };
        let cancelled = in_flight.as_ref().map(|call| call.cancelled.clone());
        // Pinned here, because moving a large future is expensive.
        let call = ClientCall { caller, id, round, in_flight };
        let run = pin!(self.answer(call, head, message, beside));
        match cancelled {
            Some(cancelled) => cancelled.run_until_cancelled(run).await,
            None => Some(run.await),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        mut call: ClientCall,
        head: &Head<'_>,
        message: &Bytes,
        beside: &Beside,
    ) -> Reply {
        let state = call.round.as_mut().and_then(|round| round.state.take());
        let mut forward = match self.gateway.forward(call.caller.clone(), head, message, state).await {
            Ok(forward) => forward,
            Err(refusal) => return Reply::refusal(call.caller.profile.era, &call.id, &refusal),
        };
        loop {
            let message = match self.pump(&mut call, &mut forward, beside).await {
                Pumped::Before(message) => message,
                Pumped::Answer(answer) => return Reply::answer(answer),
                Pumped::Input(answer) => return Reply::whole(answer),
                Pumped::Refused(refusal) => {
                    return Reply::refusal(call.caller.profile.era, &call.id, &refusal);
                }
            };
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
                    self.tasks.spawn(async move { mcp.go_on(call, forward, outlet).await });
                    return Reply::events(body);
                }
            }
        }
    }

    /// Carries the rest of a call whose response has become a stream.
    async fn go_on(&self, mut call: ClientCall, mut forward: Forward, outlet: Outlet) {
        let cancelled = match call.caller.profile.era {
            // The stream may break while the call goes on: disconnecting is not cancelling.
            Era::Legacy => call.in_flight.as_ref().map(|call| call.cancelled.clone()).unwrap_or_default(),
            Era::Modern => outlet.gone.clone(),
        };
        let carry = async {
            let beside = Beside::Stream(outlet.clone());
            loop {
                match self.pump(&mut call, &mut forward, &beside).await {
                    Pumped::Before(message) => {
                        outlet.room().await;
                        outlet.send(&message);
                    }
                    Pumped::Answer(answer) => return answer.message,
                    Pumped::Input(answer) => return answer,
                    Pumped::Refused(refusal) => {
                        return Message::refusal(call.caller.profile.era, &call.id, &refusal).join();
                    }
                }
            }
        };
        if let Some(last) = cancelled.run_until_cancelled(carry).await {
            outlet.send(&last);
        }
        outlet.finish();
    }

    /// Waits for the next message of a call for its client.
    async fn pump(&self, call: &mut ClientCall, forward: &mut Forward, beside: &Beside) -> Pumped {
        loop {
            let outbound = match forward.next().await {
                Ok(Outbound::Answer(answer)) => return Pumped::Answer(answer),
                Ok(Outbound::InputRequired(answer)) => {
                    match self.ask_for_input(answer, forward.server(), call.round.as_ref()) {
                        Ok(asked) => return Pumped::Input(asked),
                        Err(refusal) => {
                            forward.fails_because(&refusal);
                            return Pumped::Refused(refusal);
                        }
                    }
                }
                Ok(outbound) => outbound,
                Err(refusal) => return Pumped::Refused(refusal),
            };
            let outbound = match refuse_question(outbound, call.round.as_ref()) {
                Ok(outbound) => outbound,
                Err(refusal) => {
                    forward.fails_because(&refusal);
                    return Pumped::Refused(refusal);
                }
            };
            if let Some(message) = for_client(outbound, &call.caller, beside, call.in_flight.as_mut()) {
                return Pumped::Before(message);
            }
        }
    }

    /// Passes on the input that a modern server asks for before it answers.
    fn ask_for_input(&self, answer: Bytes, server: &str, round: Option<&Round>) -> Result<Bytes, Refusal> {
        match round {
            Some(round) => Ok(self.states.wrap(answer, &round.bond, server)),
            None => Err(Refusal::Upstream(
                "the server asks for input as revision 2026-07-28 defines it, which cannot be passed on to this client"
                    .into(),
            )),
        }
    }
}

/// Refuses a legacy server's request that needs a capability which the modern client did not declare; the call then
/// fails.
fn refuse_question(outbound: Outbound, round: Option<&Round>) -> Result<Outbound, Refusal> {
    match (&outbound, round) {
        (Outbound::Request { message, replier }, Some(round)) => {
            match bridge::missing_capability(&round.declared, message) {
                Some(name) => {
                    replier.refuse(message);
                    Err(Refusal::MissingCapability(name))
                }
                None => Ok(outbound),
            }
        }
        (Outbound::Request { .. }, None) => Ok(outbound),
        (Outbound::Notice(_) | Outbound::InputRequired(_) | Outbound::Answer(_), _) => Ok(outbound),
    }
}

/// The message for the client, if what came before the answer is passed on.
fn for_client(
    outbound: Outbound,
    caller: &Caller,
    beside: &Beside,
    in_flight: Option<&mut CallInFlight>,
) -> Option<Bytes> {
    match outbound {
        Outbound::Answer(_) | Outbound::InputRequired(_) => None,
        Outbound::Notice(notice) => bridge::log_passes(&notice, caller.logs).then_some(notice),
        Outbound::Request { message, replier } => match (in_flight, beside) {
            (Some(in_flight), Beside::NewStream | Beside::Stream(_))
                if bridge::may_be_asked(&caller.profile.capabilities, &message) =>
            {
                in_flight.ask(&message, replier)
            }
            // The client could not answer it.
            (Some(_) | None, _) => {
                replier.refuse(&message);
                None
            }
        },
    }
}

/// A future whose work continues in the background when it is dropped, until the gateway stops.
pub struct RunsOn<F: Future + Send + 'static> {
    work: Option<Pin<Box<F>>>,
    owner: Arc<Mcp>,
}

pub fn runs_on<F: Future + Send + 'static>(owner: Arc<Mcp>, work: F) -> RunsOn<F> {
    RunsOn { work: Some(Box::pin(work)), owner }
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
