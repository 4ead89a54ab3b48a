//! Streamable HTTP of both eras at `/mcp`, and every other route of the fake upstream on one page.
//! The legacy transport of `/sse` and `/message` is in `sse`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::behaviour::{Behaviour, Era, LEGACY_VERSIONS, Stranger, Style};
use super::core::{self, Incoming, Transport};
use super::net::Line;
use super::sse::{self, Events, Until};
use super::state::{Audience, Out, Receiver, State, bytes_of};

const SESSION: &str = "mcp-session-id";

pub fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/mcp", post(receive).get(listen).delete(end))
        .route("/sse", get(sse::open))
        .route("/message", post(sse::message))
        .route("/moved", any(async || redirect("/mcp")))
        .route("/away", any(away))
        .route("/.well-known/oauth-protected-resource/mcp", get(metadata))
        .layer(DefaultBodyLimit::max(64 << 20))
        .with_state(state)
}

async fn receive(
    Shared(state): Shared<Arc<State>>,
    ConnectInfo(line): ConnectInfo<Line>,
    headers: HeaderMap,
    text: String,
) -> Response {
    let Ok(message) = model::deep_json::parse(&text) else {
        return *parse_error();
    };
    let behaviour = state.behaviour();
    let seen = plain_headers(&headers);
    state.see(&message, &seen);
    let session = seen.get(SESSION).cloned().unwrap_or_default();
    let mut incoming = Incoming { transport: Transport::Http, text, message, headers: seen, session };
    if let Some(scope) = behaviour.wants_scope.as_ref().filter(|_| incoming.method() == "tools/call") {
        let challenge = format!(r#"Bearer error="insufficient_scope", scope="{scope}""#);
        return (StatusCode::FORBIDDEN, [(header::WWW_AUTHENTICATE, challenge)], "more is needed")
            .into_response();
    }
    let modern = core::is_modern(&behaviour, &incoming);
    let admitted = admit(&behaviour, &headers, "POST")
        .and_then(|()| negotiate(&headers))
        .and_then(|()| if modern { Ok(()) } else { check_legacy(&state, &behaviour, &incoming) });
    if let Err(refusal) = admitted {
        return *refusal;
    }
    if !incoming.is_request() {
        core::accept(&state, &incoming);
        return StatusCode::ACCEPTED.into_response();
    }
    let opened = (!modern
        && behaviour.session
        && incoming.method() == "initialize"
        && !behaviour.fail.contains_key("initialize"))
    .then(|| {
        let session = state.new_session();
        let mut memory = state.memory();
        memory.sessions.insert(session.clone());
        memory.declared.insert(session.clone(), incoming.params()["capabilities"].clone());
        drop(memory);
        session
    });
    if modern {
        // Modern requests have no session, whatever the client sends.
        incoming.session = String::new();
    }
    let at_once = behaviour.answer == Style::Sse
        && !modern
        && !behaviour.fail.contains_key(incoming.method())
        && incoming.method() != "server/discover"
        && incoming.params()["name"] != "hang_up";
    let (out, frames) = mpsc::unbounded_channel();
    tokio::spawn(core::answer(state.clone(), incoming, out));
    let mut response = if at_once {
        Events::new(&state, frames, Until::Answer).into_response()
    } else {
        respond(&state, behaviour.answer, frames, &line).await
    };
    if let Some(session) = opened.and_then(|session| HeaderValue::from_str(&session).ok()) {
        response.headers_mut().insert(SESSION, session);
    }
    response
}

/// Plain JSON if there is only the response, an event stream if anything comes before it.
async fn respond(state: &Arc<State>, style: Style, mut frames: Receiver, line: &Line) -> Response {
    match frames.recv().await {
        Some(Out::Answer { status, text }) if style == Style::Json || status != 200 => {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            (status, [(header::CONTENT_TYPE, "application/json")], bytes_of(text)).into_response()
        }
        Some(Out::Status(status)) => {
            (StatusCode::from_u16(status).unwrap_or_default(), "refused as configured").into_response()
        }
        Some(Out::HangUp) => {
            line.hang_up();
            std::future::pending().await
        }
        Some(frame) => Events::new(state, frames, Until::Answer).after(frame).into_response(),
        // Cancelled: the client no longer waits, but the exchange must end.
        None => {
            ([(header::CONTENT_TYPE, "text/event-stream")], Body::from(": cancelled\n\n")).into_response()
        }
    }
}

/// `GET /mcp`: the legacy stream of notifications, or the rest of a cut stream.
async fn listen(Shared(state): Shared<Arc<State>>, headers: HeaderMap) -> Response {
    let behaviour = state.behaviour();
    let seen = plain_headers(&headers);
    state.see(&json!({"method": "GET"}), &seen);
    if let Err(refusal) = admit(&behaviour, &headers, "GET") {
        return *refusal;
    }
    if let Some(last) = seen.get("last-event-id").filter(|_| behaviour.resume) {
        let number = last.split('-').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        if let Some(parked) = state.memory().parked.remove(&number) {
            return Events::resumed(&state, number, parked).into_response();
        }
    }
    if !behaviour.get_stream || behaviour.era == Era::Modern {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    if !accepts(&headers, "text/event-stream") {
        return StatusCode::NOT_ACCEPTABLE.into_response();
    }
    let session = seen.get(SESSION).cloned().unwrap_or_default();
    if let Err(refusal) = check_session(&state, &behaviour, &session) {
        return *refusal;
    }
    let (out, frames) = mpsc::unbounded_channel();
    state.listen(&session, Audience::All, &out, None);
    Events::new(&state, frames, Until::Dropped).starting_with(": listening\n\n").into_response()
}

/// `DELETE /mcp`: the client ends its session.
async fn end(Shared(state): Shared<Arc<State>>, headers: HeaderMap) -> Response {
    let behaviour = state.behaviour();
    let seen = plain_headers(&headers);
    state.see(&json!({"method": "DELETE"}), &seen);
    if let Err(refusal) = admit(&behaviour, &headers, "DELETE") {
        return *refusal;
    }
    if !behaviour.session || behaviour.era == Era::Modern {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let session = seen.get(SESSION).cloned().unwrap_or_default();
    if let Err(refusal) = check_session(&state, &behaviour, &session) {
        return *refusal;
    }
    let mut memory = state.memory();
    memory.sessions.remove(&session);
    memory.listeners.retain(|listener| listener.session != session);
    memory.deleted.push(session);
    StatusCode::OK.into_response()
}

/// Token, required headers and configured failures, before anything is read.
pub fn admit(behaviour: &Behaviour, headers: &HeaderMap, method: &str) -> Result<(), Box<Response>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if let Some(bearer) = &behaviour.bearer
        && text("authorization") != format!("Bearer {bearer}")
    {
        let host = text("host");
        let metadata = format!("http://{host}/.well-known/oauth-protected-resource/mcp");
        let challenge = match behaviour.oauth_metadata {
            true => format!(r#"Bearer resource_metadata="{metadata}""#),
            false => "Bearer".to_owned(),
        };
        let headers = [(header::WWW_AUTHENTICATE, challenge)];
        let said = match behaviour.repeats_tokens {
            true => format!("{} is of no use", text("authorization")),
            false => "a token is needed".to_owned(),
        };
        return Err(Box::new((StatusCode::UNAUTHORIZED, headers, said).into_response()));
    }
    if let Some((name, _)) =
        behaviour.require_headers.iter().find(|(name, value)| text(name) != value.as_str())
    {
        return Err(Box::new((StatusCode::FORBIDDEN, format!("header {name} is needed")).into_response()));
    }
    match behaviour.fail.get(method).and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok()) {
        Some(status) => Err(Box::new(StatusCode::from_u16(status).unwrap_or_default().into_response())),
        None => Ok(()),
    }
}

/// The SDK servers require both media types, so a gateway that sends only one must fail here.
fn negotiate(headers: &HeaderMap) -> Result<(), Box<Response>> {
    if !accepts(headers, "application/json") || !accepts(headers, "text/event-stream") {
        let reason = "Accept must list application/json and text/event-stream";
        return Err(Box::new((StatusCode::NOT_ACCEPTABLE, reason).into_response()));
    }
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !sent.starts_with("application/json") {
        let reason = "Content-Type must be application/json";
        return Err(Box::new((StatusCode::UNSUPPORTED_MEDIA_TYPE, reason).into_response()));
    }
    Ok(())
}

fn accepts(headers: &HeaderMap, media: &str) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|accepted| accepted.contains(media)))
}

fn check_legacy(state: &State, behaviour: &Behaviour, incoming: &Incoming) -> Result<(), Box<Response>> {
    // The probe and the handshake come before any agreement on version and session.
    if ["initialize", "server/discover"].contains(&incoming.method()) {
        return Ok(());
    }
    let version = incoming.headers.get("mcp-protocol-version");
    if version.is_some_and(|version| !LEGACY_VERSIONS.contains(&version.as_str())) {
        return Err(refuse(StatusCode::BAD_REQUEST, -32000, "Bad Request: Unsupported protocol version"));
    }
    check_session(state, behaviour, &incoming.session)
}

fn check_session(state: &State, behaviour: &Behaviour, session: &str) -> Result<(), Box<Response>> {
    if !behaviour.session || state.memory().sessions.contains(session) {
        return Ok(());
    }
    if session.is_empty() {
        return Err(refuse(
            StatusCode::BAD_REQUEST,
            -32000,
            "Bad Request: Mcp-Session-Id header is required",
        ));
    }
    Err(match behaviour.unknown_session {
        Stranger::Json404 => refuse(StatusCode::NOT_FOUND, -32001, "Session not found"),
        Stranger::Json400 => {
            refuse(StatusCode::BAD_REQUEST, -32000, "Bad Request: No valid session ID provided")
        }
        Stranger::Text400 => {
            let said = "Bad Request: No valid session ID provided";
            Box::new((StatusCode::BAD_REQUEST, said).into_response())
        }
    })
}

/// An error of the HTTP request, which has no JSON-RPC id.
fn refuse(status: StatusCode, code: i64, message: &str) -> Box<Response> {
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    Box::new((status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response())
}

pub fn parse_error() -> Box<Response> {
    refuse(StatusCode::BAD_REQUEST, -32700, "Parse error")
}

/// Repeated headers are joined, so that a repeated header never matches.
pub fn plain_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut plain: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let slot = plain.entry(name.as_str().to_owned());
        slot.and_modify(|joined| joined.push_str(&format!(", {value}")))
            .or_insert_with(|| value.into_owned());
    }
    plain
}

async fn away(Shared(state): Shared<Arc<State>>, headers: HeaderMap) -> Response {
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit(':').next().unwrap_or_default();
    let target = state.behaviour().redirect.unwrap_or_else(|| format!("http://localhost:{port}/mcp"));
    redirect(&target)
}

fn redirect(target: &str) -> Response {
    (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, target)]).into_response()
}

async fn metadata(Shared(state): Shared<Arc<State>>, headers: HeaderMap) -> Response {
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let origin = format!("http://{host}");
    // Without a trailing slash, which some clients would add.
    let body = match state.behaviour().authorization_server {
        Some(server) => json!({"resource": origin, "authorization_servers": [server]}),
        None => json!({"resource": format!("{origin}/mcp"), "authorization_servers": [origin]}),
    };
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
