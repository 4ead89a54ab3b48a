//! `/api/v0/servers`: registering servers and looking after them.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::gateway::record::ServerRecord;
use crate::gateway::servers::{Existing, Switched};
use crate::http::Face;
use crate::http::access::Caller;
use crate::http::extract::{Name, Query, json_object};
use crate::http::reply::{Answer, Created, Json, NoContent};
use crate::model::Role;

#[derive(Serialize)]
pub struct OneServer {
    server: ServerRecord,
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

pub async fn register(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Created<Registered>> {
    let existing = if query.flag("force")? { Existing::Replace } else { Existing::Refuse };
    let server = face.gateway.register(json_object(&body)?, existing).await?;
    Ok(Created(Registered { fields: server.clone(), server }))
}

pub async fn amend(State(face): State<Face>, Name(name): Name, body: Bytes) -> Answer<Json<OneServer>> {
    let server = face.gateway.amend(&name, json_object(&body)?).await?;
    Ok(Json(OneServer { server }))
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
