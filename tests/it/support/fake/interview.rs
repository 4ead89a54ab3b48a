//! The tool `ask` when the test says what it asks: `rounds` of questions, each `[{"method", "params"}, ...]`, and `pages`
//! that must be visited first. Its result is all answers as JSON. It reports progress before, between and after rounds.

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::core::{Object, Refusal, error, is_modern, object};
use super::state::Out;
use super::tools::{Call, notice, text};

pub async fn hold(call: &Call<'_>) -> Result<Object, Refusal> {
    let rounds = call.arguments["rounds"].as_array().cloned().unwrap_or_default();
    refuse_until_visited(call)?;
    match is_modern(call.behaviour, call.incoming) {
        true => Ok(one_round(call, &rounds)),
        false => all_rounds(call, &rounds).await,
    }
}

/// The first call with this mark is refused until its pages are visited.
fn refuse_until_visited(call: &Call<'_>) -> Result<(), Refusal> {
    let Some(pages) = call.arguments.get("pages") else { return Ok(()) };
    let visits = format!("visits of {}", call.arguments["mark"]);
    let before = call.state.memory().ran.insert(visits, 1);
    if before.is_some() {
        return Ok(());
    }
    let data = Some(json!({"elicitations": pages}));
    Err(Refusal::Error { status: 200, code: -32042, message: "visit these pages first".into(), data })
}

/// Legacy: all questions of a round are sent at once, as requests to the client.
async fn all_rounds(call: &Call<'_>, rounds: &[Value]) -> Result<Object, Refusal> {
    let mut answers = Vec::new();
    progress(call, 0);
    for (number, round) in rounds.iter().enumerate() {
        let mut waiting = Vec::new();
        for question in round.as_array().into_iter().flatten() {
            let id = format!("ask-{}", call.state.next_serial());
            let (tell, told) = oneshot::channel();
            call.state.memory().asked.insert(id.clone(), tell);
            let mut request = json!({"jsonrpc": "2.0", "id": id});
            request["method"] = question["method"].clone();
            if let Some(params) = question.get("params") {
                request["params"] = params.clone();
            }
            let _ = call.out.send(Out::Note(request));
            waiting.push(told);
        }
        let mut given = Vec::new();
        for told in waiting {
            let reply = told.await.map_err(|_| error(-32603, "nobody answered"))?;
            given.push(reply.get("result").or_else(|| reply.get("error")).cloned().unwrap_or_default());
        }
        answers.push(given);
        progress(call, number + 1);
    }
    Ok(text(json!(answers).to_string()))
}

/// Modern: the answers of earlier rounds are in the state.
fn one_round(call: &Call<'_>, rounds: &[Value]) -> Object {
    let params = call.incoming.params();
    let state = params["requestState"].as_str().and_then(|state| serde_json::from_str(state).ok());
    let mut answers: Vec<Value> = state.unwrap_or_default();
    if let Some(given) = params.get("inputResponses") {
        let asked = rounds[answers.len()].as_array().map_or(0, Vec::len);
        answers.push((0..asked).map(|index| given[format!("q{index}")].clone()).collect());
    }
    progress(call, answers.len());
    match rounds.get(answers.len()) {
        None => text(json!(answers).to_string()),
        Some(round) => {
            let questions = round.as_array().into_iter().flatten().enumerate();
            let requests: serde_json::Map<_, _> =
                questions.map(|(index, question)| (format!("q{index}"), question.clone())).collect();
            object(json!({
                "resultType": "input_required",
                "inputRequests": requests,
                "requestState": json!(answers).to_string(),
            }))
        }
    }
}

fn progress(call: &Call<'_>, done: usize) {
    if let Some(token) = call.incoming.params()["_meta"].get("progressToken") {
        notice(call, "notifications/progress", &json!({"progressToken": token, "progress": done}));
    }
}
