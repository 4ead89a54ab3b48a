//! Input that a modern server asks a legacy client for: each of its requests becomes a request to the client, on the
//! stream of the call. When all are answered, the gateway sends the call again with the answers.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::need;
use crate::live::{CallInFlight, RoundAnswer};
use gateway::forward::{Forward, Pause};
use gateway::input::{InputRequest, InputRound};
use gateway::refusal::Refusal;
use model::Capabilities;
use seal::RandomPool;
use wire::{Patch, text, walk};

/// A round of requests that a client has to answer.
pub struct Asking {
    round: InputRound,
    /// Requests that were not sent to the client yet.
    unsent: VecDeque<Bytes>,
    answers: mpsc::UnboundedReceiver<RoundAnswer>,
    /// The answers so far, in the order of the requests.
    given: Vec<Option<Bytes>>,
    _pause: Pause,
}

impl Asking {
    /// Writes the requests for the client. `in_flight` is the call under whose session it answers; `None` if it cannot
    /// be asked.
    pub fn begin(
        round: InputRound,
        declared: &Capabilities,
        mut in_flight: Option<&mut CallInFlight>,
        pause: Pause,
    ) -> Result<Self, Refusal> {
        let (sender, answers) = mpsc::unbounded_channel();
        let (mut unsent, mut given) = (VecDeque::new(), Vec::new());
        for (index, request) in round.requests.iter().enumerate() {
            let answer = known_answer(request, declared)?;
            if answer.is_none() {
                let in_flight = in_flight.as_mut().ok_or_else(|| unreachable(request))?;
                let params = params_for_client(request);
                unsent.push_back(in_flight.ask_for_round(
                    &request.method,
                    params.as_deref(),
                    sender.clone(),
                    index,
                ));
            }
            given.push(answer);
        }
        Ok(Self { round, unsent, answers, given, _pause: pause })
    }

    /// The next request for the client that was not sent yet.
    pub fn unsent(&mut self) -> Option<Bytes> {
        self.unsent.pop_front()
    }

    /// Waits until the client has answered all requests. An error of the client ends the call.
    pub async fn answered(&mut self) -> Result<(), Refusal> {
        while self.given.iter().any(Option::is_none) {
            let gone = || Refusal::Upstream("the session of the client has ended".into());
            let (index, answer) = self.answers.recv().await.ok_or_else(gone)?;
            let refused = |error| {
                let method = &self.round.requests[index].method;
                Refusal::Upstream(format!(
                    "the client answered the {method} request of the server with an error: {error}"
                ))
            };
            let answer = answer.map_err(refused)?;
            self.given[index] = Some(answer);
        }
        Ok(())
    }

    /// Sends the call again with the answers.
    pub fn send_again(self, forward: &mut Forward) {
        let keys = self.round.requests.iter().map(|request| request.key.as_str());
        let answers: Vec<_> = keys.zip(self.given.iter().flatten().cloned()).collect();
        forward.answer_round(&self.round, &answers);
    }
}

/// The answer that needs no question to the client. An error if the client cannot be asked this.
fn known_answer(request: &InputRequest, declared: &Capabilities) -> Result<Option<Bytes>, Refusal> {
    let method = &request.method;
    if !need::is_question(method) {
        return Err(Refusal::Upstream(format!("the server sent the client an unknown request: {method:?}")));
    }
    match need::missing_capability(declared, method, request.params.as_deref()) {
        None => Ok(None),
        Some("roots") => Ok(Some(Bytes::from_static(br#"{"roots":[]}"#))),
        Some(missing) => Err(Refusal::Upstream(format!(
            "the server asks for input ({method}) that needs the client capability {missing:?}, which this client \
             did not declare"
        ))),
    }
}

fn unreachable(request: &InputRequest) -> Refusal {
    Refusal::Upstream(format!(
        "the server asks for input ({}), but this client cannot be asked: its request does not accept an event \
         stream",
        request.method
    ))
}

/// The params as a legacy client expects them: a page to visit has an id there.
fn params_for_client(request: &InputRequest) -> Option<Bytes> {
    let params = request.params.as_ref()?;
    let whole = 0..params.len();
    let mode = walk::member(params, &whole, "mode").and_then(|mode| text::unescape(&params[mode]));
    let has_id = walk::member(params, &whole, "elicitationId").is_some();
    if request.method != "elicitation/create" || mode.as_deref() != Some("url") || has_id {
        return Some(params.clone());
    }
    let mut patch = Patch::new(params);
    patch.set_member(&whole, "elicitationId", &text::quote(&random_id()));
    Some(patch.apply())
}

fn random_id() -> String {
    let bytes: [u8; 16] = RandomPool::default().take();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
