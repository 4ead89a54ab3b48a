//! `/api/v0/grants`: software that acts for users, who agreed to it.

use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::{ChangedBy, CurrentPrincipal};
use crate::http::address::base_url;
use crate::http::error::HandlerResult;
use crate::http::extract::Name;
use crate::http::reply::{Json, NoContent};
use gateway::principals::Principal;
use gateway::sign_in::GrantRecord;
use model::time;

/// A grant: software that acts for a user.
#[derive(Serialize, ToSchema)]
pub struct GrantBody {
    id: String,
    username: String,
    /// The name that the software gave itself, or has in its registration.
    client_name: String,
    client_id: String,
    /// The MCP endpoint that it is for; the address of the gateway means all of them.
    resource: String,
    created_at: String,
    last_used_at: Option<String>,
}

impl GrantBody {
    fn of(grant: GrantRecord, base_url: &str) -> Self {
        Self {
            id: grant.id.to_string(),
            username: grant.username,
            client_name: grant.client_name,
            client_id: grant.client_id,
            resource: format!("{base_url}{}", grant.reach.as_str()),
            created_at: time::rfc3339(grant.created_at_ms),
            last_used_at: grant.last_used_at_ms.map(time::rfc3339),
        }
    }
}

/// Lists grants, the newest first: those of all users for an admin, else one's own.
#[utoipa::path(get, path = "/api/v0/grants", tag = "grants", responses((status = 200, body = [GrantBody])))]
pub async fn list(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    headers: HeaderMap,
) -> HandlerResult<Json<Vec<GrantBody>>> {
    let grants = face.gateway.grants(caller.limited_to().map(Principal::id)).await?;
    let base_url = base_url(&face.settings, &headers);
    Ok(Json(grants.into_iter().map(|grant| GrantBody::of(grant, &base_url)).collect()))
}

/// Ends a grant: its tokens stop working at once. The user is asked again before the software gets another one.
#[utoipa::path(delete, path = "/api/v0/grants/{id}", tag = "grants",
    params(("id" = String, Path, description = "The id of the grant")), responses((status = 204)))]
pub async fn delete(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    ChangedBy(by): ChangedBy,
    Name(id): Name,
) -> HandlerResult<NoContent> {
    face.gateway.end_grant(&id, caller.limited_to().map(Principal::id), &by).await?;
    Ok(NoContent)
}
