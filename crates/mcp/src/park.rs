//! Parks calls that wait for input of a modern client, and resumes them when the client comes back with it.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::Mcp;
use super::bridge::open_questions::{Answers, read_answers};
use super::bridge::parking::{Claimed, ParkedCall, Waits};
use super::bridge::state::{Bond, ParkedNumber};
use super::call::{Beside, ClientCall, Round};
use super::reply::{Message, Reply};
use gateway::answer::Answer;
use gateway::caller::Caller;
use gateway::forward::Forward;
use gateway::refusal::Refusal;
use wire::{Era, Head, OwnedId, Patch, authored, find_answer_id, text};

/// A request with which a client comes back to a parked call.
pub struct Resumption<'a> {
    pub caller: Arc<Caller>,
    pub id: OwnedId,
    pub head: &'a Head<'a>,
    pub message: &'a Bytes,
    pub beside: Beside,
    pub bond: Bond,
    pub parked: ParkedNumber,
}

impl Mcp {
    /// Parks a call until its client has answered the open questions; returns the response that asks for it.
    pub(super) fn park(self: &Arc<Self>, call: Box<ClientCall>, forward: Forward) -> Message {
        let server = forward.server().to_owned();
        self.park_call(call, &server, Waits::Call(Box::new(forward)))
    }

    /// Parks a call that the server refused until pages are visited.
    pub(super) fn park_for_pages(
        self: &Arc<Self>,
        call: Box<ClientCall>,
        server: &str,
        refused: Answer,
    ) -> Message {
        self.park_call(call, server, Waits::Pages(refused))
    }

    fn park_call(self: &Arc<Self>, call: Box<ClientCall>, server: &str, waits: Waits) -> Message {
        let ClientCall { caller, id, round, open, trail, .. } = *call;
        let Some(round) = round else {
            let refusal = Refusal::Upstream("only a modern client comes back to its call".into());
            return Message::refusal(caller.profile.era, &id, &refusal);
        };
        let parked = ParkedNumber { server: server.to_owned(), number: self.new_serial() };
        let (client, usage) = (caller.viewer.principal, self.gateway.usage(caller.viewer.principal));
        let added = self.parking.add(parked.number, client, open.keys(), &usage, self.gateway.budgets());
        let claimed = match added {
            Ok(claimed) => claimed,
            Err(exceeded) => return Message::refusal(Era::Modern, &id, &Refusal::from(exceeded)),
        };
        let state = text::quote(&self.states.of_parked(&round.bond, &parked));
        let result = authored::object(&[
            ("resultType", br#""input_required""#),
            ("inputRequests", &open.to_json()),
            ("requestState", &state),
        ]);
        let (mcp, call) = (self.clone(), ParkedCall { open, waits, trail: trail.clone() });
        let revoked = caller.revoked.clone().unwrap_or_default();
        self.tasks.spawn(async move {
            let kept = pin!(mcp.keep_parked(parked.number, call, claimed));
            let kept = trail.within(kept);
            if revoked.run_until_cancelled(kept).await.is_none() {
                // Nobody can come back to it.
                mcp.parking.take(parked.number);
            }
        });
        Message::whole(authored::result(&id, &result))
    }

    /// Keeps a parked call until its client comes back or it ends for another reason.
    async fn keep_parked(&self, number: u64, mut parked: ParkedCall, claimed: Claimed) {
        let (claim, is_late) = {
            let kept = async {
                if let Waits::Call(forward) = &mut parked.waits {
                    forward.keep().await;
                }
                std::future::pending::<()>().await
            };
            tokio::select! {
                biased;
                claim = claimed => (claim.ok(), false),
                () = self.stop.cancelled() => (None, false),
                () = tokio::time::sleep(self.gateway.budgets().limits.answer_time) => (None, true),
                () = kept => (None, false),
            }
        };
        if let (true, Waits::Call(forward)) = (is_late, &mut parked.waits) {
            forward.is_abandoned();
        }
        self.parking.take(number);
        if let Some(back) = claim {
            // If the client is gone again, the call ends here.
            let _ = back.send(parked);
        }
    }

    /// Goes on with a parked call. Everything is checked before the state is used up.
    pub(super) async fn resume(self: &Arc<Self>, resumption: Resumption<'_>) -> Reply {
        let (mut parked, answers) = match self.claim(&resumption).await {
            Ok(claimed) => claimed,
            Err(refusal) => {
                let trail = self.trail_of_refused(&resumption.caller, resumption.head);
                return Reply::refused_call(Era::Modern, resumption.head, &refusal, &trail);
            }
        };
        let Resumption { caller, id, head, message, beside, bond, parked: ParkedNumber { server, .. } } =
            resumption;
        // In this order: what the server asks next already belongs to this request.
        if let Waits::Call(forward) = &mut parked.waits {
            forward.hand_over(head);
        }
        let agreed = parked.open.answer(&answers);
        let declared = caller.profile.capabilities.clone();
        let round = Some(Round { bond, state: None, declared });
        let trail = parked.trail;
        match parked.waits {
            Waits::Call(forward) => {
                if !parked.open.is_empty() {
                    parked.open.gather();
                }
                let open = parked.open;
                let call =
                    Box::new(ClientCall { caller, id, round, in_flight: None, open, asking: None, trail });
                self.answer(call, *forward, &beside).await
            }
            Waits::Pages(refused) if !agreed => Reply::answer(with_id(refused, &id)).to_call(&trail),
            Waits::Pages(_) if parked.open.is_empty() => {
                let call = ClientCall::new(caller, id, round, trail);
                let reply = self.run_call(call, head, message, &beside).await;
                reply.unwrap_or_else(Reply::accepted)
            }
            Waits::Pages(refused) => {
                let (open, until_sent) = (parked.open, trail.clone());
                let call =
                    Box::new(ClientCall { caller, id, round, in_flight: None, open, asking: None, trail });
                Reply::message(self.park_for_pages(call, &server, refused)).to_call(&until_sent)
            }
        }
    }

    /// Takes a parked call out for the client that came back to it, with the answers that it brought.
    async fn claim(&self, resumption: &Resumption<'_>) -> Result<(ParkedCall, Answers), Refusal> {
        let Resumption { caller, head, parked, .. } = resumption;
        self.gateway.reaches(caller, head, &parked.server).await?;
        let over = || Refusal::Invalid("params.requestState was already used or has expired".into());
        let keys = self.parking.keys(parked.number).ok_or_else(over)?;
        let answers = read_answers(head, &keys)?;
        let claim = self.parking.take(parked.number).ok_or_else(over)?;
        let (back, call) = oneshot::channel();
        claim.send(back).map_err(|_| over())?;
        Ok((call.await.map_err(|_| over())?, answers))
    }
}

/// An answer to another request of the same caller.
fn with_id(answer: Answer, id: &[u8]) -> Answer {
    let message = answer.message();
    let Some(span) = find_answer_id(&message) else { return answer };
    let mut patch = Patch::new(&message);
    patch.replace(span, id);
    Answer { pieces: patch.apply_in_pieces(&message), fault: answer.fault }
}
