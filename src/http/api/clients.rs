//! `/api/v0/clients`: agents, their tokens and allow lists.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;

use crate::http::Face;
use crate::http::extract::{Name, json_object};
use crate::http::reply::{Answer, Created, Json, NoContent};
use crate::model::{Client, HolderName};

/// A client; its token stays readable for admins.
#[derive(Serialize)]
pub struct ClientRecord {
    name: HolderName,
    description: String,
    access_token: String,
    is_custom_access_token: bool,
    allow_list: Vec<String>,
}

impl From<Client> for ClientRecord {
    fn from(client: Client) -> Self {
        Self {
            access_token: client.token.secret().expose().to_owned(),
            is_custom_access_token: client.is_custom_token,
            allow_list: client.allow_list.names().to_vec(),
            name: client.name,
            description: client.description,
        }
    }
}

pub async fn list(State(face): State<Face>) -> Answer<Json<Vec<ClientRecord>>> {
    Ok(Json(face.gateway.clients()?.into_iter().map(ClientRecord::from).collect()))
}

pub async fn create(State(face): State<Face>, body: Bytes) -> Answer<Created<ClientRecord>> {
    // Whether there are clients at all is the first thing to say, before what is wrong with the body.
    face.gateway.clients()?;
    Ok(Created(face.gateway.create_client(json_object(&body)?).await?.into()))
}

pub async fn replace(State(face): State<Face>, Name(name): Name, body: Bytes) -> Answer<Json<ClientRecord>> {
    face.gateway.client(&name)?;
    Ok(Json(face.gateway.replace_client(&name, json_object(&body)?).await?.into()))
}

pub async fn delete(State(face): State<Face>, Name(name): Name) -> Answer<NoContent> {
    face.gateway.delete_client(&name).await?;
    Ok(NoContent)
}
