//! The REST API under `/api/v0`, one file per noun. This file reads the parameters that several of them share.

pub mod access;
pub mod audit;
pub mod calls;
pub mod clients;
pub mod grants;
pub mod groups;
pub mod idp_groups;
pub mod logs;
pub mod oauth;
pub mod oauth_clients;
pub mod prompts;
pub mod resources;
pub mod servers;
pub mod tools;
pub mod users;

use bytes::Bytes;

use super::error::ErrorResponse;
use super::extract::{Query, json_object};
use gateway::tools::Coverage;
use model::{FieldError, Fields};

/// Reads which servers a list covers: `server` names one, `all` includes disabled ones.
fn coverage(query: &Query) -> Result<Coverage<'_>, ErrorResponse> {
    Ok(match (query.text("server"), query.flag("all")?) {
        (None, false) => Coverage::Enabled,
        (None, true) => Coverage::All,
        (Some(server), false) => Coverage::Server(server),
        (Some(server), true) => Coverage::ServerAtAll(server),
    })
}

/// Reads the name of what to enable or disable: in the query, or in the body as `entity` or `name`.
fn entity(query: &Query, body: &Bytes) -> Result<String, ErrorResponse> {
    if let Some(entity) = query.text("entity") {
        return Ok(entity.to_owned());
    }
    let missing = || {
        ErrorResponse::from(FieldError::new("entity", "is required: a full name, or the name of a server"))
    };
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(missing());
    }
    let mut fields = Fields::new(json_object(body)?);
    let (entity, name) = (fields.text("entity")?, fields.text("name")?);
    fields.finish()?;
    entity.or(name).filter(|entity| !entity.is_empty()).ok_or_else(missing)
}
