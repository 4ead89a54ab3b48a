//! Adding servers by pasting the configuration of another program: first a look at what would happen, then the doing.
//! What such a text means is decided in `model::import`; variables in it are not looked up, since ours are secrets.

use axum::extract::State;
use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use utoipa::ToSchema;

use super::oauth;
use crate::gateway::catalog::Catalog;
use crate::gateway::oauth::{Outcome as Registered, Pending};
use crate::gateway::servers::Existing;
use crate::http::Face;
use crate::http::error::Refusal;
use crate::http::extract::json_object;
use crate::http::reply::{Answer, Json};
use crate::model::import::{self, Entry, Import, Outcome};
use crate::model::{FieldError, Fields, Registration};

/// A pasted configuration.
#[derive(ToSchema)]
pub struct PreviewInput {
    pub text: String,
}

/// A pasted configuration, and which of its servers to register.
#[derive(ToSchema)]
pub struct ImportInput {
    pub text: String,
    pub names: Vec<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ImportPreview)]
pub struct Preview {
    servers: Vec<Candidate>,
}

/// A server of the text, without any of its values.
#[derive(Serialize, ToSchema)]
#[schema(as = ImportCandidate)]
pub struct Candidate {
    name: String,
    transport: String,
    summary: String,
    env_keys: Vec<String>,
    header_keys: Vec<String>,
    /// `add`, `change` or `skip`.
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Imported)]
pub struct Applied {
    outcomes: Vec<ImportOutcome>,
}

#[derive(Serialize, ToSchema)]
pub struct ImportOutcome {
    name: String,
    /// `added`, `changed`, `skipped`, `failed` or `authorization_required`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The page on which a person must authorize the server first.
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization_required: Option<Pending>,
}

/// What importing this text would do. Nothing is stored.
#[utoipa::path(post, path = "/api/dashboard/import/preview", tag = "dashboard",
    request_body = PreviewInput, responses((status = 200, body = Preview)))]
pub async fn preview(State(face): State<Face>, body: Bytes) -> Answer<Json<Preview>> {
    let mut fields = Fields::new(json_object(&body)?);
    let text = fields.required_text("text")?;
    fields.finish()?;
    let catalog = face.gateway.catalog();
    let servers = read(&text)?.servers.into_iter().map(|entry| Candidate::of(entry, &catalog)).collect();
    Ok(Json(Preview { servers }))
}

/// Registers the named servers of this text.
#[utoipa::path(post, path = "/api/dashboard/import", tag = "dashboard",
    request_body = ImportInput, responses((status = 200, body = Applied)))]
pub async fn apply(State(face): State<Face>, headers: HeaderMap, body: Bytes) -> Answer<Json<Applied>> {
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
        let (face, headers) = (face.clone(), headers.clone());
        work.spawn(async move { (place, register(&face, &headers, name, entry).await) });
    }
    let mut outcomes = work.join_all().await;
    outcomes.sort_by_key(|(place, _)| *place);
    Ok(Json(Applied { outcomes: outcomes.into_iter().map(|(_, outcome)| outcome).collect() }))
}

fn read(text: &str) -> Result<Import, Refusal> {
    import::parse(text, |_| None)
        .map_err(|error| FieldError::new("text", format!("cannot be read: {error}")).into())
}

async fn register(face: &Face, headers: &HeaderMap, name: String, entry: Option<Entry>) -> ImportOutcome {
    let catalog = face.gateway.catalog();
    let input = match entry.map(|entry| decide(entry.outcome, &catalog)) {
        None => Err("the text has no server of this name, or it was named twice".to_owned()),
        Some((Plan::Skip(reason), _)) => Err(reason),
        Some((Plan::Add | Plan::Change, input)) => Ok(input),
    };
    let input = match input {
        Ok(input) => input,
        Err(reason) => return ImportOutcome::of(name, "skipped", Some(reason)),
    };
    let outcome = if catalog.get(&name).is_some() { "changed" } else { "added" };
    match oauth::register(face, headers, input, Existing::Replace).await {
        Ok(Registered::Stored(_)) => ImportOutcome::of(name, outcome, None),
        Ok(Registered::AuthorizationRequired(pending)) => ImportOutcome {
            authorization_required: Some(pending),
            ..ImportOutcome::of(name, "authorization_required", None)
        },
        Err(error) => ImportOutcome::of(name, "failed", Some(error.to_string())),
    }
}

impl ImportOutcome {
    fn of(name: String, outcome: &'static str, reason: Option<String>) -> Self {
        Self { name, outcome, reason, authorization_required: None }
    }
}

/// What importing means for one server.
enum Plan {
    Add,
    Change,
    Skip(String),
}

fn decide(outcome: Outcome<import::RegistrationInput>, catalog: &Catalog) -> (Plan, Map<String, Value>) {
    let input = match outcome {
        Outcome::Ready(input) => input.into_json(),
        Outcome::Skip(reason) => return (Plan::Skip(reason), Map::new()),
    };
    let plan = match Registration::parse(input.clone()) {
        Err(error) => Plan::Skip(error.to_string()),
        Ok(registration) => match catalog.get(registration.config.name.as_str()) {
            None => Plan::Add,
            Some(entry) if entry.registration.config == registration.config => {
                Plan::Skip("it is registered exactly like this already".into())
            }
            Some(_) => Plan::Change,
        },
    };
    (plan, input)
}

impl Candidate {
    fn of(entry: Entry, catalog: &Catalog) -> Self {
        let Entry { name, renamed_from, transport, summary, env_keys, header_keys, ignored, outcome } = entry;
        let (action, reason) = match decide(outcome, catalog).0 {
            Plan::Add => ("add", None),
            Plan::Change => ("change", Some("it replaces the server of this name".to_owned())),
            Plan::Skip(reason) => ("skip", Some(reason)),
        };
        let renamed = renamed_from.map(|from| format!("{from:?} cannot be the name of a server"));
        let ignored = (!ignored.is_empty()).then(|| format!("without {}", ignored.join(", ")));
        let remarks: Vec<_> = [reason, renamed, ignored].into_iter().flatten().collect();
        let reason = (!remarks.is_empty()).then(|| remarks.join("; "));
        Self { name, transport, summary, env_keys, header_keys, action, reason }
    }
}
