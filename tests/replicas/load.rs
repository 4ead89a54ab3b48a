//! Callers of each kind that call all the time while a test breaks something. Each call has a text of its own.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::support::{Agent, Answer, ModernAgent, TestApp, bearer, client, eventually};

/// A call that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// The pause between two calls of a caller: other tests run at the same time.
const PACE: Duration = Duration::from_millis(10);
/// How many more answers show that a caller goes on.
const ROUNDS: usize = 20;
/// How many calls a session is used for.
const SESSION: usize = 25;
/// Two of each kind.
pub const CALLERS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Rest,
    Legacy,
    Modern,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Rest, Self::Legacy, Self::Modern];
}

/// Why a call was not answered with a result.
#[derive(Debug)]
pub enum Failure {
    /// The connection ended before the response did.
    Closed(String),
    /// The gateway does not know the session: the client opens another one.
    NoSession,
    Refused(u16, String),
}

impl Failure {
    fn of(answer: &Answer) -> Self {
        match answer.status {
            404 if answer.text().contains("session") => Failure::NoSession,
            status => Failure::Refused(status, answer.text()),
        }
    }
}

/// A client that survives failures.
pub struct Caller {
    kind: Kind,
    address: String,
    authorization: Option<String>,
    /// The session of a legacy client, and how often it was used.
    session: Option<(Agent, usize)>,
}

impl Caller {
    /// A caller with the token of a client; over REST with that of `gateway`.
    pub fn new(kind: Kind, gateway: &TestApp, client: &str) -> Self {
        let authorization = match kind {
            Kind::Rest => gateway.authorization.clone(),
            Kind::Legacy | Kind::Modern => Some(bearer(client)),
        };
        Self { kind, address: gateway.address.clone(), authorization, session: None }
    }

    /// Sends its requests to another address, and keeps its session.
    pub fn move_to(&mut self, address: &str) {
        address.clone_into(&mut self.address);
        if let Some((agent, _)) = &mut self.session {
            address.clone_into(&mut agent.address);
        }
    }

    /// Calls a tool, and returns the text of the result.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Result<String, Failure> {
        let params = json!({ "name": tool, "arguments": arguments });
        let result = match self.kind {
            Kind::Rest => {
                let mut body = arguments;
                body["name"] = json!(tool);
                let headers = self.authorization.as_deref().map(|value| ("authorization", value));
                let headers: Vec<_> = headers.into_iter().collect();
                let body = body.to_string().into();
                passed(client::attempt(&self.address, "POST", "/api/v0/tools/invoke", &headers, body).await)?
            }
            Kind::Legacy => {
                let session = self.session().await?;
                let call = json!({ "jsonrpc": "2.0", "id": session.next_id(), "method": "tools/call", "params": params });
                let answered = passed(session.attempt(&call).await);
                if matches!(answered, Err(Failure::NoSession)) {
                    self.session = None;
                }
                answered?["result"].take()
            }
            Kind::Modern => {
                let agent = TestApp::elsewhere(&self.address, None);
                let token = self.authorization.as_deref().unwrap_or_default();
                let agent = ModernAgent::at(&agent, "/mcp").using(token.trim_start_matches("Bearer "));
                let call = agent.message(json!(1), "tools/call", params);
                passed(agent.attempt(&call).await)?["result"].take()
            }
        };
        match result["content"][0]["text"].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(Failure::Refused(200, result.to_string())),
        }
    }

    async fn session(&mut self) -> Result<&Agent, Failure> {
        if self.session.as_ref().is_none_or(|(_, used)| *used == SESSION) {
            let authorization = self.authorization.clone();
            let opened = Agent::attempt_connect(&self.address, "/mcp", json!({}), authorization).await;
            let opened = opened.map_err(|error| Failure::Closed(error.to_string()))?;
            let agent = opened.map_err(|answer| Failure::of(&answer))?;
            self.session = Some((agent, 0));
        }
        let (agent, used) = self.session.as_mut().expect("it was just opened");
        *used += 1;
        Ok(agent)
    }
}

fn passed(answer: std::io::Result<Answer>) -> Result<Value, Failure> {
    let answer = answer.map_err(|error| Failure::Closed(error.to_string()))?;
    match answer.status {
        200 => Ok(answer.json()),
        _ => Err(Failure::of(&answer)),
    }
}

pub struct Load {
    progress: Arc<Progress>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Progress {
    has_ended: AtomicBool,
    /// The answers of each caller.
    answered: [AtomicUsize; CALLERS],
    lost_sessions: AtomicUsize,
    failures: Mutex<Vec<String>>,
}

impl Load {
    pub fn start(gateway: &TestApp, client: &str) -> Self {
        let progress = Arc::new(Progress::default());
        let kinds = Kind::ALL.into_iter().cycle().take(CALLERS).enumerate();
        let callers = kinds.map(|(number, kind)| {
            let caller = Caller::new(kind, gateway, client);
            tokio::spawn(run(caller, number, progress.clone()))
        });
        Self { callers: callers.collect(), progress }
    }

    /// Waits until every caller has got more answers.
    pub async fn goes_on(&self) {
        let answered = || self.progress.answered.each_ref().map(|count| count.load(Ordering::Relaxed));
        let before = answered();
        eventually("all callers go on", || async {
            answered().iter().zip(before).all(|(now, before)| *now >= before + ROUNDS)
        })
        .await;
    }

    /// The calls that failed so far.
    pub fn failures(&self) -> Vec<String> {
        self.progress.failures.lock().unwrap().clone()
    }

    pub fn lost_sessions(&self) -> usize {
        self.progress.lost_sessions.load(Ordering::Relaxed)
    }

    /// Ends the callers; each answer has been the right one.
    pub async fn stop(self) {
        self.progress.has_ended.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.expect("every answer belongs to its call");
        }
    }
}

async fn run(mut caller: Caller, number: usize, progress: Arc<Progress>) {
    let mut count = 0;
    while !progress.has_ended.load(Ordering::Relaxed) {
        count += 1;
        let text = format!("caller {number}, call {count}");
        let calling = tokio::time::timeout(LIMIT, caller.call("s__echo", json!({ "text": text })));
        let failed = match calling.await {
            Ok(Ok(answer)) => {
                assert_eq!(answer, text, "an answer belongs to its call");
                progress.answered[number].fetch_add(1, Ordering::Relaxed);
                None
            }
            Ok(Err(Failure::NoSession)) => {
                progress.lost_sessions.fetch_add(1, Ordering::Relaxed);
                None
            }
            Ok(Err(failure)) => Some(format!("{:?} {text}: {failure:?}", caller.kind)),
            Err(_) => panic!("{:?} {text} hangs", caller.kind),
        };
        progress.failures.lock().unwrap().extend(failed);
        tokio::time::sleep(PACE).await;
    }
}
