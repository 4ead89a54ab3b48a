//! Importing servers from a pasted configuration of another program: a preview, then the import itself. The text is
//! parsed in `model::import`. Variables in it are not expanded, since that would expose the gateway's environment.

use axum::extract::State;
use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Serialize;
use tokio::task::JoinSet;
use utoipa::ToSchema;

use super::oauth;
use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::authorization::PendingAuthorization;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::json_object;
use crate::http::reply::Json;
use gateway::catalog::Catalog;
use gateway::oauth::RegistrationOutcome as Registered;
use gateway::servers::Existing;
use model::import::{self, Action, EntryOutcome, Import, ImportEntry, Plan};
use model::{By, FieldError, Fields, Status};

/// A configuration of another program.
#[derive(ToSchema)]
pub struct PreviewInput {
    /// The text of the configuration.
    pub text: String,
}

/// A configuration of another program, and which of its servers to register.
#[derive(ToSchema)]
pub struct ImportInput {
    /// The text of the configuration.
    pub text: String,
    /// The names of the servers to register.
    pub names: Vec<String>,
}

/// The servers that a configuration contains.
#[derive(Serialize, ToSchema)]
pub struct ImportPreview {
    servers: Vec<ImportCandidate>,
}

/// A server in a configuration, without secrets.
#[derive(Serialize, ToSchema)]
pub struct ImportCandidate {
    name: String,
    /// `stdio`, `streamable_http` or `sse`; empty if the configuration does not say.
    transport: String,
    /// The command or the URL in one line, without credentials and arguments.
    summary: String,
    /// Names of the environment variables, never their values.
    env_keys: Vec<String>,
    /// Names of the headers, never their values; `Authorization` is not included.
    header_keys: Vec<String>,
    /// What an import would do with the server: `add`, `change` or `skip`.
    action: &'static str,
    /// The reason for the action, and remarks about what the import leaves out or renames.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The outcomes of an import.
#[derive(Serialize, ToSchema)]
pub struct Imported {
    outcomes: Vec<ImportOutcome>,
}

/// The outcome of an import for one server.
#[derive(Serialize, ToSchema)]
pub struct ImportOutcome {
    name: String,
    /// `added`, `changed`, `skipped`, `failed` or `authorization_required`.
    outcome: &'static str,
    /// Why the server was skipped or failed. A new server that failed is stored, and the gateway keeps trying to
    /// connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The authorization that a person must complete first.
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization_required: Option<PendingAuthorization>,
}

/// Returns what importing a configuration would do. Nothing is stored.
#[utoipa::path(post, path = "/api/dashboard/import/preview", tag = "dashboard",
    request_body = PreviewInput, responses((status = 200, body = ImportPreview)))]
pub async fn preview(State(face): State<Face>, body: Bytes) -> HandlerResult<Json<ImportPreview>> {
    let mut fields = Fields::new(json_object(&body)?);
    let text = fields.required_text("text")?;
    fields.finish()?;
    let catalog = face.gateway.catalog();
    let servers =
        read(&text)?.servers.into_iter().map(|entry| ImportCandidate::of(entry, &catalog)).collect();
    Ok(Json(ImportPreview { servers }))
}

/// Registers the named servers of a configuration.
#[utoipa::path(post, path = "/api/dashboard/import", tag = "dashboard",
    request_body = ImportInput, responses((status = 200, body = Imported)))]
pub async fn apply(
    State(face): State<Face>,
    headers: HeaderMap,
    ChangedBy(by): ChangedBy,
    body: Bytes,
) -> HandlerResult<Json<Imported>> {
    let mut fields = Fields::new(json_object(&body)?);
    let text = fields.required_text("text")?;
    let names = fields.texts("names")?;
    fields.finish()?;
    let names = names.ok_or_else(|| FieldError::new("names", "is required: the servers to register"))?;
    let mut import = read(&text)?;
    let mut work = JoinSet::new();
    for (place, name) in names.into_iter().enumerate() {
        let found = import.servers.iter().position(|entry| entry.name == name);
        let entry = found.map(|position| import.servers.remove(position));
        let (face, headers, by) = (face.clone(), headers.clone(), by.clone());
        work.spawn(async move { (place, register(&face, &headers, &by, name, entry).await) });
    }
    let mut outcomes = work.join_all().await;
    outcomes.sort_by_key(|(place, _)| *place);
    Ok(Json(Imported { outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect() }))
}

fn read(text: &str) -> Result<Import, ErrorResponse> {
    import::parse(text, |_| None)
        .map_err(|error| FieldError::new("text", format!("cannot be read: {error}")).into())
}

async fn register(
    face: &Face,
    headers: &HeaderMap,
    by: &By,
    name: String,
    entry: Option<ImportEntry>,
) -> ImportOutcome {
    let Some(entry) = entry else {
        let reason = "the text has no server of this name, or it was named twice".to_owned();
        return ImportOutcome::of(name, "skipped", Some(reason));
    };
    let plan = plan(entry.outcome, &name, &face.gateway.catalog());
    let outcome = match plan.action() {
        Action::Add => "added",
        Action::Change => "changed",
        Action::Skip => return ImportOutcome::of(name, "skipped", plan.reason().map(str::to_owned)),
    };
    let is_new = plan.action() == Action::Add;
    let mut input = plan.into_input().unwrap_or_default();
    // A server that works is not replaced by one that does not.
    if is_new {
        input.insert("keep_failed".to_owned(), true.into());
    }
    match oauth::register(face, headers, by, input, Existing::Replace).await {
        Ok(Registered::Stored(server)) if server.status == Status::Failed => {
            let reason =
                format!("{}; it is stored, and the gateway keeps trying to connect", server.status_reason);
            ImportOutcome::of(name, "failed", Some(reason))
        }
        Ok(Registered::Stored(_)) => ImportOutcome::of(name, outcome, None),
        Ok(Registered::AuthorizationRequired(pending)) => ImportOutcome {
            authorization_required: Some(pending.into()),
            ..ImportOutcome::of(name, "authorization_required", None)
        },
        Err(error) => ImportOutcome::of(name, "failed", Some(error.to_string())),
    }
}

fn plan(outcome: EntryOutcome<import::CheckedInput>, name: &str, catalog: &Catalog) -> Plan {
    let current = catalog.get(name).map(|entry| entry.registration.to_json());
    Plan::of_server(outcome, current.as_ref())
}

impl ImportOutcome {
    fn of(name: String, outcome: &'static str, reason: Option<String>) -> Self {
        Self { name, outcome, reason, authorization_required: None }
    }
}

impl ImportCandidate {
    fn of(entry: ImportEntry, catalog: &Catalog) -> Self {
        let ImportEntry { name, renamed_from, transport, summary, env_keys, header_keys, ignored, outcome } =
            entry;
        let plan = plan(outcome, &name, catalog);
        let (action, reason) = match plan.action() {
            Action::Change => ("change", Some("replaces the registered server".to_owned())),
            action @ (Action::Add | Action::Skip) => (action.as_str(), plan.reason().map(str::to_owned)),
        };
        let renamed = renamed_from.map(|from| format!("renamed, because {from:?} is not a valid name"));
        let ignored = (!ignored.is_empty()).then(|| format!("ignored: {}", ignored.join(", ")));
        let remarks: Vec<_> = [reason, renamed, ignored].into_iter().flatten().collect();
        let reason = (!remarks.is_empty()).then(|| remarks.join("; "));
        Self { name, transport, summary, env_keys, header_keys, action, reason }
    }
}
