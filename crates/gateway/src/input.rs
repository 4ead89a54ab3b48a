//! Input that servers ask for. A modern server does so with a result that lists its requests, and the caller sends its own
//! request again with the answers; for callers that cannot do that themselves, the gateway does it. A legacy server sends
//! requests during the call (`question`), or the error -32042 with pages that a person must visit first.

use std::borrow::Cow;

use bytes::Bytes;

use model::excerpt;
use wire::{Patch, Response, Span, authored, text, walk};

/// How often a server may ask during one call.
pub const MOST_ROUNDS: u32 = 10;
/// How many requests for input one round may have.
const MOST_REQUESTS: usize = 100;

/// One round: the server's requests for input, and the state that it expects back.
pub struct InputRound {
    pub requests: Vec<InputRequest>,
    /// As the server wrote it.
    state: Option<Vec<u8>>,
    /// Whether these are the pages of an error -32042: the request is then sent again as it was.
    pub are_pages: bool,
}

/// One request for input.
pub struct InputRequest {
    /// The server's name for it.
    pub key: String,
    pub method: String,
    /// A JSON object.
    pub params: Option<Bytes>,
}

impl InputRound {
    /// Reads a response that asks for input. The error is a sentence about the server.
    pub fn read(response: &Response) -> Result<Self, String> {
        let message = response.message();
        let Some(result) = response.result_span() else { return Ok(Self::of_pages(message)) };
        let state = walk::member(message, result, "requestState").map(|span| message[span].to_vec());
        let listed = walk::member(message, result, "inputRequests");
        let listed = listed.filter(|listed| message[listed.start] == b'{');
        let mut requests = Vec::new();
        for (key, _, value) in listed.iter().flat_map(|listed| walk::members(message, listed)) {
            if requests.len() == MOST_REQUESTS {
                return Err(format!("the server asks for more than {MOST_REQUESTS} inputs at once"));
            }
            let request = InputRequest::read(message, key.into_owned(), &value);
            requests.push(request.ok_or("the server asks for input in a form that cannot be read")?);
        }
        Ok(Self { requests, state, are_pages: false })
    }

    fn of_pages(error: &[u8]) -> Self {
        let request = |(number, params): (usize, Vec<u8>)| InputRequest {
            key: number.to_string(),
            method: "elicitation/create".into(),
            params: Some(params.into()),
        };
        let requests = pages(error).into_iter().enumerate().map(request).collect();
        Self { requests, state: None, are_pages: true }
    }

    /// The members of `params` that the request is sent again with. `answers` are raw results by key.
    pub fn answered(&self, answers: &[(&str, Bytes)]) -> Vec<(&'static str, Vec<u8>)> {
        let answers: Vec<_> = answers.iter().map(|(key, answer)| (*key, answer.as_ref())).collect();
        let mut members = Vec::new();
        if self.are_pages {
            return members;
        }
        // A server that only gave a state wants the request again, without input.
        if !self.requests.is_empty() {
            members.push(("inputResponses", authored::object(&answers)));
        }
        members.extend(self.state.clone().map(|state| ("requestState", state)));
        members
    }
}

impl InputRequest {
    fn read(message: &Bytes, key: String, value: &Span) -> Option<Self> {
        let method = text::unescape(&message[walk::member(message, value, "method")?])?.into_owned();
        let params = walk::member(message, value, "params").filter(|params| message[params.start] == b'{');
        Some(Self { key, method, params: params.map(|params| message.slice(params)) })
    }
}

/// The kind of input that a method asks for, as a word.
pub fn kind_of(method: &str) -> &'static str {
    match method {
        "elicitation/create" => "elicitation",
        "sampling/createMessage" => "sampling",
        "roots/list" => "roots",
        _ => "input",
    }
}

/// What a request asks for, in words: the kind, and the message to the person if it has one.
pub fn in_words(method: &str, params: Option<&[u8]>) -> String {
    let params = params.unwrap_or(b"{}");
    let message = member(params, "message").and_then(|span| text::unescape(&params[span]));
    match message {
        Some(message) => format!("{} ({:?})", kind_of(method), excerpt::cut(message.into_owned(), QUOTED)),
        None => kind_of(method).to_owned(),
    }
}

/// How much of a message to a person is quoted in a sentence.
const QUOTED: usize = 200;

/// Whether an answer has the form of a result of this method. Whether the content of a form fits its schema is left to the
/// server that asked.
pub fn is_result_of(method: &str, answer: &[u8]) -> bool {
    let is_object = |span: &Span| answer[span.start] == b'{';
    let is_list_of = |span: &Span, is_item: &dyn Fn(&Span) -> bool| {
        answer[span.start] == b'[' && walk::elements(answer, span).all(|item| is_item(&item))
    };
    match method {
        "elicitation/create" => {
            let is_action = |action: Cow<'_, str>| ["accept", "decline", "cancel"].contains(&&*action);
            action(answer).is_some_and(is_action)
                && member(answer, "content").is_none_or(|content| is_object(&content))
        }
        "sampling/createMessage" => {
            let is_text = |key| member(answer, key).is_some_and(|span| answer[span.start] == b'"');
            let content = member(answer, "content");
            content.is_some_and(|content| is_object(&content) || is_list_of(&content, &is_object))
                && is_text("role")
                && is_text("model")
        }
        "roots/list" => {
            let is_root = |root: &Span| {
                let uri = walk::member(answer, root, "uri").and_then(|uri| text::unescape(&answer[uri]));
                uri.is_some_and(|uri| uri.starts_with("file://"))
            };
            member(answer, "roots")
                .is_some_and(|roots| is_list_of(&roots, &|it| is_object(it) && is_root(it)))
        }
        _ => answer.first() == Some(&b'{'),
    }
}

/// Whether a person accepted what an elicitation asked for.
pub fn is_accepted(answer: &[u8]) -> bool {
    action(answer).as_deref() == Some("accept")
}

/// The elicitations that an error -32042 requires before the request is made again: their params, with the mode.
pub fn pages(error: &[u8]) -> Vec<Vec<u8>> {
    let listed = member(error, "error")
        .and_then(|span| walk::member(error, &span, "data"))
        .and_then(|data| walk::member(error, &data, "elicitations"))
        .filter(|listed| error[listed.start] == b'[');
    let Some(listed) = listed else { return Vec::new() };
    let pages = walk::elements(error, &listed).filter(|page| error[page.start] == b'{');
    pages.take(MOST_REQUESTS).map(|page| with_mode(&error[page])).collect()
}

fn with_mode(page: &[u8]) -> Vec<u8> {
    let mut patch = Patch::new(page);
    patch.set_member(&(0..page.len()), "mode", br#""url""#);
    patch.apply().to_vec()
}

fn action(answer: &[u8]) -> Option<Cow<'_, str>> {
    text::unescape(&answer[member(answer, "action")?])
}

fn member(object: &[u8], key: &str) -> Option<Span> {
    object.first().filter(|first| **first == b'{')?;
    walk::member(object, &(0..object.len()), key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(result: &str) -> Result<InputRound, String> {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        InputRound::read(&Response::read(message.into()).unwrap())
    }

    #[test]
    fn a_round_is_answered_with_its_own_keys_and_state() {
        let asked = round(
            r#"{"resultType":"input_required","inputRequests":{"a\"b":{"method":"roots/list"},"c":{"method":"elicitation/create","params":{"message":"m"}}},"requestState":"s\u00e9"}"#,
        )
        .unwrap();
        assert_eq!(asked.requests[0].key, "a\"b");
        assert_eq!(asked.requests[1].params.as_deref(), Some(&br#"{"message":"m"}"#[..]));
        let answers = [("a\"b", Bytes::from_static(b"{}")), ("c", Bytes::from_static(b"{\"x\":1.0}"))];
        let members = asked.answered(&answers);
        assert_eq!(members[0].1, br#"{"a\"b":{},"c":{"x":1.0}}"#);
        assert_eq!(members[1], ("requestState", br#""s\u00e9""#.to_vec()));
    }

    #[test]
    fn a_round_without_requests_only_returns_the_state() {
        let asked = round(r#"{"resultType":"input_required","requestState":"s"}"#).unwrap();
        assert_eq!(asked.answered(&[]), [("requestState", br#""s""#.to_vec())]);
    }

    #[test]
    fn the_pages_of_an_error_become_elicitations() {
        let error = br#"{"id":1,"error":{"code":-32042,"data":{"elicitations":[{"url":"https://x","mode":"odd"},1,{"url":"y"}]}}}"#;
        assert_eq!(
            pages(error),
            [br#"{"url":"https://x","mode":"url"}"#.to_vec(), br#"{"url":"y","mode":"url"}"#.to_vec()]
        );
        assert!(pages(br#"{"error":{"data":{"elicitations":{}}}}"#).is_empty() && pages(b"{}").is_empty());
    }

    #[test]
    fn an_answer_has_the_form_of_its_result() {
        assert!(is_result_of("elicitation/create", br#"{"action":"decline"}"#));
        assert!(
            !is_result_of("elicitation/create", br#"{"content":{}}"#) && !is_result_of("roots/list", b"[]")
        );
        assert!(
            is_result_of("roots/list", br#"{"roots":[]}"#) && !is_result_of("roots/list", br#"{"roots":1}"#)
        );
        for (method, good, bad) in [
            (
                "elicitation/create",
                r#"{"action":"accept","content":{}}"#,
                r#"{"action":"accept","content":[1]}"#,
            ),
            ("elicitation/create", r#"{"action":"cancel"}"#, r#"{"action":"maybe"}"#),
            ("roots/list", r#"{"roots":[{"uri":"file:///a"}]}"#, r#"{"roots":[{}]}"#),
            ("roots/list", r#"{"roots":[{"uri":"file:\/\/\/a"}]}"#, r#"{"roots":[{"uri":"http://a"}]}"#),
            ("sampling/createMessage", r#"{"role":"a","model":"m","content":{}}"#, r#"{"content":{}}"#),
            (
                "sampling/createMessage",
                r#"{"role":"a","model":"m","content":[{}]}"#,
                r#"{"role":"a","model":"m","content":[1]}"#,
            ),
        ] {
            assert!(is_result_of(method, good.as_bytes()) && !is_result_of(method, bad.as_bytes()), "{good}");
        }
        assert!(is_accepted(br#"{"action":"accept"}"#) && !is_accepted(br#"{"action":"cancel"}"#));
    }

    #[test]
    fn what_cannot_be_read_or_is_too_much_is_an_error() {
        assert!(round(r#"{"inputRequests":{"a":1}}"#).is_err());
        assert!(round(r#"{"inputRequests":{"a":{"params":{}}}}"#).is_err());
        let many: Vec<_> =
            (0..=MOST_REQUESTS).map(|number| format!(r#""{number}":{{"method":"roots/list"}}"#)).collect();
        assert!(round(&format!(r#"{{"inputRequests":{{{}}}}}"#, many.join(","))).is_err());
    }
}
