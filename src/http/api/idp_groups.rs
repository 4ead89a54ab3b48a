//! `/api/v0/idp-groups`: what people may do because of their groups at the identity provider.

use axum::extract::State;
use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::ChangedBy;
use crate::http::error::HandlerResult;
use crate::http::extract::{Name, json_object};
use crate::http::record::RateLimitBody;
use crate::http::reply::{Json, NoContent};
use model::{IdpGroup, Role};

/// The rules of a group.
#[derive(Serialize, ToSchema)]
pub struct IdpGroupRecord {
    /// As the identity provider writes it; `*` is everybody there.
    name: String,
    /// `admin` or `user`.
    #[schema(value_type = String)]
    role: Role,
    /// What members may use, besides what their other groups and their own list allow.
    allow_list: Vec<String>,
    /// The limit of the calls of each member without an own one; of several groups the highest counts.
    rate_limit: Option<RateLimitBody>,
}

impl From<IdpGroup> for IdpGroupRecord {
    fn from(group: IdpGroup) -> Self {
        Self {
            name: group.name,
            role: group.role,
            allow_list: group.allow_list.entries().to_vec(),
            rate_limit: group.rate_limit.map(RateLimitBody::from),
        }
    }
}

/// The rules of a group. What is omitted is empty.
// Only for the OpenAPI document: `model::idp_group` parses the body.
#[derive(ToSchema)]
pub struct IdpGroupInput {
    /// `admin` or `user`; `user` if omitted.
    pub role: Option<String>,
    pub allow_list: Option<Vec<String>>,
    pub rate_limit: Option<RateLimitBody>,
}

/// Lists the groups of the identity provider that have rules.
#[utoipa::path(get, path = "/api/v0/idp-groups", tag = "users", responses((status = 200, body = [IdpGroupRecord])))]
pub async fn list(State(face): State<Face>) -> HandlerResult<Json<Vec<IdpGroupRecord>>> {
    Ok(Json(face.gateway.idp_groups()?.into_iter().map(IdpGroupRecord::from).collect()))
}

/// Creates or replaces the rules of a group of the identity provider.
#[utoipa::path(put, path = "/api/v0/idp-groups/{name}", tag = "users", params(("name" = String, Path)),
    request_body = IdpGroupInput, responses((status = 200, body = IdpGroupRecord)))]
pub async fn put(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
    body: Bytes,
) -> HandlerResult<Json<IdpGroupRecord>> {
    face.gateway.idp_groups()?;
    Ok(Json(face.gateway.put_idp_group(&name, json_object(&body)?, &by).await?.into()))
}

/// Deletes the rules of a group of the identity provider. Those of `*` can only be changed.
#[utoipa::path(delete, path = "/api/v0/idp-groups/{name}", tag = "users",
    params(("name" = String, Path)), responses((status = 204)))]
pub async fn delete(
    State(face): State<Face>,
    ChangedBy(by): ChangedBy,
    Name(name): Name,
) -> HandlerResult<NoContent> {
    face.gateway.delete_idp_group(&name, &by).await?;
    Ok(NoContent)
}
