//! Requests that the gateway writes: calls, reads and renders for people over REST, and requests of the gateway itself.
//! The engine sends them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::caller::{Owner, Profile};
use super::catalog::Entry;
use super::disclosure::Disclosure;
use super::engine::{Call, CallRequest, Failure, Payer};
use super::wording::{Authored, Wording};
use super::{Error, Gateway};
use model::Redactor;
use upstream::{CallError, Inbound, Purpose};
use wire::error::code;
use wire::{Head, Response, RpcError};

/// A request that the gateway writes, and how it may be sent.
pub struct OwnRequest<'a> {
    pub method: &'static str,
    /// The members of `params`, values as JSON.
    pub params: &'a [(&'static str, &'a [u8])],
    /// The name of the tool under which the call is counted.
    pub tool: Option<&'a str>,
    /// Whether the server may run it twice without harm.
    pub is_repeatable: bool,
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// Decides which link it uses, and who pays for it.
    pub profile: Profile,
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
    /// The server asked for input, which only an MCP client can give.
    NeedsInput,
}

impl Gateway {
    /// Sends a request and returns the `result` of the response, as the server wrote it.
    pub(super) async fn ask(&self, entry: &Arc<Entry>, request: OwnRequest<'_>) -> Result<Bytes, NoResult> {
        let OwnRequest { method, params, tool, is_repeatable, progress, profile } = request;
        let payer = profile.owner.and_then(|owner| payer(method, owner));
        let params = params.iter().map(|(key, value)| (*key, value.to_vec())).collect();
        // Subscriptions are the gateway's own: what the server asks meanwhile has nothing to do with them.
        let purpose = match method {
            "resources/subscribe" | "resources/unsubscribe" => Purpose::OurOwn,
            _ => Purpose::Caller,
        };
        let (round, capabilities) = (Vec::new(), profile.capabilities.to_json());
        let authored =
            Authored { method, params, round, capabilities, wants_progress: progress.is_some(), purpose };
        let call_request = CallRequest {
            entry: entry.clone(),
            wording: Wording::Authored(authored),
            profile,
            is_repeatable,
            revoked: None,
            payer,
        };
        let begun = self.begin_call(call_request, tool.map(str::to_owned), None).await;
        let mut call = begun.map_err(NoResult::Failed)?;
        let result = receive(&mut call, progress).await;
        if matches!(result, Err(NoResult::NeedsInput)) {
            call.fails_because("the tool asks for input, which needs an MCP client");
        }
        result
    }
}

async fn receive(call: &mut Call, progress: Option<mpsc::Sender<Bytes>>) -> Result<Bytes, NoResult> {
    loop {
        match call.next().await.map_err(NoResult::Failed)? {
            Inbound::Answer(answer) => return read_result(&answer),
            Inbound::Notice(notice) => {
                if let (Some(progress), Some(params)) = (&progress, progress_in(&notice)) {
                    // A slow reader misses some progress, but never the result.
                    let _ = progress.try_send(params);
                }
            }
            Inbound::Request(request) => {
                call.refuse(&request);
                return Err(NoResult::NeedsInput);
            }
        }
    }
}

fn read_result(response: &Response) -> Result<Bytes, NoResult> {
    match response.result_span() {
        Some(_) if response.asks_for_input() => Err(NoResult::NeedsInput),
        Some(result) => Ok(response.message().slice(result.clone())),
        None => Err(NoResult::of(response.error())),
    }
}

/// The params of a progress notice.
fn progress_in(notice: &Bytes) -> Option<Bytes> {
    let head = Head::parse(notice).ok()?;
    let params = head.params.filter(|_| head.method.as_deref() == Some("notifications/progress"))?;
    Some(notice.slice(params.span))
}

impl NoResult {
    fn of(error: Option<RpcError<'_>>) -> Self {
        match error {
            // A caller over REST declares no capabilities, and cannot be asked to open a page.
            Some(error)
                if error.is(code::MISSING_CLIENT_CAPABILITY) || error.is(code::URL_ELICITATION_REQUIRED) =>
            {
                NoResult::NeedsInput
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
            NoResult::Failed(Failure::Revoked) => format!("{what} was ended: the token was revoked"),
            NoResult::Failed(Failure::Call(CallError::NoRoom(exceeded))) => return Error::no_room(exceeded),
            NoResult::Failed(Failure::Call(error)) => disclosure.sentence(what, &error, entry),
            NoResult::Rpc { code, message, .. } => format!("{what} failed: {message} (code {code})"),
            NoResult::NeedsInput => {
                format!("{what} asks for input while it runs, which needs an MCP client; connect one to /mcp")
            }
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
    }
}

/// The error for a disabled server.
pub fn disabled(entry: &Entry) -> Error {
    Error::invalid(format!("server {:?} is disabled", entry.name().as_str()))
}
