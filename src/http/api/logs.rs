//! `/api/v0/servers/{name}/logs`: the log of a server, as far as this gateway has written it; once, or as it grows.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::CurrentPrincipal;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::{Name, Query};
use crate::http::reply::Json;
use crate::http::stream::SseBody;
use gateway::{Disclosure, JournalLine, JournalReader, KEPT_LINES, now_ms};
use model::{FieldError, PrincipalId, time};
use wire::sse;

/// How many lines are returned unless the caller wants another number.
const TAIL: usize = 200;
/// How many lines are read at once for a stream, and how many are queued for it. All others stay in the log.
const BACKLOG: usize = 16;

/// The last lines of the log of a server.
#[derive(Serialize, ToSchema)]
pub struct LogLines {
    /// The oldest first.
    lines: Vec<LogLine>,
}

/// A line of the log of a server, without secrets.
#[derive(Serialize, ToSchema)]
pub struct LogLine {
    /// The time (RFC 3339).
    at: String,
    /// `stderr` if a process of the server wrote it to standard error, `gateway` if it is about the server.
    source: &'static str,
    text: String,
}

impl LogLine {
    fn of(line: &JournalLine) -> Self {
        let at = time::rfc3339(time::milliseconds(line.at));
        Self { at, source: line.source.as_str(), text: line.text.clone() }
    }

    /// Tells the reader of a stream that it was too slow.
    fn about_missed(missed: u64) -> Self {
        let text = format!("{missed} lines were left out: they were written faster than they were read");
        Self { at: time::rfc3339(now_ms()), source: "gateway", text }
    }
}

/// Returns the last lines of the log of a server: what its processes wrote to standard error, and what the gateway noted
/// about it.
///
/// With `follow=true` the response is an event stream: the last lines as events `line`, then every new one.
#[utoipa::path(get, path = "/api/v0/servers/{name}/logs", tag = "servers",
    params(("name" = String, Path),
        ("tail" = Option<u64>, Query, description = "How many lines, from 1 to 1000; 200 if omitted"),
        ("follow" = Option<bool>, Query, description = "Whether to stream new lines too, as events `line`")),
    responses((status = 200, body = LogLines)))]
pub async fn show(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    Name(name): Name,
    query: Query,
) -> HandlerResult<Response> {
    let (tail, is_followed) = (tail(&query)?, query.flag("follow")?);
    // Before the log is looked up: a server that is removed from now on ends the stream.
    let changes = face.gateway.changes();
    let journal = face.gateway.catalog().require(&name)?.journal.clone();
    if !is_followed {
        let lines = journal.tail(tail).iter().map(|line| LogLine::of(line)).collect();
        return Ok(Json(LogLines { lines }).into_response());
    }
    let principal = caller.0.as_ref().map(|principal| principal.id());
    let slot = face.gateway.usage(principal).streams.take(1);
    let slot = slot.map_err(|exceeded| ErrorResponse::too_many_streams(&exceeded))?;
    let (frames, notices) = mpsc::channel(BACKLOG);
    let (closing, reader) = (face.closing.clone(), journal.follow(tail));
    let work = async move {
        let _slot = slot;
        let passed_on = closing.run_until_cancelled(pass_on(reader, frames));
        tokio::select! {
            _ = passed_on => {}
            () = until_gone(&face, &name, &journal, principal, changes) => {}
        }
        Bytes::new()
    };
    Ok(SseBody::response(work, notices))
}

fn tail(query: &Query) -> Result<usize, ErrorResponse> {
    let Some(text) = query.text("tail") else { return Ok(TAIL) };
    let wanted = text.parse().ok().filter(|wanted| (1..=KEPT_LINES).contains(wanted));
    let wrong = || FieldError::new("tail", format!("must be a number from 1 to {KEPT_LINES}"));
    Ok(wanted.ok_or_else(wrong)?)
}

/// Passes lines on, as fast as they are taken.
async fn pass_on(mut reader: JournalReader, frames: mpsc::Sender<Bytes>) {
    loop {
        let read = reader.read(BACKLOG).await;
        let missed = (read.missed > 0).then(|| LogLine::about_missed(read.missed));
        for line in missed.into_iter().chain(read.lines.iter().map(|line| LogLine::of(line))) {
            let data = serde_json::to_vec(&line).expect("lines have string keys and no failing parts");
            if frames.send(sse::frame(Some("line"), &data)).await.is_err() {
                return;
            }
        }
    }
}

/// Waits until the server is removed, or its log is not for this principal any more.
async fn until_gone(
    face: &Face,
    name: &str,
    journal: &gateway::Journal,
    principal: Option<PrincipalId>,
    mut changes: tokio::sync::watch::Receiver<()>,
) {
    loop {
        let is_registered = face.gateway.catalog().get(name).is_some_and(|entry| entry.journal.is(journal));
        if !is_registered || face.gateway.disclosure(principal) != Disclosure::Full {
            return;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}
