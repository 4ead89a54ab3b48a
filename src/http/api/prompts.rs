//! `/api/v0/prompts`: listing, rendering and switching prompts.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::{coverage, entity};
use crate::http::Face;
use crate::http::access::Caller;
use crate::http::extract::{Query, json_object};
use crate::http::reply::{Answer, Json, Written};
use crate::model::Fields;

pub async fn list(State(face): State<Face>, query: Query) -> Answer<Response> {
    Ok(Json(face.gateway.catalog().prompt_records(&coverage(&query)?)?).into_response())
}

pub async fn get(State(face): State<Face>, query: Query) -> Answer<Response> {
    let name = query.required("name")?;
    Ok(Json(face.gateway.catalog().prompt_record(name)?).into_response())
}

pub async fn render(State(face): State<Face>, caller: Caller, body: Bytes) -> Answer<Written> {
    let mut fields = Fields::new(json_object(&body)?);
    let name = fields.required_text("name")?;
    let arguments = fields.text_map("arguments")?.unwrap_or_default();
    fields.finish()?;
    Ok(Written(face.gateway.render(caller.owner(), &name, &arguments).await?))
}

pub async fn enable(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_prompts(&entity(&query, &body)?, true).await?))
}

pub async fn disable(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_prompts(&entity(&query, &body)?, false).await?))
}
