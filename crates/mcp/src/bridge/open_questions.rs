//! What a modern client still has to answer so that the call of a legacy server can go on: the server's requests during
//! the call, or pages that a person must visit before the call is made again (error -32042).

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use gateway::input;
use gateway::question::Question;
use gateway::refusal::Refusal;
use wire::{Head, Patch, authored, meta, text, walk};

/// How long further questions are waited for after one: a server may ask several at once.
const GATHERING: Duration = Duration::from_millis(50);
/// How long they are waited for in all.
const LONGEST_GATHERING: Duration = Duration::from_millis(250);

/// How many questions of a call may be open at the same time.
const MOST_OPEN: usize = 100;

#[derive(Default)]
pub struct OpenQuestions {
    questions: Vec<OpenQuestion>,
    /// How many there were, also in earlier rounds: the keys of a call are different.
    count: u64,
    gathering: Option<Gathering>,
}

pub struct OpenQuestion {
    /// The key under which the client finds it.
    pub key: String,
    subject: Subject,
}

enum Subject {
    /// A request of the server, which waits for the answer.
    Request(Question),
    /// A page that a person must visit; the params of the elicitation.
    Page(Vec<u8>),
}

struct Gathering {
    begun: Instant,
    last: Instant,
}

/// What the checks of an answer need to know of a question, while the question itself is elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionKey {
    pub key: String,
    method: &'static str,
}

/// Answers to questions, as raw results by key.
pub type Answers = Vec<(String, Bytes)>;

impl OpenQuestions {
    /// Takes up a request of the server. The client is told after a moment, since others may follow; too many at once
    /// are refused.
    pub fn add(&mut self, question: Question) {
        if self.questions.len() >= MOST_OPEN {
            return question.refuse();
        }
        self.push(input::kind_of(question.method()), Subject::Request(question));
        self.gather();
    }

    /// Takes up the pages that an error -32042 names, with which the call and its questions end; false if it names none.
    pub fn replace_by_pages(&mut self, error: &[u8]) -> bool {
        let pages = input::pages(error);
        self.questions.clear();
        for params in &pages {
            self.push(input::kind_of("elicitation/create"), Subject::Page(params.clone()));
        }
        !pages.is_empty()
    }

    fn push(&mut self, kind: &str, subject: Subject) {
        self.count += 1;
        self.questions.push(OpenQuestion { key: format!("{kind}-{}", self.count), subject });
    }

    /// Waits a moment before the client is told what is open.
    pub fn gather(&mut self) {
        let now = Instant::now();
        let begun = self.gathering.as_ref().map_or(now, |gathering| gathering.begun);
        self.gathering = Some(Gathering { begun, last: now });
    }

    /// When the client is told; `None` while there is nothing to tell.
    pub fn told_at(&self) -> Option<Instant> {
        let gathering = self.gathering.as_ref().filter(|_| !self.questions.is_empty())?;
        Some((gathering.last + GATHERING).min(gathering.begun + LONGEST_GATHERING))
    }

    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Whether all that is open are pages to visit.
    pub fn are_pages(&self) -> bool {
        self.questions.iter().all(|open| matches!(open.subject, Subject::Page(_)))
    }

    pub fn keys(&self) -> Vec<QuestionKey> {
        let key = |open: &OpenQuestion| QuestionKey { key: open.key.clone(), method: open.subject.method() };
        self.questions.iter().map(key).collect()
    }

    /// The value of `inputRequests`.
    pub fn to_json(&self) -> Vec<u8> {
        let requests: Vec<_> = self.questions.iter().map(|open| open.subject.to_json()).collect();
        let members: Vec<_> = self
            .questions
            .iter()
            .zip(&requests)
            .map(|(open, json)| (open.key.as_str(), json.as_slice()))
            .collect();
        authored::object(&members)
    }

    /// Gives the server the answers that the client gave; the other questions stay open. Pages that were visited are no
    /// longer open; the result says whether the person agreed to visit all of those that are answered.
    pub fn answer(&mut self, answers: &Answers) -> bool {
        self.gathering = None;
        let mut agreed = true;
        for (key, answer) in answers {
            let Some(index) = self.questions.iter().position(|open| open.key == *key) else { continue };
            match self.questions.remove(index).subject {
                Subject::Request(question) => question.answer(answer),
                Subject::Page(_) => agreed &= input::is_accepted(answer),
            }
        }
        agreed
    }
}

impl Subject {
    fn method(&self) -> &'static str {
        match self {
            Subject::Page(_) => "elicitation/create",
            Subject::Request(question) => match question.method() {
                "sampling/createMessage" => "sampling/createMessage",
                "roots/list" => "roots/list",
                _ => "elicitation/create",
            },
        }
    }

    fn to_json(&self) -> Vec<u8> {
        let method = text::quote(self.method());
        let params = match self {
            Subject::Request(question) => without_token(question.params().unwrap_or(b"{}")),
            Subject::Page(params) => Bytes::copy_from_slice(params),
        };
        authored::object(&[("method", &method), ("params", &params)])
    }
}

/// The params of a server's request without the token under which the server would accept progress: a modern client has
/// nothing to report it with.
fn without_token(params: &[u8]) -> Bytes {
    let whole = 0..params.len();
    let mut patch = Patch::new(params);
    if let Some(meta) = walk::member(params, &whole, "_meta").filter(|meta| params[meta.start] == b'{') {
        let is_token = |key: &str| key == meta::PROGRESS_TOKEN;
        match walk::members(params, &meta).all(|(key, ..)| is_token(&key)) {
            true => patch.edit_members(&whole, |key| key == "_meta", &[]),
            false => patch.edit_members(&meta, is_token, &[]),
        };
    }
    patch.apply()
}

/// Reads the answers to open questions from a client's request. Answers to other questions are ignored: they may belong to
/// an earlier round.
pub fn read_answers(head: &Head<'_>, open: &[QuestionKey]) -> Result<Answers, Refusal> {
    let Some(params) = &head.params else { return Ok(Answers::new()) };
    if params.mistyped.contains(&"inputResponses") {
        return Err(Refusal::Invalid("params.inputResponses must be an object".into()));
    }
    let Some(responses) = &params.input_responses else { return Ok(Answers::new()) };
    let mut answers = Answers::new();
    for (key, _, value) in walk::members(head.body, responses) {
        let Some(asked) = open.iter().find(|open| open.key == key) else { continue };
        let answer = &head.body[value];
        if !input::is_result_of(asked.method, answer) {
            let sentence = format!("params.inputResponses.{key} is not a result of {}", asked.method);
            return Err(Refusal::Invalid(sentence));
        }
        answers.retain(|(given, _)| *given != key);
        answers.push((key.into_owned(), Bytes::copy_from_slice(answer)));
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modern_client_gets_no_progress_token_of_a_server() {
        for (from, to) in [
            (r#"{"a":1.0,"_meta":{"progressToken":1}}"#, r#"{"a":1.0}"#),
            (r#"{"_meta":{"progressToken":1,"x":2},"a":1}"#, r#"{"_meta":{"x":2},"a":1}"#),
            (r#"{"a":1,"_meta":{"x":2}}"#, r#"{"a":1,"_meta":{"x":2}}"#),
            ("{}", "{}"),
        ] {
            assert_eq!(without_token(from.as_bytes()), to, "{from}");
        }
    }
}
