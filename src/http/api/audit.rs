//! `/api/v0/audit`: who changed what, and whether that record of it is complete.

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::Query;
use crate::http::pages::page;
use crate::http::reply::Json;
use gateway::audit::{AuditFilter, AuditReport};
use model::{AuditEntry, AuditHead, AuditOutcome, FieldError, time};

/// The parameters that select entries.
const FILTERS: [&str; 9] = ["actor", "action", "target", "outcome", "since", "until", "q", "limit", "before"];

/// An entry of the audit.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditEntryBody {
    /// Later entries have greater ids.
    id: String,
    at: String,
    actor: ActorBody,
    /// `<noun>.<verb>`, such as `server.register`.
    action: String,
    /// What it was done to, such as the name of a server.
    target: String,
    /// What was there before, without secrets; `null` if there was nothing.
    #[schema(value_type = Option<Value>)]
    before: Option<Value>,
    /// What is there now, without secrets. `changed_secrets` names those that changed.
    #[schema(value_type = Option<Value>)]
    after: Option<Value>,
    /// `ok`, `refused` or `failed`.
    outcome: &'static str,
    /// The IP address of the caller; `null` for the gateway itself. Where several are summed, the network of an IPv6 address.
    address: Option<String>,
    /// How often it happened within a minute, for what is not noted one by one; 1 for all else.
    count: u64,
}

/// Who changed something.
#[derive(Serialize, ToSchema)]
#[schema(as = Actor)]
pub struct ActorBody {
    /// `user`, `client`, `anonymous` or `system`.
    kind: &'static str,
    name: String,
}

impl From<AuditEntry> for AuditEntryBody {
    fn from(entry: AuditEntry) -> Self {
        let id = entry.id();
        let note = entry.note;
        Self {
            id,
            at: time::rfc3339(note.at_ms),
            actor: ActorBody { kind: note.by.actor.kind.as_str(), name: note.by.actor.name },
            action: note.action,
            target: note.target,
            before: note.before,
            after: note.after,
            outcome: note.outcome.as_str(),
            address: note.by.address,
            count: note.count,
        }
    }
}

/// Entries of the audit, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntries)]
pub struct AuditEntriesBody {
    entries: Vec<AuditEntryBody>,
    /// The `before` of the next page; `null` if there is none.
    next: Option<String>,
}

/// Lists changes, newest first: who changed what.
#[utoipa::path(get, path = "/api/v0/audit", tag = "audit",
    params(
        ("actor" = Option<String>, Query, description = "Only entries of the user, client or part of the system with this name"),
        ("action" = Option<String>, Query, description = "Only this action, such as `server.register`, or `server` for all of that noun"),
        ("target" = Option<String>, Query, description = "Only entries about what has this name"),
        ("outcome" = Option<String>, Query, description = "Only entries with this outcome: `ok`, `refused` or `failed`"),
        ("since" = Option<String>, Query, description = "Only entries from this time on, such as 2026-01-31T12:00:00Z"),
        ("until" = Option<String>, Query, description = "Only entries until this time"),
        ("q" = Option<String>, Query, description = "Only entries with this text in actor, action, target or address"),
        ("limit" = Option<u32>, Query, description = "The most entries to return, up to 1000; 100 if omitted"),
        ("before" = Option<String>, Query, description = "Only entries with smaller ids than this one"),
    ), responses((status = 200, body = AuditEntriesBody)))]
pub async fn list(State(face): State<Face>, query: Query) -> HandlerResult<Json<AuditEntriesBody>> {
    let filter = filter(&query)?;
    // One more tells whether there is another page.
    let wanted = AuditFilter { limit: filter.limit + 1, ..filter.clone() };
    let (entries, next) = page(face.gateway.audit(&wanted).await?, filter.limit, AuditEntry::id);
    Ok(Json(AuditEntriesBody { entries: entries.into_iter().map(AuditEntryBody::from).collect(), next }))
}

fn filter(query: &Query) -> Result<AuditFilter, ErrorResponse> {
    query.only(&FILTERS)?;
    let text = |key: &str| query.text(key).unwrap_or_default().to_owned();
    let (since_ms, until_ms) = query.period()?;
    let not_an_id = || FieldError::new("before", "must be the id of an entry");
    let before = query.text("before").map(|id| AuditEntry::parse_id(id).ok_or_else(not_an_id)).transpose()?;
    Ok(AuditFilter {
        actor: text("actor"),
        action: text("action"),
        target: text("target"),
        outcome: query.one_of("outcome", &AuditOutcome::ALL.map(AuditOutcome::as_str))?,
        since_ms,
        until_ms,
        text: text("q"),
        before,
        limit: query.limit()?,
    })
}

/// Whether the audit is complete.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditReport)]
pub struct AuditReportBody {
    /// Whether no entry was removed, altered or moved, and `head` of the request is among them.
    ok: bool,
    /// The number and hash of the newest entry. Noted elsewhere, it shows later whether newer entries were cut off.
    head: String,
    /// How many entries were found right.
    entries: u64,
    /// The newest entry that was deleted because of its age; `null` if there is none.
    anchor: Option<String>,
    /// The first thing that is wrong.
    problem: Option<AuditProblemBody>,
}

/// What is wrong with the audit.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditProblem)]
pub struct AuditProblemBody {
    /// The number of the entry.
    number: i64,
    reason: String,
}

impl From<AuditReport> for AuditReportBody {
    fn from(report: AuditReport) -> Self {
        let problem = report.problem;
        Self {
            ok: problem.is_none(),
            head: report.head.to_string(),
            entries: report.entries,
            anchor: (report.anchor.number > 0).then(|| report.anchor.to_string()),
            problem: problem
                .map(|problem| AuditProblemBody { number: problem.number, reason: problem.reason }),
        }
    }
}

/// Checks all entries of the audit: whether one was removed, altered or moved.
#[utoipa::path(get, path = "/api/v0/audit/verify", tag = "audit",
    params(("head" = Option<String>, Query, description = "A head that was noted earlier, which must be among the entries")),
    responses((status = 200, body = AuditReportBody)))]
pub async fn verify(State(face): State<Face>, query: Query) -> HandlerResult<Json<AuditReportBody>> {
    query.only(&["head"])?;
    let wrong = || FieldError::new("head", "must be a head as it was printed: <number>:<hash>");
    let noted = query.text("head").map(|text| AuditHead::parse(text).ok_or_else(wrong)).transpose()?;
    Ok(Json(face.gateway.verify_audit(noted).await?.into()))
}
