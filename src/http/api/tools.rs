//! `/api/v0/tools`: listing, calling and switching tools.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::{coverage, entity};
use crate::http::Face;
use crate::http::access::Caller;
use crate::http::error::Refusal;
use crate::http::extract::Query;
use crate::http::reply::{Answer, Json, Written};
use crate::http::stream::EventBody;
use gateway::record::ToolRecord;
use model::FieldError;
use wire::{authored, sse, text, walk};

/// Progress events that wait for a slow reader.
const PROGRESS_BACKLOG: usize = 64;

/// What a tool answered. A tool that reports an error is an answer, too.
#[derive(ToSchema)]
pub struct ToolResult {
    /// Blocks with a `type` each, such as `text` or `image`.
    pub content: Vec<Value>,
    #[schema(rename = "isError")]
    pub is_error: bool,
    #[schema(rename = "structuredContent")]
    pub structured_content: Option<Value>,
    #[schema(rename = "_meta")]
    pub meta: Option<HashMap<String, Value>>,
}

/// All tools.
#[utoipa::path(get, path = "/api/v0/tools", tag = "tools",
    params(
        ("server" = Option<String>, Query, description = "Only of this server"),
        ("all" = Option<bool>, Query, description = "Those of disabled servers, too"),
    ), responses((status = 200, body = [ToolRecord])))]
pub async fn list(State(face): State<Face>, query: Query) -> Answer<Response> {
    Ok(Json(face.gateway.catalog().tool_records(&coverage(&query)?)?).into_response())
}

/// One tool.
#[utoipa::path(get, path = "/api/v0/tool", tag = "tools",
    params(("name" = String, Query, description = "The full name")),
    responses((status = 200, body = ToolRecord)))]
pub async fn get(State(face): State<Face>, query: Query) -> Answer<Response> {
    let name = query.required("name")?;
    Ok(Json(face.gateway.catalog().tool_record(name)?).into_response())
}

/// Switches a tool, or all tools of a server, on.
#[utoipa::path(post, path = "/api/v0/tools/enable", tag = "tools",
    params(("entity" = Option<String>, Query, description = "A full name, or the name of a server")),
    responses((status = 200, body = [String])))]
pub async fn enable(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_tools(&entity(&query, &body)?, true).await?))
}

/// Switches a tool, or all tools of a server, off.
#[utoipa::path(post, path = "/api/v0/tools/disable", tag = "tools",
    params(("entity" = Option<String>, Query, description = "A full name, or the name of a server")),
    responses((status = 200, body = [String])))]
pub async fn disable(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_tools(&entity(&query, &body)?, false).await?))
}

/// Calls a tool; with `Accept: text/event-stream` the answer streams progress and then the result.
#[utoipa::path(post, path = "/api/v0/tools/invoke", tag = "tools",
    request_body(content = HashMap<String, Value>, description = "`name`, and the arguments beside it"),
    responses((status = 200, body = ToolResult)))]
pub async fn invoke(
    State(face): State<Face>,
    caller: Caller,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Response> {
    let nests = |name: &str| {
        face.gateway.catalog().tool(name).is_ok_and(|(_, tool)| tool.takes_name_but_not_arguments())
    };
    let call = Call::parse(&body, nests)?;
    run(face, caller, &headers, call).await
}

/// Calls a tool and answers in the way that the caller accepts.
pub async fn run(face: Face, caller: Caller, headers: &HeaderMap, call: Call) -> Answer<Response> {
    if !wants_events(headers) {
        let result = face.gateway.invoke(caller.owner(), &call.name, &call.arguments, None).await?;
        return Ok(Written(result.to_json()).into_response());
    }
    // What is wrong with the request itself is said with a status, before the stream begins.
    face.gateway.check_callable(&call.name)?;
    let (sender, mut params) = mpsc::channel(PROGRESS_BACKLOG);
    let (frames, notices) = mpsc::channel(PROGRESS_BACKLOG);
    let work = async move {
        let invoked = face.gateway.invoke(caller.owner(), &call.name, &call.arguments, Some(sender));
        tokio::pin!(invoked);
        let invoked = loop {
            tokio::select! {
                biased;
                Some(params) = params.recv() => {
                    let _ = frames.try_send(sse::frame(Some("progress"), &params));
                }
                invoked = &mut invoked => break invoked,
            }
        };
        // The last steps may have come together with the end.
        while let Ok(params) = params.try_recv() {
            let _ = frames.try_send(sse::frame(Some("progress"), &params));
        }
        match invoked {
            Ok(result) => sse::frame(Some("result"), &result.to_json()),
            Err(error) => {
                let error = text::quote(&error.to_string());
                sse::frame(Some("error"), &authored::object(&[("error", &error)]))
            }
        }
    };
    Ok(EventBody::response(work, notices))
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|part| {
        part.split(';').next().is_some_and(|media| media.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

/// Which tool to call with which arguments, the latter as they were written.
pub struct Call {
    pub name: String,
    pub arguments: Vec<u8>,
}

impl Call {
    /// `nests` tells whether a tool's arguments may stand under `arguments`, since one of them is called `name`.
    pub fn parse(body: &[u8], nests: impl FnOnce(&str) -> bool) -> Result<Self, Refusal> {
        let span = walk::whole(body)
            .map_err(|error| Refusal::bad_request(format!("the body is not JSON: {error}")))?;
        if body.get(span.start) != Some(&b'{') {
            return Err(Refusal::bad_request("the body must be a JSON object"));
        }
        let (mut name, mut rest) = (None, Vec::new());
        for (key, key_span, value_span) in walk::members(body, &span) {
            if key != "name" {
                rest.push((key, key_span, value_span));
            } else if name.replace(value_span).is_some() {
                return Err(FieldError::new("name", "is given twice").into());
            }
        }
        let name = name.ok_or_else(|| FieldError::new("name", "is required: the full name of a tool"))?;
        let name = text::unescape(&body[name]).ok_or_else(|| FieldError::new("name", "must be a string"))?;
        if let [(key, _, value)] = rest.as_slice()
            && key == "arguments"
            && body[value.start] == b'{'
            && nests(&name)
        {
            return Ok(Self { arguments: body[value.clone()].to_vec(), name: name.into_owned() });
        }
        let mut arguments = vec![b'{'];
        for (_, key, value) in rest {
            if arguments.len() > 1 {
                arguments.push(b',');
            }
            arguments.extend_from_slice(&body[key]);
            arguments.push(b':');
            arguments.extend_from_slice(&body[value]);
        }
        arguments.push(b'}');
        Ok(Self { name: name.into_owned(), arguments })
    }
}
