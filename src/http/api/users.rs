//! `/api/v0/users`: people, their roles and tokens.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;

use crate::gateway::access::Principal;
use crate::http::Face;
use crate::http::access::Caller;
use crate::http::error::Refusal;
use crate::http::extract::{Name, json_object};
use crate::http::reply::{Answer, Created, Json, NoContent};
use crate::model::{HolderName, Role, User};

/// What everybody may know about a user.
#[derive(Serialize)]
pub struct UserRecord {
    username: HolderName,
    role: Role,
}

/// A user with the token, as whoever gave it out sees it.
#[derive(Serialize)]
pub struct UserWithToken {
    #[serde(flatten)]
    record: UserRecord,
    access_token: String,
}

pub async fn list(State(face): State<Face>) -> Answer<Json<Vec<UserRecord>>> {
    Ok(Json(face.gateway.users()?.into_iter().map(record).collect()))
}

pub async fn create(State(face): State<Face>, body: Bytes) -> Answer<Created<UserWithToken>> {
    // Whether there are users at all is the first thing to say, before what is wrong with the body.
    face.gateway.users()?;
    Ok(Created(with_token(face.gateway.create_user(json_object(&body)?).await?)))
}

pub async fn change(State(face): State<Face>, Name(name): Name, body: Bytes) -> Answer<Json<UserWithToken>> {
    face.gateway.user(&name)?;
    Ok(Json(with_token(face.gateway.change_user(&name, json_object(&body)?).await?)))
}

pub async fn delete(State(face): State<Face>, Name(name): Name) -> Answer<NoContent> {
    face.gateway.delete_user(&name).await?;
    Ok(NoContent)
}

pub async fn whoami(State(face): State<Face>, caller: Caller) -> Answer<Json<UserRecord>> {
    face.gateway.users()?;
    match caller.0 {
        Some(Principal::User(user)) => Ok(Json(record(user.holder.clone()))),
        Some(Principal::Client(_)) | None => Err(Refusal::no_token()),
    }
}

fn record(user: User) -> UserRecord {
    UserRecord { username: user.username, role: user.role }
}

fn with_token(user: User) -> UserWithToken {
    UserWithToken { access_token: user.token.secret().expose().to_owned(), record: record(user) }
}
