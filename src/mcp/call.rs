//! A request that goes on to a server, and the answer to the client: plain JSON when the answer is all there is, an
//! event stream as soon as anything comes before it.

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
use crate::gateway::caller::{Caller, Owner};
use crate::gateway::forward::{Forward, Outbound, Refusal};
use crate::gateway::route::ReturnedState;
use crate::model::Capabilities;
use crate::wire::{Era, Head};

/// Where what comes before an answer can go.
#[derive(Clone)]
pub enum Beside {
    /// The client takes event streams: the answer becomes one when needed.
    NewStream,
    /// To a stream that is open already, as on HTTP+SSE.
    Stream(Outlet),
    /// The client takes nothing but the answer.
    Nowhere,
}

/// One round of a modern request.
pub struct Round {
    /// What a state of it is bound to.
    pub bond: Bond,
    /// The state of the round before.
    pub state: Option<ReturnedState>,
    /// What its client could be asked for.
    pub declared: Capabilities,
}

impl Mcp {
    /// Runs one request to its answer. `None` when the client cancelled it: nothing is to be said then.
    pub(super) async fn run_call(
        self: &Arc<Self>,
        caller: Arc<Caller>,
        id: Vec<u8>,
        head: &Head<'_>,
        message: &Bytes,
        beside: &Beside,
        round: Option<Round>,
    ) -> Option<Reply> {
        let in_flight = match caller.owner {
            Some(Owner::Session(serial)) => Some(self.lives.begin_call(serial, &id)),
            Some(Owner::Holder(_) | Owner::Anybody) | None => None,
        };
        let cancelled = in_flight.as_ref().map(|call| call.cancelled.clone());
        // Pinned here: moving a future costs as much as it is large.
        let call = Call { caller, id, round, in_flight };
        let run = pin!(self.answer(call, head, message, beside));
        match cancelled {
            Some(cancelled) => cancelled.run_until_cancelled(run).await,
            None => Some(run.await),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        call: Call,
        head: &Head<'_>,
        message: &Bytes,
        beside: &Beside,
    ) -> Reply {
        let Call { caller, id, mut round, mut in_flight } = call;
        let refused = |refusal: &Refusal| Reply::refusal(caller.era, &id, refusal);
        let state = round.as_mut().and_then(|round| round.state.take());
        let mut forward = match self.gateway.forward(caller.clone(), head, message, state).await {
            Ok(forward) => forward,
            Err(refusal) => return refused(&refusal),
        };
        loop {
            let outbound = match forward.next().await {
                Ok(Outbound::Answer(answer)) => return Reply::answer(answer),
                Ok(Outbound::InputRequired(answer)) => {
                    let asked = self.ask_for_input(answer, forward.server(), round.as_ref());
                    return asked.map_or_else(|refusal| refused(&refusal), Reply::whole);
                }
                Ok(outbound) => match refuse_question(outbound, round.as_ref()) {
                    Ok(outbound) => outbound,
                    Err(refusal) => return refused(&refusal),
                },
                Err(refusal) => return refused(&refusal),
            };
            let Some(message) = for_client(outbound, &caller, beside, in_flight.as_mut()) else { continue };
            match beside {
                Beside::Nowhere => {}
                Beside::Stream(outlet) => outlet.send(&message),
                Beside::NewStream => {
                    let (outlet, body) = stream::open();
                    outlet.send(&message);
                    let (mcp, call) = (self.clone(), Call { caller, id, round, in_flight });
                    self.tasks.spawn(async move { mcp.go_on(call, forward, outlet).await });
                    return Reply::events(body);
                }
            }
        }
    }
}

/// What is known of a call while it runs.
struct Call {
    caller: Arc<Caller>,
    /// As the client wrote it.
    id: Vec<u8>,
    round: Option<Round>,
    in_flight: Option<CallInFlight>,
}

impl Mcp {
    /// Carries the rest of a call whose answer has become a stream.
    async fn go_on(&self, call: Call, mut forward: Forward, outlet: Outlet) {
        let Call { caller, id, round, mut in_flight } = call;
        let cancelled = match caller.era {
            // The stream may break while the call goes on: disconnecting is not cancelling.
            Era::Legacy => in_flight.as_ref().map(|call| call.cancelled.clone()).unwrap_or_default(),
            Era::Modern => outlet.gone.clone(),
        };
        let refused = |refusal: &Refusal| Message::refusal(caller.era, &id, refusal).join();
        let carry = async {
            let beside = Beside::Stream(outlet.clone());
            loop {
                match forward.next().await {
                    Ok(Outbound::Answer(answer)) => return answer.message,
                    Ok(Outbound::InputRequired(answer)) => {
                        let asked = self.ask_for_input(answer, forward.server(), round.as_ref());
                        return asked.unwrap_or_else(|refusal| refused(&refusal));
                    }
                    Err(refusal) => return refused(&refusal),
                    Ok(outbound) => match refuse_question(outbound, round.as_ref()) {
                        Ok(outbound) => {
                            let message = for_client(outbound, &caller, &beside, in_flight.as_mut());
                            message.iter().for_each(|message| outlet.send(message));
                        }
                        Err(refusal) => return refused(&refusal),
                    },
                }
            }
        };
        if let Some(last) = cancelled.run_until_cancelled(carry).await {
            outlet.send(&last);
        }
        outlet.finish();
    }

    /// Passes on what a modern server asks for before it answers.
    fn ask_for_input(&self, answer: Bytes, server: &str, round: Option<&Round>) -> Result<Bytes, Refusal> {
        match round {
            Some(round) => Ok(self.states.wrap(answer, &round.bond, server)),
            None => Err(Refusal::Upstream(
                "the server asks for input in the way of revision 2026-07-28, which cannot be passed on to this client yet"
                    .into(),
            )),
        }
    }
}

/// A legacy server that asks for what a modern client did not declare cannot be served with this request.
fn refuse_question(outbound: Outbound, round: Option<&Round>) -> Result<Outbound, Refusal> {
    match (&outbound, round) {
        (Outbound::Request { message, replier }, Some(round)) => {
            match bridge::missing_capability(round.declared, message) {
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

/// What the client gets to see of something that came before the answer.
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
                if bridge::may_be_asked(caller.capabilities, &message) =>
            {
                in_flight.ask(&message, replier)
            }
            // Nobody could answer it.
            (Some(_) | None, _) => {
                replier.refuse(&message);
                None
            }
        },
    }
}

/// Work that goes on when whoever waits for it goes away.
pub struct RunsOn<F: Future + Send + 'static>(Option<Pin<Box<F>>>);

pub fn runs_on<F: Future + Send + 'static>(work: F) -> RunsOn<F> {
    RunsOn(Some(Box::pin(work)))
}

impl<F: Future + Send + 'static> Future for RunsOn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<F: Future + Send + 'static> Drop for RunsOn<F> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { drop(work.await) });
        }
    }
}
