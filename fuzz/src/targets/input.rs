//! Reads any bytes as the response of a server that asks for input, as an error that names pages to visit, and as an answer of
//! a client. Promises: what is made of it is JSON, has the keys and the state of the server, and no more requests than are
//! allowed.

use bytes::Bytes;
use gateway::input::{self, InputRound};
use wire::walk::{member, whole};
use wire::{Response, authored, text};

pub const DICTIONARY: &[&str] = &[
    "\"jsonrpc\":\"2.0\"",
    "\"id\":1",
    "\"result\":{",
    "\"resultType\":\"input_required\"",
    "\"inputRequests\":{",
    "\"requestState\":\"s\"",
    "\"method\":\"elicitation/create\"",
    "\"method\":\"roots/list\"",
    "\"params\":{}",
    "\"error\":{\"code\":-32042,\"data\":{\"elicitations\":[{",
    "\"url\":\"https://x\"",
    "\"mode\":\"url\"",
    "\"action\":\"accept\"",
    "\"content\":",
    "\"roots\":[]",
    "\\u00e9",
    "\\ud800",
    "\"\"",
    "null",
    "}}",
];

/// As many requests as a round may have.
const MOST_REQUESTS: usize = 100;

pub fn run(bytes: &[u8]) {
    // Answers and responses are read only after they were found to be JSON.
    if whole(bytes).is_err() {
        return;
    }
    for method in ["elicitation/create", "sampling/createMessage", "roots/list", "other"] {
        let _ = (input::is_result_of(method, bytes), input::in_words(method, Some(bytes)));
    }
    let _ = input::is_accepted(bytes);
    let pages = input::pages(bytes);
    assert!(pages.len() <= MOST_REQUESTS && pages.iter().all(|page| whole(page).is_ok()));
    let Ok(response) = Response::read(Bytes::copy_from_slice(bytes)) else { return };
    let Ok(round) = InputRound::read(&response) else { return };
    assert!(round.requests.len() <= MOST_REQUESTS);
    assert!(round.requests.iter().all(|request| request.params.as_ref().is_none_or(|it| whole(it).is_ok())));
    let answers: Vec<_> =
        round.requests.iter().map(|request| (request.key.as_str(), Bytes::from_static(b"{}"))).collect();
    let members = round.answered(&answers);
    let members: Vec<_> = members.iter().map(|(key, value)| (*key, value.as_slice())).collect();
    let params = authored::object(&members);
    assert!(whole(&params).is_ok(), "not JSON: {}", String::from_utf8_lossy(&params));
    let all = 0..params.len();
    if let Some(given) = member(&params, &all, "inputResponses") {
        for request in &round.requests {
            assert!(member(&params, &given, &request.key).is_some(), "no answer to {:?}", request.key);
        }
    }
    let state = response.result_span().and_then(|result| member(bytes, result, "requestState"));
    let sent = member(&params, &all, "requestState");
    let said = |json: &[u8]| text::unescape(json).map(String::from);
    assert_eq!(state.and_then(|span| said(&bytes[span])), sent.and_then(|span| said(&params[span])));
}
