//! `/api/v0/tool-groups`: curated parts of what the servers offer, each with endpoints of its own.

use axum::extract::State;
use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Serialize;

use crate::http::Face;
use crate::http::address::base_url;
use crate::http::extract::{Name, json_object};
use crate::http::reply::{Answer, Created, Json, NoContent};
use crate::model::{Group, GroupName};

/// A group with the addresses of its endpoints.
#[derive(Serialize)]
pub struct GroupWithEndpoints {
    #[serde(flatten)]
    group: Group,
    streamable_http_endpoint: String,
    sse_endpoint: String,
    sse_message_endpoint: String,
}

#[derive(Serialize)]
pub struct Replaced {
    name: GroupName,
    old: Group,
    new: Group,
}

#[derive(Serialize)]
pub struct EffectiveTools {
    tools: Vec<String>,
}

pub async fn list(State(face): State<Face>) -> Json<Vec<Group>> {
    Json(face.gateway.catalog().groups().cloned().collect())
}

pub async fn get(
    State(face): State<Face>,
    headers: HeaderMap,
    Name(name): Name,
) -> Answer<Json<GroupWithEndpoints>> {
    let group = face.gateway.catalog().group(&name)?.clone();
    Ok(Json(with_endpoints(&face, &headers, group)))
}

pub async fn create(
    State(face): State<Face>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Created<GroupWithEndpoints>> {
    let group = face.gateway.create_group(json_object(&body)?).await?;
    Ok(Created(with_endpoints(&face, &headers, group)))
}

pub async fn replace(State(face): State<Face>, Name(name): Name, body: Bytes) -> Answer<Json<Replaced>> {
    // A missing group is the first thing to say, before what is wrong with the body.
    face.gateway.catalog().group(&name)?;
    let replaced = face.gateway.replace_group(&name, json_object(&body)?).await?;
    Ok(Json(Replaced { name: replaced.new.name.clone(), old: replaced.old, new: replaced.new }))
}

pub async fn delete(State(face): State<Face>, Name(name): Name) -> Answer<NoContent> {
    face.gateway.delete_group(&name).await?;
    Ok(NoContent)
}

pub async fn effective_tools(State(face): State<Face>, Name(name): Name) -> Answer<Json<EffectiveTools>> {
    let catalog = face.gateway.catalog();
    catalog.group(&name)?;
    Ok(Json(EffectiveTools { tools: catalog.effective_tools(&name) }))
}

fn with_endpoints(face: &Face, headers: &HeaderMap, group: Group) -> GroupWithEndpoints {
    let base = format!("{}/v0/groups/{}", base_url(&face.settings, headers), group.name);
    GroupWithEndpoints {
        group,
        streamable_http_endpoint: format!("{base}/mcp"),
        sse_endpoint: format!("{base}/sse"),
        sse_message_endpoint: format!("{base}/message"),
    }
}
