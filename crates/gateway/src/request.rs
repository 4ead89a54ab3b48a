//! Requests that the gateway writes: calls, reads and renders for people over REST, and requests of the gateway itself.
//! The engine sends them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::caller::{Logs, Owner, Profile};
use super::catalog::Entry;
use super::disclosure::Disclosure;
use super::ending::CalledTool;
use super::engine::{Call, CallRequest, Failure, Payer};
use super::input::{self, InputRound};
use super::interview::{CallEvent, CallListener, Interview, PersonsAnswer, Progressed};
use super::trail::Trail;
use super::wording::{Authored, Wording};
use super::{Error, Gateway};
use budget::Bound;
use model::Redactor;
use upstream::{CallError, Inbound, Purpose};
use wire::error::code;
use wire::{Response, RpcError};

/// A request that the gateway writes, and how it may be sent.
pub struct OwnRequest<'a> {
    pub method: &'static str,
    /// The members of `params`, values as JSON.
    pub params: &'a [(&'static str, &'a [u8])],
    /// The name of the tool under which the call is counted.
    pub tool: Option<&'a str>,
    /// Whether the server may run it twice without harm.
    pub is_repeatable: bool,
    /// Who follows the call, if anybody does.
    pub listener: Option<CallListener>,
    /// Decides which link it uses, and who pays for it.
    pub profile: Profile,
    /// What is recorded of it.
    pub trail: Trail,
}

/// Why a request has no result.
#[derive(Debug)]
pub enum NoResult {
    Failed(Failure),
    /// The server's own error.
    Rpc {
        code: i64,
        message: String,
        data: Option<Bytes>,
    },
    /// The server asked for input, which this caller cannot give; the text says for what.
    NeedsInput(String),
    /// The caller refused to give the input that the server asked for.
    InputRefused,
}

impl Gateway {
    /// Sends a request and returns the `result` of the response, as the server wrote it.
    pub(super) async fn ask(&self, entry: &Arc<Entry>, request: OwnRequest<'_>) -> Result<Bytes, NoResult> {
        let OwnRequest { method, params, tool, is_repeatable, listener, profile, trail } = request;
        let payer = profile.owner.and_then(|owner| payer(method, owner));
        let params = params.iter().map(|(key, value)| (*key, value.to_vec())).collect();
        // Subscriptions are the gateway's own: what the server asks meanwhile has nothing to do with them.
        let purpose = match method {
            "resources/subscribe" | "resources/unsubscribe" => Purpose::OurOwn,
            _ => Purpose::Caller(match profile.owner {
                Some(Owner::Principal(principal)) => Some(principal),
                Some(Owner::Session(_) | Owner::Anybody | Owner::Link(_)) | None => None,
            }),
        };
        let (round, capabilities) = (Vec::new(), profile.capabilities.to_json());
        let logs = listener.as_ref().map_or(Logs::None, |listener| listener.logs);
        let wants_progress = listener.is_some();
        let authored = Authored { method, params, round, capabilities, wants_progress, logs, purpose };
        let call_request = CallRequest {
            entry: entry.clone(),
            wording: Wording::Authored(authored),
            profile,
            is_repeatable,
            revoked: None,
            payer,
            only_waits: false,
            trail: trail.clone(),
        };
        let owner = call_request.profile.owner.unwrap_or(Owner::Anybody);
        let tool = tool.map(|tool| CalledTool::of(&call_request.entry, tool));
        let begun = self.begin_call(call_request, tool, None).await;
        let mut call = begun.map_err(NoResult::Failed)?;
        let result = match listener {
            Some(listener) => Box::pin(self.converse(&mut call, owner, listener)).await,
            None => receive(&mut call).await,
        };
        match &result {
            Err(NoResult::NeedsInput(wanted)) => {
                call.fails_because(&format!("the tool asks for input ({wanted}), which needs an MCP client"));
            }
            Err(NoResult::InputRefused) => call.fails_because("the caller refused to give input"),
            Ok(_) | Err(NoResult::Failed(_) | NoResult::Rpc { .. }) => {}
        }
        result
    }

    /// Receives the result of a call for a caller that follows it: shows progress, and asks what the server asks.
    async fn converse(
        &self,
        call: &mut Call,
        owner: Owner,
        listener: CallListener,
    ) -> Result<Bytes, NoResult> {
        let mut interview: Option<Interview<'_>> = None;
        loop {
            let step = next_step(call, interview.as_mut()).await;
            let begin = || self.interviews.begin(owner, listener.events.clone(), self.slot());
            match step {
                Step::Inbound(inbound) => match inbound.map_err(NoResult::Failed)? {
                    Inbound::Notice(notice) => {
                        if let Some(event) = CallEvent::of(&notice, listener.logs) {
                            // A slow reader misses some notices, but never the result.
                            let _ = listener.events.try_send(event);
                        }
                    }
                    Inbound::Request(request) if !listener.can_answer() => {
                        return Err(refuse(call, request));
                    }
                    Inbound::Request(request) => {
                        if let Some(question) = call.question(request, None) {
                            interview.get_or_insert_with(begin).ask(question).await;
                        }
                    }
                    Inbound::Answer(answer) if listener.can_answer() && asks(call, &answer) => {
                        let round = call.input_round(&answer);
                        let round = round.map_err(|reason| failed(call, CallError::Lost(reason)))?;
                        let until = Instant::now() + self.budgets().limits.answer_time;
                        let pause = call.pause();
                        let interview = interview.get_or_insert_with(begin);
                        interview.ask_round(round, until, pause).await;
                        if let Progressed::SendAgain(members) = interview.send_again() {
                            call.again(members);
                        }
                    }
                    Inbound::Answer(answer) => return read_result(&answer),
                },
                Step::Answer(answer) => match interview.as_mut().map(|interview| interview.take(answer)) {
                    Some(Progressed::SendAgain(members)) => call.again(members),
                    Some(Progressed::Refused) => return Err(NoResult::InputRefused),
                    Some(Progressed::No) | None => {}
                },
                Step::Overdue => {
                    let seconds = self.budgets().limits.answer_time.as_secs();
                    let exceeded = self.budgets().exceeded(Bound::AnswerTime, seconds);
                    return Err(failed(call, CallError::Exceeded(exceeded.to_string())));
                }
            }
        }
    }
}

/// Counts a call as failed although its server responded, since it cannot go on.
fn failed(call: &mut Call, error: CallError) -> NoResult {
    call.fails_because(&error.to_string());
    NoResult::Failed(Failure::Call(error))
}

/// What happens next in a call whose caller may be asked.
enum Step {
    Inbound(Result<Inbound, Failure>),
    Answer(PersonsAnswer),
    /// The caller did not answer in time.
    Overdue,
}

async fn next_step(call: &mut Call, interview: Option<&mut Interview<'_>>) -> Step {
    let Some(interview) = interview else { return Step::Inbound(call.next().await) };
    match interview.round_until() {
        // Between two rounds nothing comes from the server.
        Some(until) => tokio::select! {
            answer = interview.next_answer() => Step::Answer(answer),
            () = sleep_until(until) => Step::Overdue,
        },
        None => tokio::select! {
            biased;
            inbound = call.next() => Step::Inbound(inbound),
            answer = interview.next_answer() => Step::Answer(answer),
        },
    }
}

/// Whether a response asks for input: as modern servers do, or with an error that names pages to visit.
fn asks(call: &Call, response: &Response) -> bool {
    let names_pages = |error: RpcError<'_>| {
        error.is(code::URL_ELICITATION_REQUIRED) && !input::pages(response.message()).is_empty()
    };
    match response.error() {
        Some(error) => names_pages(error),
        None => call.is_modern() && response.asks_for_input(),
    }
}

async fn receive(call: &mut Call) -> Result<Bytes, NoResult> {
    loop {
        match call.next().await.map_err(NoResult::Failed)? {
            Inbound::Answer(answer) => return read_result(&answer),
            Inbound::Notice(_) => {}
            Inbound::Request(request) => return Err(refuse(call, request)),
        }
    }
}

/// Cancels a call whose server asks something, and refuses the question, since this caller cannot be asked. In this order:
/// a server must not go on with the call, and some lose their session if they have ended the call themselves when it is
/// cancelled.
fn refuse(call: &mut Call, request: Bytes) -> NoResult {
    let question = call.question(request, None);
    call.give_back();
    let Some(question) = question else { return NoResult::NeedsInput(String::new()) };
    let wanted = input::in_words(question.method(), question.params());
    question.refuse();
    NoResult::NeedsInput(wanted)
}

fn read_result(response: &Response) -> Result<Bytes, NoResult> {
    match response.result_span() {
        Some(_) if response.asks_for_input() => {
            let round = InputRound::read(response).map(|round| round.requests).unwrap_or_default();
            let wanted: Vec<_> = round
                .iter()
                .map(|request| input::in_words(&request.method, request.params.as_deref()))
                .collect();
            Err(NoResult::NeedsInput(wanted.join(", ")))
        }
        Some(_) if response.is_task() => Err(NoResult::Rpc {
            code: code::INTERNAL_ERROR.into(),
            message: "the server answered with a task, which needs an MCP client".into(),
            data: None,
        }),
        Some(result) => Ok(response.message().slice(result.clone())),
        None => Err(NoResult::of(response.error())),
    }
}

impl NoResult {
    fn of(error: Option<RpcError<'_>>) -> Self {
        match error {
            // A caller that does not follow its call declares no capabilities, and cannot be asked to open a page.
            Some(error) if error.is(code::MISSING_CLIENT_CAPABILITY) => {
                NoResult::NeedsInput(error.message.into_owned())
            }
            Some(error) if error.is(code::URL_ELICITATION_REQUIRED) => {
                NoResult::NeedsInput(format!("a page to visit: {}", error.message))
            }
            Some(error) => NoResult::Rpc {
                code: error.code,
                message: error.message.into_owned(),
                data: error.data.map(Bytes::copy_from_slice),
            },
            None => NoResult::Rpc {
                code: code::INTERNAL_ERROR.into(),
                message: "the server answered with an error that has no code".into(),
                data: None,
            },
        }
    }

    /// The error for the caller; `what` names the thing that was requested of this server.
    pub fn explain(self, what: &str, entry: &Entry, disclosure: Disclosure) -> Error {
        let sentence = match self {
            NoResult::Failed(Failure::Disabled) => return disabled(entry),
            NoResult::Failed(Failure::Throttled(throttled)) => return throttled.into(),
            NoResult::Failed(Failure::Revoked) => format!("{what} was cancelled: the token was revoked"),
            NoResult::Failed(Failure::Call(CallError::NoRoom(exceeded))) => return Error::no_room(exceeded),
            NoResult::Failed(Failure::Unanswered(error) | Failure::Call(error)) => {
                disclosure.sentence(what, &error, entry)
            }
            NoResult::Rpc { code, message, .. } => format!("{what} failed: {message} (code {code})"),
            NoResult::NeedsInput(wanted) => format!(
                "{what} asks for input while it runs: {wanted}; that needs an MCP client, connected to /mcp, or a \
                 caller that accepts an event stream and answers"
            ),
            NoResult::InputRefused => format!("{what} ended because the input that it asked for was refused"),
        };
        Error::upstream(Redactor::of(&entry.registration.config).redact(&sentence))
    }
}

/// The payer of a person's request.
fn payer(method: &str, owner: Owner) -> Option<Payer> {
    match owner {
        Owner::Principal(principal) => Payer::of(method, Some(principal)),
        Owner::Anybody => Payer::of(method, None),
        // Sessions belong to agents, whose requests are passed on.
        Owner::Session(_) => None,
        // The gateway of the link has charged them.
        Owner::Link(_) => None,
    }
}

/// The error for a disabled server.
pub fn disabled(entry: &Entry) -> Error {
    Error::invalid(format!("server {:?} is disabled", entry.name().as_str()))
}
