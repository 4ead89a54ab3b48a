//! `/api/v0/access`: who may use what, and by which rules.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::Face;
use crate::http::access::CurrentPrincipal;
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::Query;
use crate::http::reply::Json;
use gateway::explain::{AppliedRule, Explanation};
use gateway::principals::Principal;
use model::Role;

/// Whether a user or client may use something.
#[derive(Serialize, ToSchema)]
pub struct ExplanationBody {
    allowed: bool,
    /// One sentence.
    reason: String,
    /// The rules that are about it; only for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<RuleBody>>,
}

/// A rule, and whose it is.
#[derive(Serialize, ToSchema)]
pub struct RuleBody {
    /// Such as `client ci`, `user ann` or `IdP group eng`.
    from: String,
    /// Such as `!github__delete_*`.
    entry: String,
}

/// Returns whether a user or client may use a tool, a prompt or a server, and by which rules.
///
/// A user who is not an admin may ask about themself, and learns only whether it is allowed.
#[utoipa::path(get, path = "/api/v0/access/explain", tag = "users",
    params(
        ("subject" = String, Query, description = "`user:<name>` or `client:<name>`"),
        ("name" = String, Query, description = "The full name of a tool or prompt, or the name of a server"),
    ), responses((status = 200, body = ExplanationBody)))]
pub async fn explain(
    State(face): State<Face>,
    caller: CurrentPrincipal,
    query: Query,
) -> HandlerResult<Json<ExplanationBody>> {
    let is_admin = caller.role() == Some(Role::Admin);
    // In development mode there is nobody to ask about; that error comes before errors in the query.
    face.gateway.users()?;
    let (subject, name) = (query.required("subject")?, query.required("name")?);
    let asked = match (&caller.0, is_admin) {
        (_, true) => face.gateway.subject(subject)?,
        (Some(Principal::User(user)), false) if subject == format!("user:{}", user.holder.username) => {
            let Some(own) = &caller.0 else { return Err(ErrorResponse::no_token()) };
            own.clone()
        }
        (_, false) => {
            return Err(ErrorResponse::forbidden(
                "only admins may ask about others; the subject must be your own user:<name>",
            ));
        }
    };
    let (explanation, rules) = match is_admin {
        true => {
            let mut explanation = face.gateway.explain(&asked, name);
            let rules = std::mem::take(&mut explanation.rules);
            (explanation, Some(rules))
        }
        false => (face.gateway.explain_to_self(&asked, name), None),
    };
    let Explanation { allowed, reason, .. } = explanation;
    let body = |AppliedRule { from, entry }| RuleBody { from, entry };
    let rules = rules.map(|rules| rules.into_iter().map(body).collect());
    Ok(Json(ExplanationBody { allowed, reason, rules }))
}
