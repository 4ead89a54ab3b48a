//! One request to a registered server, until its result: waits for a free place and for the link, sends, and sends
//! once more where the link turned out to be dead and that is safe. Dropping the future cancels it upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Error;
use super::catalog::Entry;
use crate::model::{Capabilities, Redactor};
use crate::upstream::{CallError, Inbound, Link, Owner, Purpose, Request, Upstream};
use crate::wire::error::code;
use crate::wire::{Head, RpcError};

pub struct Call<'a> {
    pub method: &'a str,
    /// The members of `params`, values as JSON.
    pub params: &'a [(&'a str, &'a [u8])],
    /// Whether it does no harm if the server runs it twice.
    pub is_repeatable: bool,
    pub progress: Option<mpsc::Sender<Bytes>>,
    /// Who it is for at a stateful server; none where the gateway itself wants to know.
    pub owner: Option<Owner>,
}

/// How a call went, short of a result.
pub enum Failure {
    /// The server is switched off.
    Disabled,
    Call(CallError),
    /// The upstream's own error, in its words.
    Rpc {
        code: i64,
        message: String,
        data: Option<Bytes>,
    },
    /// The server asked for something that only an MCP client can give.
    NeedsInput,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Failure::Call(error)
    }
}

impl Call<'_> {
    /// The `result` of the answer, as the upstream wrote it.
    pub async fn run(self, entry: &Entry) -> Result<Bytes, Failure> {
        let upstream = entry.upstream.as_ref().ok_or(Failure::Disabled)?;
        match entry.registration.config.timeout() {
            None => self.run_on(upstream).await,
            Some(limit) => within(limit, self.run_on(upstream)).await,
        }
    }

    async fn run_on(self, upstream: &Upstream) -> Result<Bytes, Failure> {
        let _permit = upstream.permit().await;
        let mut is_replay = false;
        loop {
            let link = upstream.link_for(Capabilities::NONE, self.owner).await?;
            let error = match self.run_once(&link).await {
                Err(Failure::Call(error)) => error,
                settled => return settled,
            };
            if error.did_not_run() {
                upstream.report(&link, &error);
            }
            let may_repeat = matches!(error, CallError::Lost(_)) && self.is_repeatable;
            if is_replay || !(error.did_not_run() || may_repeat) {
                return Err(error.into());
            }
            is_replay = true;
        }
    }

    async fn run_once(&self, link: &Arc<Link>) -> Result<Bytes, Failure> {
        let request = Request {
            method: self.method,
            params: self.params,
            progress: self.progress.is_some(),
            purpose: Purpose::Caller,
        };
        let mut exchange = link.request(request).await?;
        loop {
            match exchange.next().await? {
                Inbound::Answer(answer) => return read_result(&answer),
                Inbound::Notice(notice) => {
                    if let (Some(progress), Some(params)) = (&self.progress, progress_in(&notice)) {
                        // Somebody who reads slowly misses steps, never the result.
                        let _ = progress.try_send(params);
                    }
                }
                Inbound::Request(request) => {
                    exchange.refuse(&request);
                    return Err(Failure::NeedsInput);
                }
            }
        }
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(limit, call).await.unwrap_or(Err(Failure::Call(CallError::TimedOut(limit))))
}

fn read_result(answer: &Bytes) -> Result<Bytes, Failure> {
    let head = Head::parse(answer)
        .map_err(|error| Failure::Call(CallError::Lost(format!("the answer is not understood: {error}"))))?;
    if let Some(span) = head.error {
        return Err(Failure::of(RpcError::parse(&answer[span])));
    }
    let result = head.result.map(|span| answer.slice(span)).unwrap_or_default();
    match super::invoke::members(&result).get("resultType") {
        Some(kind) if kind.get() == r#""input_required""# => Err(Failure::NeedsInput),
        Some(_) | None => Ok(result),
    }
}

/// The params of a progress notice.
fn progress_in(notice: &Bytes) -> Option<Bytes> {
    let head = Head::parse(notice).ok()?;
    let params = head.params.filter(|_| head.method.as_deref() == Some("notifications/progress"))?;
    Some(notice.slice(params.span))
}

impl Failure {
    fn of(error: Option<RpcError<'_>>) -> Self {
        match error {
            // A caller over REST declares no capabilities, and nobody is there to open a page.
            Some(error)
                if error.is(code::MISSING_CLIENT_CAPABILITY) || error.is(code::URL_ELICITATION_REQUIRED) =>
            {
                Failure::NeedsInput
            }
            Some(error) => Failure::Rpc {
                code: error.code,
                message: error.message.into_owned(),
                data: error.data.map(Bytes::copy_from_slice),
            },
            None => Failure::Rpc {
                code: code::INTERNAL_ERROR.into(),
                message: "the server answered with an error that has no code".into(),
                data: None,
            },
        }
    }

    /// The sentence for whoever wanted `what` of this server.
    pub fn explain(self, what: &str, entry: &Entry) -> Error {
        let sentence = match self {
            Failure::Disabled => {
                return Error::invalid(format!("server {:?} is disabled", entry.name().as_str()));
            }
            Failure::Call(error) => format!("{what} failed: {error}"),
            Failure::Rpc { code, message, .. } => format!("{what} failed: {message} (code {code})"),
            Failure::NeedsInput => {
                format!("{what} asks for input while it runs, which needs an MCP client; connect one to /mcp")
            }
        };
        Error::upstream(Redactor::of(&entry.registration.config).redact(&sentence))
    }
}
