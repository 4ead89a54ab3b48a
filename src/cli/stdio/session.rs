//! The session of a client that does a handshake (revisions until 2025-11-25). A gateway that does not know the session
//! any more gets a new one, opened with the client's own messages, without the client noticing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderValue};
use tokio_util::sync::CancellationToken;

use super::endpoint::{Endpoint, EndpointError, McpResponse, SessionHeaders};
use wire::{Head, MessageKind, authored, text, walk};

/// The status with which the gateway refuses a session that it does not know.
pub const UNKNOWN_SESSION: u16 = 404;
const END_LIMIT: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Session(Mutex<Handshake>);

/// What the client sent that a new session needs.
#[derive(Default)]
struct Handshake {
    headers: Option<SessionHeaders>,
    initialize: Option<Bytes>,
    initialized: Option<Bytes>,
    /// The last `logging/setLevel`.
    level: Option<Bytes>,
    /// `resources/subscribe` by URI.
    subscriptions: BTreeMap<String, Bytes>,
    /// The notices with which the gateway announces changes of its lists.
    change_notices: Vec<&'static str>,
}

impl Session {
    /// Returns the headers of the current session; `None` before the handshake.
    pub fn headers(&self) -> Option<SessionHeaders> {
        self.lock().headers.clone()
    }

    pub fn header_map(&self) -> HeaderMap {
        self.headers().map(|headers| headers.to_map()).unwrap_or_default()
    }

    /// Takes over the session that an answered `initialize` opened. Returns the headers of an earlier one.
    pub fn begin(
        &self,
        initialize: &Bytes,
        id: Option<HeaderValue>,
        answer: &[u8],
    ) -> Option<SessionHeaders> {
        let headers = headers_of(id?, answer)?;
        let change_notices = change_notices(answer);
        let handshake =
            Handshake { initialize: Some(initialize.clone()), change_notices, ..Handshake::default() };
        let earlier = std::mem::replace(&mut *self.lock(), handshake);
        self.lock().headers = Some(headers);
        earlier.headers
    }

    /// Remembers a message that took effect, if a new session needs it.
    pub fn remember(&self, message: &Bytes) {
        let Ok(head) = Head::parse(message) else { return };
        let uri = || Some(head.params.as_ref()?.uri.as_ref()?.value.to_string());
        let mut handshake = self.lock();
        match head.method.as_deref() {
            Some("notifications/initialized") => handshake.initialized = Some(message.clone()),
            Some("logging/setLevel") => handshake.level = Some(message.clone()),
            Some("resources/subscribe") => {
                handshake.subscriptions.extend(uri().map(|uri| (uri, message.clone())));
            }
            Some("resources/unsubscribe") => {
                uri().and_then(|uri| handshake.subscriptions.remove(&uri));
            }
            Some(_) | None => {}
        }
    }

    /// Opens a session in the place of a lost one. Does nothing if that is done already.
    pub async fn renew(&self, endpoint: &Endpoint, lost: &SessionHeaders) -> Result<(), EndpointError> {
        let initialize = match &*self.lock() {
            Handshake { headers: Some(current), initialize: Some(message), .. } if current == lost => {
                message.clone()
            }
            _ => return Ok(()),
        };
        let mut response = endpoint.post(&initialize, HeaderMap::new(), &CancellationToken::new()).await?;
        let (id, answer) = (response.session.clone(), response.next().await?.unwrap_or_default());
        let Some(headers) = id.and_then(|id| headers_of(id, &answer)) else { return Ok(()) };
        let (is_first, initialized) = {
            let mut handshake = self.lock();
            let is_first = handshake.headers.as_ref() == Some(lost);
            if is_first {
                handshake.headers = Some(headers.clone());
            }
            (is_first, handshake.initialized.clone())
        };
        if !is_first {
            // Another message found out at the same time.
            endpoint.end_session(&headers).await;
            return Ok(());
        }
        tracing::info!("the gateway no longer knew the session; opened a new one");
        if let Some(initialized) = initialized {
            tell(endpoint, &headers, &initialized).await;
        }
        self.restore(endpoint, &headers).await;
        Ok(())
    }

    /// Repeats what a gateway that was restarted has forgotten: subscriptions and the log level.
    pub async fn restore(&self, endpoint: &Endpoint, headers: &SessionHeaders) {
        let messages: Vec<Bytes> = {
            let handshake = self.lock();
            handshake.level.iter().chain(handshake.subscriptions.values()).cloned().collect()
        };
        for message in messages {
            tell(endpoint, headers, &message).await;
        }
    }

    /// Returns a notice for each list that may have changed while the client could not be told.
    pub fn missed_changes(&self) -> Vec<Bytes> {
        self.lock().change_notices.iter().map(|method| authored::notice(method, None)).collect()
    }

    pub async fn end(&self, endpoint: &Endpoint) {
        let headers = self.lock().headers.take();
        if let Some(headers) = headers {
            let _ = tokio::time::timeout(END_LIMIT, endpoint.end_session(&headers)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Handshake> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a message and ignores its answer.
async fn tell(endpoint: &Endpoint, headers: &SessionHeaders, message: &Bytes) {
    let sent = endpoint.post_once(message, headers.to_map(), &CancellationToken::new()).await;
    match sent {
        Ok(response) => McpResponse::discard(response).await,
        Err(error) => tracing::warn!(%error, "could not restore the session"),
    }
}

/// Reads the headers of a session from the answer to `initialize`; `None` if that is an error.
fn headers_of(id: HeaderValue, answer: &[u8]) -> Option<SessionHeaders> {
    let head = Head::parse(answer).ok().filter(|head| head.kind == MessageKind::Result)?;
    let version = walk::member(answer, &head.result?, "protocolVersion");
    let version = version.and_then(|span| text::unescape(&answer[span]));
    Some(SessionHeaders { id, version: version.and_then(|version| HeaderValue::from_str(&version).ok()) })
}

/// Returns the methods of the notices that the capabilities in an answer to `initialize` promise.
fn change_notices(answer: &[u8]) -> Vec<&'static str> {
    let result = Head::parse(answer).ok().and_then(|head| head.result);
    let capabilities = result.and_then(|result| walk::member(answer, &result, "capabilities"));
    let announces = |list: &str| {
        let list = capabilities.as_ref().and_then(|all| walk::member(answer, all, list));
        let announced = list.and_then(|list| walk::member(answer, &list, "listChanged"));
        announced.is_some_and(|announced| &answer[announced] == b"true")
    };
    [
        ("tools", "notifications/tools/list_changed"),
        ("prompts", "notifications/prompts/list_changed"),
        ("resources", "notifications/resources/list_changed"),
    ]
    .into_iter()
    .filter_map(|(list, method)| announces(list).then_some(method))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_the_answer_that_opened_it() {
        let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":
            {"tools":{"listChanged":true},"prompts":{},"resources":{"listChanged":false}}}}"#;
        let session = Session::default();
        assert!(session.header_map().is_empty());
        session.begin(&Bytes::from_static(b"{}"), Some(HeaderValue::from_static("s1")), answer);
        let headers = session.header_map();
        assert_eq!(headers["mcp-session-id"], "s1");
        assert_eq!(headers["mcp-protocol-version"], "2025-06-18");
        let notice: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(session.missed_changes(), [notice]);
        let error = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"x"}}"#;
        assert!(headers_of(HeaderValue::from_static("s2"), error).is_none());
    }

    #[test]
    fn a_subscription_is_remembered_until_it_is_ended() {
        let session = Session::default();
        let message = |method: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"uri":"a://b"}}}}"#);
            Bytes::from(text)
        };
        session.remember(&message("resources/subscribe"));
        session.remember(&message("resources/subscribe"));
        assert_eq!(session.lock().subscriptions.len(), 1);
        session.remember(&message("resources/unsubscribe"));
        assert!(session.lock().subscriptions.is_empty());
    }
}
