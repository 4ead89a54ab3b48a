//! `/api/v0/tools`: listing, calling and switching tools.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::sync::mpsc;

use super::{coverage, entity};
use crate::http::Face;
use crate::http::access::Caller;
use crate::http::error::Refusal;
use crate::http::extract::Query;
use crate::http::reply::{Answer, Json, Written};
use crate::http::stream::EventBody;
use crate::model::FieldError;
use crate::wire::{authored, scan, sse, text};

/// Progress events that wait for a slow reader.
const PROGRESS_BACKLOG: usize = 64;

pub async fn list(State(face): State<Face>, query: Query) -> Answer<Response> {
    Ok(Json(face.gateway.catalog().tool_records(&coverage(&query)?)?).into_response())
}

pub async fn get(State(face): State<Face>, query: Query) -> Answer<Response> {
    let name = query.required("name")?;
    Ok(Json(face.gateway.catalog().tool_record(name)?).into_response())
}

pub async fn enable(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_tools(&entity(&query, &body)?, true).await?))
}

pub async fn disable(State(face): State<Face>, query: Query, body: Bytes) -> Answer<Json<Vec<String>>> {
    Ok(Json(face.gateway.switch_tools(&entity(&query, &body)?, false).await?))
}

/// Calls a tool; with `Accept: text/event-stream` the answer streams progress and then the result.
pub async fn invoke(
    State(face): State<Face>,
    caller: Caller,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Response> {
    let call = Call::parse(&face, &body)?;
    if !wants_events(&headers) {
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
struct Call {
    name: String,
    arguments: Vec<u8>,
}

impl Call {
    fn parse(face: &Face, body: &Bytes) -> Result<Self, Refusal> {
        let span = scan::whole(body)
            .map_err(|error| Refusal::bad_request(format!("the body is not JSON: {error}")))?;
        if body.get(span.start) != Some(&b'{') {
            return Err(Refusal::bad_request("the body must be a JSON object"));
        }
        let (mut name, mut rest) = (None, Vec::new());
        for (key, key_span, value_span) in scan::members(body, &span) {
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
            && face.gateway.catalog().tool(&name).is_ok_and(|(_, tool)| tool.takes_name_but_not_arguments())
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
