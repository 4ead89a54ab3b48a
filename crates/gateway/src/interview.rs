//! Questions of servers during a call over REST: they are shown as events of the call, and answered by requests of their
//! own (`Gateway::answer_input`). A call that asks nothing is not registered here.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::caller::{Logs, Owner};
use super::catalog::Entry;
use super::clock::Pause;
use super::input::{self, InputRequest, InputRound};
use super::question::Question;
use super::{Error, Gateway};
use model::{Capabilities, FieldError};
use upstream::Upstream;
use wire::{Head, authored, text};

/// The code with which a server learns that a person refused to answer.
pub const REFUSED: i32 = -1;

/// How many questions of a call may be open at the same time.
const MOST_OPEN: usize = 100;

/// What a caller can be asked for when it follows its call as an event stream.
static ASKABLE: LazyLock<Capabilities> = LazyLock::new(|| {
    Capabilities::of(&json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}))
});

/// Something that happens during a call over REST, before its result.
pub enum CallEvent {
    /// The params of a progress notice.
    Progress(Bytes),
    /// Another notice, as JSON: its `method` and `params`.
    Notification(Vec<u8>),
    /// Requests for input, as JSON.
    Input(Vec<u8>),
}

impl CallEvent {
    /// The event for a notice of the server; `None` for a log message that the caller does not want.
    pub fn of(notice: &Bytes, logs: Logs) -> Option<Self> {
        if !logs.pass(notice) {
            return None;
        }
        let head = Head::parse(notice).ok()?;
        let (method, params) = (head.method?, head.params.map(|params| notice.slice(params.span)));
        if &*method == "notifications/progress" {
            return params.map(CallEvent::Progress);
        }
        let method = text::quote(&method);
        let mut members: Vec<(&str, &[u8])> = vec![("method", &method)];
        members.extend(params.as_deref().map(|params| ("params", params)));
        Some(CallEvent::Notification(authored::object(&members)))
    }
}

/// A caller that follows its call.
#[derive(Clone)]
pub struct CallListener {
    pub events: mpsc::Sender<CallEvent>,
    pub answers: Answering,
    pub logs: Logs,
}

/// Whether the caller can be asked for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    Never,
    /// It can, and the server is told so unless that would start another process of it.
    WhenAsked,
    /// It can, and the server is told so.
    Declared,
}

impl CallListener {
    /// The capabilities that the call of a tool declares. A legacy process learns capabilities only when it starts, so a
    /// call that declares some needs another one than callers without any, and sees another state.
    pub fn capabilities(listener: Option<&Self>, entry: &Entry, tool: &str) -> Capabilities {
        let is_costly = || {
            let upstream = entry.upstream.as_ref().filter(|upstream| upstream.is_legacy_process());
            let listed = upstream.and_then(Upstream::offering);
            listed.is_some_and(|listed| listed.tools.iter().any(|listed| listed.name == tool))
        };
        match listener.map(|listener| listener.answers) {
            None | Some(Answering::Never) => Capabilities::NONE,
            Some(Answering::WhenAsked) if is_costly() => Capabilities::NONE,
            Some(Answering::WhenAsked | Answering::Declared) => ASKABLE.clone(),
        }
    }

    pub fn can_answer(&self) -> bool {
        self.answers != Answering::Never
    }
}

/// The calls that wait for answers, by id.
#[derive(Default)]
pub struct Interviews(Mutex<HashMap<String, Arc<OpenInterview>>>);

/// What those who bring answers need to know.
struct OpenInterview {
    owner: Owner,
    /// The open requests: their keys and methods.
    open: Mutex<BTreeMap<String, String>>,
    answers: mpsc::UnboundedSender<PersonsAnswer>,
}

/// A key, and the answer as a raw result; `None` if the person refuses to answer.
pub type PersonsAnswer = (String, Option<Bytes>);

/// The questions of one call. Dropping it forgets them.
pub struct Interview<'a> {
    interviews: &'a Interviews,
    id: String,
    shared: Arc<OpenInterview>,
    answers: mpsc::UnboundedReceiver<PersonsAnswer>,
    events: mpsc::Sender<CallEvent>,
    count: u64,
    /// Questions of a legacy server.
    questions: HashMap<String, Question>,
    /// What a modern server asked for, or pages that must be visited.
    round: Option<OpenRound>,
}

struct OpenRound {
    round: InputRound,
    /// The keys under which the person sees the requests, in their order.
    keys: Vec<String>,
    given: Vec<Option<Bytes>>,
    until: Instant,
    _pause: Pause,
}

/// What an answer led to.
pub enum Progressed {
    /// Others are still open.
    No,
    /// The request is sent again with these members of `params`.
    SendAgain(Vec<(&'static str, Vec<u8>)>),
    /// The person refused what the server cannot do without.
    Refused,
}

impl Gateway {
    /// Gives a call the answers of its caller; returns the keys that are still open.
    pub async fn answer_input(
        &self,
        owner: Owner,
        call: &str,
        responses: Vec<PersonsAnswer>,
    ) -> Result<Vec<String>, Error> {
        let unknown = || Error::not_found(format!("no call {call:?} is waiting for input"));
        if let Some(slot) = slot_in(call).filter(|slot| *slot != self.slot())
            && self.find_replica(slot).await.is_some()
        {
            return Err(Error::elsewhere(slot));
        }
        let interview = self.interviews.lock().get(call).cloned();
        let interview = interview.filter(|interview| interview.owner == owner).ok_or_else(unknown)?;
        let mut open = interview.lock();
        for (key, answer) in &responses {
            let field = || format!("responses.{key}");
            let method = open.get(key).ok_or_else(|| FieldError::new(field(), "was not asked for"))?;
            if answer.as_ref().is_some_and(|answer| !input::is_result_of(method, answer)) {
                return Err(FieldError::new(field(), format!("must be a result of {method}, or null")).into());
            }
        }
        for (key, answer) in responses {
            if open.remove(&key).is_some() {
                interview.answers.send((key, answer)).map_err(|_| unknown())?;
            }
        }
        Ok(open.keys().cloned().collect())
    }
}

/// The gateway that gave a call its id; `None` if it was alone.
fn slot_in(call: &str) -> Option<u16> {
    call.split_once('-')?.0.parse().ok()
}

impl Interviews {
    /// `slot` is the number of this gateway among those on its database.
    pub fn begin(&self, owner: Owner, events: mpsc::Sender<CallEvent>, slot: u16) -> Interview<'_> {
        let (sender, answers) = mpsc::unbounded_channel();
        let shared = Arc::new(OpenInterview { owner, open: Mutex::default(), answers: sender });
        let id = match slot {
            0 => super::random_id(),
            slot => format!("{slot}-{}", super::random_id()),
        };
        self.lock().insert(id.clone(), shared.clone());
        let (questions, round) = (HashMap::new(), None);
        Interview { interviews: self, id, shared, answers, events, count: 0, questions, round }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenInterview>>> {
        self.0.lock().expect("no code panics while it holds the interviews")
    }
}

impl Interview<'_> {
    /// Shows a question of a legacy server; too many at once are refused.
    pub async fn ask(&mut self, question: Question) {
        if self.questions.len() >= MOST_OPEN {
            return question.refuse();
        }
        let key = self.next_key(question.method());
        let params = question.params().unwrap_or(b"{}").to_vec();
        let method = question.method().to_owned();
        self.questions.insert(key.clone(), question);
        self.show(&[(key, method, params)]).await;
    }

    /// Shows what a modern server asks for, or pages that must be visited.
    pub async fn ask_round(&mut self, round: InputRound, until: Instant, pause: Pause) {
        let shown: Vec<_> = round.requests.iter().map(|request| self.shown(request)).collect();
        let keys = shown.iter().map(|(key, ..)| key.clone()).collect();
        let given = vec![None; round.requests.len()];
        self.round = Some(OpenRound { round, keys, given, until, _pause: pause });
        self.show(&shown).await;
    }

    fn shown(&mut self, request: &InputRequest) -> (String, String, Vec<u8>) {
        let params = request.params.as_deref().unwrap_or(b"{}").to_vec();
        (self.next_key(&request.method), request.method.clone(), params)
    }

    fn next_key(&mut self, method: &str) -> String {
        self.count += 1;
        format!("{}-{}", input::kind_of(method), self.count)
    }

    async fn show(&self, requests: &[(String, String, Vec<u8>)]) {
        let written: Vec<_> = requests
            .iter()
            .map(|(_, method, params)| {
                authored::object(&[("method", &text::quote(method)), ("params", params)])
            })
            .collect();
        let members: Vec<_> =
            requests.iter().zip(&written).map(|((key, ..), json)| (key.as_str(), json.as_slice())).collect();
        let requests_json = authored::object(&members);
        let event = authored::object(&[("call", &text::quote(&self.id)), ("requests", &requests_json)]);
        self.shared.lock().extend(requests.iter().map(|(key, method, _)| (key.clone(), method.clone())));
        // If the caller is gone, the call ends with its request.
        let _ = self.events.send(CallEvent::Input(event)).await;
    }

    /// When a round must be answered; `None` if no round is open.
    pub fn round_until(&self) -> Option<Instant> {
        self.round.as_ref().map(|round| round.until)
    }

    /// Waits for an answer of the person.
    pub async fn next_answer(&mut self) -> PersonsAnswer {
        match self.answers.recv().await {
            Some(answer) => answer,
            // The sender is in `shared`.
            None => std::future::pending().await,
        }
    }

    /// Passes an answer on.
    pub fn take(&mut self, (key, answer): PersonsAnswer) -> Progressed {
        if let Some(question) = self.questions.remove(&key) {
            match answer {
                Some(answer) => question.answer(&answer),
                None => question.fail(REFUSED, "the person refused to answer"),
            }
            return Progressed::No;
        }
        let Some(open) = &mut self.round else { return Progressed::No };
        let Some(index) = open.keys.iter().position(|known| *known == key) else { return Progressed::No };
        match answer.filter(|answer| !open.round.are_pages || input::is_accepted(answer)) {
            Some(answer) => open.given[index] = Some(answer),
            None => return Progressed::Refused,
        }
        self.send_again()
    }

    /// Ends the round if it is answered.
    pub fn send_again(&mut self) -> Progressed {
        match self.round.take_if(|open| open.given.iter().all(Option::is_some)) {
            None => Progressed::No,
            Some(open) => {
                let keys = open.round.requests.iter().map(|request| request.key.as_str());
                let answers: Vec<_> = keys.zip(open.given.iter().flatten().cloned()).collect();
                Progressed::SendAgain(open.round.answered(&answers))
            }
        }
    }
}

impl OpenInterview {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.open.lock().expect("no code panics while it holds the requests")
    }
}

impl Drop for Interview<'_> {
    fn drop(&mut self) {
        self.interviews.lock().remove(&self.id);
    }
}
