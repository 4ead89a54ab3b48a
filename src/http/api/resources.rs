//! `/api/v0/resources` and `/api/v0/resource_templates`: listing and reading what servers hold.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::coverage;
use crate::http::Face;
use crate::http::access::Caller;
use crate::http::error::Refusal;
use crate::http::extract::{Query, json_object};
use crate::http::reply::{Answer, Json, Written};
use crate::model::{FieldError, Fields};

pub async fn list(State(face): State<Face>, query: Query) -> Answer<Response> {
    Ok(Json(face.gateway.catalog().resource_records(&coverage(&query)?)?).into_response())
}

pub async fn templates(State(face): State<Face>, query: Query) -> Answer<Response> {
    Ok(Json(face.gateway.catalog().template_records(&coverage(&query)?)?).into_response())
}

pub async fn get(State(face): State<Face>, body: Bytes) -> Answer<Response> {
    let uri = uri(&body)?;
    Ok(Json(face.gateway.catalog().resource_record(&uri)?).into_response())
}

pub async fn read(State(face): State<Face>, caller: Caller, body: Bytes) -> Answer<Written> {
    Ok(Written(face.gateway.read_resource(caller.owner(), &uri(&body)?).await?))
}

fn uri(body: &Bytes) -> Result<String, Refusal> {
    let mut fields = Fields::new(json_object(body)?);
    let uri = fields.required_text("uri")?;
    fields.finish()?;
    if uri.is_empty() {
        return Err(FieldError::new("uri", "must not be empty").into());
    }
    Ok(uri)
}
