//! `/api/v0/servers`: registering servers and looking after them.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::gateway::oauth::Outcome;
use crate::gateway::record::ServerRecord;
use crate::gateway::servers::{Existing, Switched};
use crate::http::Face;
use crate::http::access::Caller;
use crate::http::dashboard::oauth::AuthorizationRequired;
use crate::http::extract::{Name, Query, json_object};
use crate::http::reply::{Accepted, Answer, Created, Json, NoContent};
use crate::model::{Fields, Role};

#[derive(Serialize)]
pub struct OneServer {
    pub(super) server: ServerRecord,
}

/// The record under `server`, and its fields at the top level too.
#[derive(Serialize)]
pub struct Registered {
    server: ServerRecord,
    #[serde(flatten)]
    fields: ServerRecord,
}

pub async fn list(State(face): State<Face>, caller: Caller) -> Json<Vec<ServerRecord>> {
    Json(face.gateway.servers().into_iter().map(|server| shown_to(&caller, server)).collect())
}

pub async fn get(State(face): State<Face>, caller: Caller, Name(name): Name) -> Answer<Json<ServerRecord>> {
    Ok(Json(shown_to(&caller, face.gateway.server(&name)?)))
}

/// Arguments of processes carry secrets too often to be shown to everybody.
fn shown_to(caller: &Caller, server: ServerRecord) -> ServerRecord {
    match caller.role() {
        Some(Role::User) => server.without_arguments(),
        Some(Role::Admin) | None => server,
    }
}

pub async fn register(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Response> {
    let existing = if query.flag("force")? { Existing::Replace } else { Existing::Refuse };
    Ok(match face.gateway.register(json_object(&body)?, existing).await? {
        Outcome::Stored(server) => {
            Created(Registered { fields: (*server).clone(), server: *server }).into_response()
        }
        Outcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

pub async fn amend(State(face): State<Face>, Name(name): Name, body: Bytes) -> Answer<Response> {
    Ok(match face.gateway.amend(&name, json_object(&body)?).await? {
        Outcome::Stored(server) => Json(OneServer { server: *server }).into_response(),
        Outcome::AuthorizationRequired(pending) => {
            Accepted(AuthorizationRequired::from(pending)).into_response()
        }
    })
}

/// Asks a person to authorize a server anew; the way back is the registered one unless the body says another.
pub async fn reauthorize(
    State(face): State<Face>,
    Name(name): Name,
    body: Bytes,
) -> Answer<Accepted<AuthorizationRequired>> {
    let mut redirect_uri = None;
    if !body.iter().all(u8::is_ascii_whitespace) {
        let mut fields = Fields::new(json_object(&body)?);
        redirect_uri = fields.text("oauth_redirect_uri")?.filter(|uri| !uri.is_empty());
        fields.finish()?;
    }
    Ok(Accepted(face.gateway.reauthorize(&name, redirect_uri).await?.into()))
}

pub async fn remove(State(face): State<Face>, Name(name): Name) -> Answer<NoContent> {
    face.gateway.remove(&name).await?;
    Ok(NoContent)
}

pub async fn enable(State(face): State<Face>, Name(name): Name) -> Answer<Json<Switched>> {
    Ok(Json(face.gateway.switch_server(&name, true).await?))
}

pub async fn disable(State(face): State<Face>, Name(name): Name) -> Answer<Json<Switched>> {
    Ok(Json(face.gateway.switch_server(&name, false).await?))
}

pub async fn refresh(State(face): State<Face>, Name(name): Name) -> Answer<Json<OneServer>> {
    let server = face.gateway.refresh(&name).await?;
    Ok(Json(OneServer { server }))
}

pub async fn configs(State(face): State<Face>) -> Json<Vec<Map<String, Value>>> {
    Json(face.gateway.server_configs())
}
