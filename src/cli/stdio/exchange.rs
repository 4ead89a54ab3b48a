//! Messages from the client to the gateway, and the answers to its requests.

use bytes::Bytes;
use reqwest::header::HeaderMap;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::endpoint::{EndpointError, McpResponse, is_answer};
use super::in_flight::Registered;
use super::param_headers::{is_header_mismatch, list_request};
use super::session::UNKNOWN_SESSION;
use wire::error::code;
use wire::{Era, Head, MessageKind, RpcError, authored};

impl Connection {
    /// Sends `initialize` and takes over the session that it opens. Tells whether there is one.
    pub async fn initialize(&self, message: &Bytes, id: &[u8]) -> bool {
        let opened = async {
            let mut response =
                self.endpoint.post(message, HeaderMap::new(), &CancellationToken::new()).await?;
            let session = response.session.clone();
            let answer = self.pass_on(&mut response, Some(id)).await?;
            Ok((session, answer))
        };
        match opened.await {
            Ok((session, answer)) => {
                if let Some(earlier) = self.session.begin(message, session, &answer) {
                    self.endpoint.end_session(&earlier).await;
                }
            }
            Err(error) => self.fail(Some(id), &error).await,
        }
        self.session.headers().is_some()
    }

    /// Sends a request and passes on everything that comes back, up to its answer.
    pub async fn answer(&self, message: Bytes, request: Registered) {
        let cancelled = &request.pending.cancelled;
        let answered = match request.pending.era {
            Era::Legacy => self.answer_legacy(&message, &request).await,
            // Closing the response is how a request of this era is cancelled.
            Era::Modern => {
                let answered = cancelled.run_until_cancelled(self.answer_modern(&message, &request)).await;
                answered.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = answered
            && !cancelled.is_cancelled()
        {
            self.fail(Some(&request.id), &error).await;
        }
    }

    /// Sends several messages at once, as revision 2025-03-26 allows it.
    pub async fn answer_batch(&self, messages: Bytes) {
        let answered = async {
            let mut response = self.post_in_session(&messages, &CancellationToken::new()).await?;
            let status = response.status;
            match response.next().await? {
                Some(answer) if status < 300 => self.output.send(answer).await,
                Some(refusal) => self.output.send(self.refusal(status, refusal, None)).await,
                None => {}
            }
            Ok(())
        };
        if let Err(error) = answered.await {
            self.fail(None, &error).await;
        }
    }

    /// Delivers a notice, or the client's answer to a request of a server.
    pub async fn deliver(&self, message: &Bytes) {
        let Ok(head) = Head::parse(message) else { return };
        if let Some(request) = cancelled_by(&head).and_then(|id| self.in_flight.find(id)) {
            // The gateway ignores the cancellation of a request that it does not have yet.
            request.written.cancelled().await;
        }
        let written = CancellationToken::new();
        let posted = match head.declares_version() {
            true => self.endpoint.post(message, self.params.of(&head), &written).await,
            false => self.post_in_session(message, &written).await,
        };
        match posted {
            Ok(response) if response.status < 300 => {
                self.session.remember(message);
                response.discard().await;
            }
            Ok(mut response) => {
                let refusal = response.next().await.ok().flatten().unwrap_or_default();
                let reason = self.endpoint.refused(response.status, &refusal);
                tracing::warn!(%reason, "the gateway refused a message of the client");
            }
            Err(error) => tracing::warn!(%error, "a message of the client did not reach the gateway"),
        }
    }

    async fn answer_legacy(&self, message: &Bytes, request: &Registered) -> Result<(), EndpointError> {
        let mut response = self.post_in_session(message, &request.pending.written).await?;
        let answer = self.pass_on(&mut response, Some(&request.id)).await?;
        if Head::of_own(&answer).is_ok_and(|head| head.kind == MessageKind::Result) {
            self.session.remember(message);
        }
        Ok(())
    }

    async fn answer_modern(&self, message: &Bytes, request: &Registered) -> Result<(), EndpointError> {
        let Ok(head) = Head::parse(message) else { return Ok(()) };
        let written = &request.pending.written;
        let mut response = self.endpoint.post(message, self.params.of(&head), written).await?;
        if response.status == 400 && head.method.as_deref() == Some("tools/call") {
            let refusal = response.next().await?.unwrap_or_default();
            if !is_header_mismatch(&refusal) {
                self.output.send(self.refusal(response.status, refusal, Some(&request.id))).await;
                return Ok(());
            }
            self.learn_params(&head).await?;
            response = self.endpoint.post(message, self.params.of(&head), written).await?;
        }
        self.pass_on(&mut response, Some(&request.id)).await?;
        Ok(())
    }

    /// Reads the tools that the client of a call sees, for the headers of its calls.
    async fn learn_params(&self, call: &Head<'_>) -> Result<(), EndpointError> {
        let Some(message) = list_request(call) else { return Ok(()) };
        let Ok(head) = Head::parse(&message) else { return Ok(()) };
        let mut response =
            self.endpoint.post(&message, self.params.of(&head), &CancellationToken::new()).await?;
        while let Some(answer) = response.next().await? {
            self.params.learn(&answer);
        }
        Ok(())
    }

    /// Posts a message in the client's session. If the gateway does not know the session, opens a new one and posts the
    /// message again: the gateway did not handle it.
    async fn post_in_session(
        &self,
        message: &Bytes,
        written: &CancellationToken,
    ) -> Result<McpResponse, EndpointError> {
        let session = self.session.headers();
        let response = self.endpoint.post(message, self.session.header_map(), written).await?;
        match session {
            Some(lost) if response.status == UNKNOWN_SESSION => {
                self.session.renew(&self.endpoint, &lost).await?;
                self.endpoint.post(message, self.session.header_map(), written).await
            }
            Some(_) | None => Ok(response),
        }
    }

    /// Passes on the messages of a response, and returns the last one, which is the answer.
    async fn pass_on(&self, response: &mut McpResponse, id: Option<&[u8]>) -> Result<Bytes, EndpointError> {
        let mut last = Bytes::new();
        while let Some(message) = response.next().await? {
            last = match response.status {
                200..300 => message,
                status => self.refusal(status, message, id),
            };
            self.output.send(last.clone()).await;
        }
        if is_answer(&last) { Ok(last) } else { Err(EndpointError::Unanswered) }
    }

    /// Makes the answer to a request that was refused with a status. The body is a JSON-RPC error where the message is
    /// wrong, and otherwise a sentence.
    pub fn refusal(&self, status: u16, body: Bytes, id: Option<&[u8]>) -> Bytes {
        let head = Head::parse(&body).ok().filter(|head| head.kind == MessageKind::Error);
        match head {
            Some(Head { id: Some(_), .. }) => body,
            Some(Head { error: Some(error), .. }) => match RpcError::parse(&body[error]) {
                Some(RpcError { code, message, data }) => authored::error(id, code, &message, data),
                None => body,
            },
            Some(_) | None => {
                let reason = self.endpoint.refused(status, &body).to_string();
                authored::error(id, code::INTERNAL_ERROR, &reason, None)
            }
        }
    }

    async fn fail(&self, id: Option<&[u8]>, error: &EndpointError) {
        self.output.send(authored::error(id, code::INTERNAL_ERROR, &error.to_string(), None)).await;
    }
}

/// Returns the id of the request that a notice cancels.
pub fn cancelled_by<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    let params =
        head.params.as_ref().filter(|_| head.method.as_deref() == Some("notifications/cancelled"))?;
    params.request_id.as_ref().map(|id| id.raw())
}
