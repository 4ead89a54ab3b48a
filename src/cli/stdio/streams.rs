//! The streams for messages outside of calls: that of a session, and `subscriptions/listen` of revision 2026-07-28. Both
//! are opened again when the gateway ends them, such as for a restart; what the client may have missed is announced.

use std::time::Duration;

use bytes::Bytes;

use super::connection::Connection;
use super::endpoint::is_answer;
use super::in_flight::Registered;
use super::session::UNKNOWN_SESSION;
use upstream::Pace;
use wire::{Head, MessageKind, authored, text, walk};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

impl Connection {
    /// Keeps the stream of the session open.
    pub async fn follow_session(&self) {
        let mut pace = Pace::default();
        let mut was_interrupted = false;
        while let Some(session) = self.session.headers() {
            match self.endpoint.open_stream(&session).await {
                Ok(mut response) if response.is_stream() => {
                    pace.begin();
                    if was_interrupted {
                        self.session.restore(&self.endpoint, &session).await;
                        for notice in self.session.missed_changes() {
                            self.output.send(notice).await;
                        }
                    }
                    while let Ok(Some(message)) = response.next().await {
                        self.output.send(message).await;
                    }
                }
                Ok(response) if response.status == UNKNOWN_SESSION => {
                    if let Err(error) = self.session.renew(&self.endpoint, &session).await {
                        tracing::warn!(%error, "cannot open a new session");
                    }
                }
                Ok(mut response) => {
                    let refusal = response.next().await.ok().flatten().unwrap_or_default();
                    let reason = self.endpoint.refused(response.status, &refusal);
                    tracing::warn!(%reason, "the gateway refused the stream of the session");
                }
                Err(error) => tracing::debug!(%error, "the stream of the session cannot be opened"),
            }
            was_interrupted = true;
            pace.pause(Duration::ZERO).await;
        }
    }

    /// Keeps a `subscriptions/listen` open until the client cancels it or the gateway refuses it.
    pub async fn keep_listening(&self, message: Bytes, request: Registered) {
        let listening = self.listen(&message, &request);
        request.pending.cancelled.run_until_cancelled(listening).await;
    }

    async fn listen(&self, message: &Bytes, request: &Registered) {
        let Ok(head) = Head::parse(message) else { return };
        let mut pace = Pace::default();
        let mut was_interrupted = false;
        loop {
            let posted = self.endpoint.post_once(message, self.params.of(&head), &request.pending.written);
            match posted.await {
                Ok(mut response) if response.is_stream() => {
                    pace.begin();
                    while let Ok(Some(event)) = response.next().await {
                        if is_graceful_end(&event) {
                            // The gateway stops. To the client, this program is the server, which does not.
                            break;
                        }
                        let missed = if was_interrupted { missed_changes(&event) } else { Vec::new() };
                        let is_refused = is_answer(&event);
                        self.output.send(event).await;
                        for notice in missed {
                            self.output.send(notice).await;
                        }
                        if is_refused {
                            return;
                        }
                    }
                }
                Ok(mut response) => {
                    let answer = response.next().await.ok().flatten().unwrap_or_default();
                    let answer = match response.status {
                        200..300 => answer,
                        status => self.refusal(status, answer, Some(&request.id)),
                    };
                    return self.output.send(answer).await;
                }
                Err(error) => tracing::debug!(%error, "cannot listen to the gateway"),
            }
            was_interrupted = true;
            pace.pause(Duration::ZERO).await;
        }
    }
}

fn is_graceful_end(message: &[u8]) -> bool {
    Head::of_own(message).is_ok_and(|head| head.kind == MessageKind::Result)
}

/// Returns a notice for each change that may have happened while nobody listened: of all that the acknowledgement of a
/// subscription grants. Other messages yield none.
fn missed_changes(acknowledgement: &[u8]) -> Vec<Bytes> {
    let Ok(head) = Head::of_own(acknowledgement) else { return Vec::new() };
    let Some(params) = head.params.as_ref().filter(|_| head.method.as_deref() == Some(ACKNOWLEDGED)) else {
        return Vec::new();
    };
    let Some(granted) = walk::member(acknowledgement, &params.span, "notifications") else {
        return Vec::new();
    };
    let meta = params.meta.as_ref().map_or(&b"{}"[..], |meta| &acknowledgement[meta.span.clone()]);
    let notice = |method: &str, uri: Option<&[u8]>| {
        let uri = uri.map(|uri| ("uri", uri));
        let members: Vec<_> = uri.into_iter().chain([("_meta", meta)]).collect();
        authored::notice(method, Some(&authored::object(&members)))
    };
    let mut notices = Vec::new();
    for (key, method) in [
        ("toolsListChanged", "notifications/tools/list_changed"),
        ("promptsListChanged", "notifications/prompts/list_changed"),
        ("resourcesListChanged", "notifications/resources/list_changed"),
    ] {
        let is_granted = walk::member(acknowledgement, &granted, key)
            .is_some_and(|span| &acknowledgement[span] == b"true");
        notices.extend(is_granted.then(|| notice(method, None)));
    }
    if let Some(uris) = walk::member(acknowledgement, &granted, "resourceSubscriptions") {
        let uris = walk::elements(acknowledgement, &uris).map(|span| &acknowledgement[span]);
        let uris = uris.filter(|uri| text::unescape(uri).is_some());
        notices.extend(uris.map(|uri| notice("notifications/resources/updated", Some(uri))));
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_granted_may_have_changed_in_the_meantime() {
        let acknowledgement = br#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{
            "notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["a://b"]},
            "_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#;
        let notices = missed_changes(acknowledgement);
        let notices: Vec<_> = notices.iter().map(|notice| String::from_utf8_lossy(notice)).collect();
        let meta = r#""_meta":{"io.modelcontextprotocol/subscriptionId":7}"#;
        let tools =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{{meta}}}}}"#);
        let resource = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"a://b",{meta}}}}}"#
        );
        assert_eq!(notices, [tools, resource]);
        assert!(
            missed_changes(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).is_empty()
        );
    }
}
