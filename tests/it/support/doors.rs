//! Doors: the entry points through which tools are called, each with its kind of client. What a caller gets is
//! translated into a form that is the same at every door.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use wire::sse::Scanner;

use super::client::{Answer, Events};
use super::mcp::Talk;
use super::{Agent, ModernAgent, SseAgent, TestApp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `POST /api/v0/tools/invoke`.
    Rest,
    /// The same, with an event stream as the response.
    RestEvents,
    /// A client with a session at `/mcp`.
    Legacy,
    /// A client of HTTP+SSE at `/sse`.
    Sse,
    /// A client of revision 2026-07-28 at `/mcp`.
    Modern,
}

impl Door {
    pub const ALL: [Self; 5] = [Self::Rest, Self::RestEvents, Self::Legacy, Self::Sse, Self::Modern];

    pub fn is_mcp(self) -> bool {
        !matches!(self, Door::Rest | Door::RestEvents)
    }
}

/// The final result of a call for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The first text of a result.
    Text(String),
    /// The first text of a result that reports an error.
    ToolError(String),
    /// The message of an error, from the gateway or the server.
    Error(String),
}

impl Said {
    fn of_result(result: &Value) -> Self {
        let text = result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        if result["isError"] == true { Said::ToolError(text) } else { Said::Text(text) }
    }

    /// From an MCP message.
    fn of_message(message: &Value) -> Self {
        match message["error"]["message"].as_str() {
            Some(sentence) => Said::Error(sentence.to_owned()),
            None => Self::of_result(&message["result"]),
        }
    }

    fn of_answer(answer: &Answer) -> Self {
        match answer.status {
            200 => Self::of_result(&answer.json()),
            _ => Said::Error(answer.error()),
        }
    }

    /// From the last event of a REST stream.
    fn of_events(answer: &Answer) -> Self {
        let mut scanner = Scanner::new(1 << 26);
        scanner.feed(&answer.body);
        let mut last = None;
        while let Some(event) = scanner.next_event() {
            last = Some(event.expect("no event is too long"));
        }
        let last = last.expect("the stream has an end");
        let data: Value = serde_json::from_slice(&last.data).expect("an event is JSON");
        match last.name.as_deref() {
            Some("result") => Self::of_result(&data),
            Some("error") => Said::Error(data["error"].as_str().expect("an error is a sentence").to_owned()),
            other => panic!("a stream ended with {other:?}"),
        }
    }

    /// The error message of a call that must fail.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Said::Error(sentence) => sentence,
            other => panic!("no error: {other:?}"),
        }
    }
}

/// Clients at every door of one gateway. Clones share the session of the legacy client.
#[derive(Clone)]
pub struct Callers {
    app: Arc<TestApp>,
    legacy: Arc<Agent>,
    /// Whether agents send a progress token with each call. Over REST the event stream requests progress.
    pub want_progress: bool,
}

impl Callers {
    pub async fn of(app: &Arc<TestApp>) -> Self {
        let legacy = Arc::new(Agent::connect(app, "/mcp").await);
        Self { app: app.clone(), legacy, want_progress: false }
    }

    /// Calls a tool and waits for the result.
    pub async fn call(&self, door: Door, tool: &str, arguments: Value) -> Said {
        let app = &self.app;
        match door {
            Door::Rest => Said::of_answer(&app.invoke(tool, arguments).await),
            Door::RestEvents => {
                let body = flat(tool, arguments).to_string();
                let headers = [("accept", "text/event-stream")];
                let answer = app.send("POST", "/api/v0/tools/invoke", &headers, body).await;
                match answer.status {
                    200 => Said::of_events(&answer),
                    _ => Said::of_answer(&answer),
                }
            }
            Door::Legacy => {
                Said::of_message(&self.legacy.request("tools/call", self.params(tool, arguments)).await)
            }
            Door::Sse => {
                // A separate stream, since another task may read the existing ones.
                let mut agent = SseAgent::connect(app, "/sse", json!({})).await;
                agent.send(&request(1, self.params(tool, arguments))).await;
                Said::of_message(&agent.answer(json!(1)).await)
            }
            Door::Modern => {
                let params = self.params(tool, arguments);
                Said::of_message(&ModernAgent::at(app, "/mcp").request("tools/call", params).await)
            }
        }
    }

    /// The text of a call that must work.
    pub async fn text(&self, door: Door, tool: &str, arguments: Value) -> String {
        match self.call(door, tool, arguments).await {
            Said::Text(text) => text,
            other => panic!("{door:?} {tool}: {other:?}"),
        }
    }

    /// Starts a call with progress, and waits for the first step if the door delivers progress.
    pub async fn begin_with_progress(&self, door: Door, tool: &str, arguments: Value) -> Begun {
        let callers = Self { want_progress: true, ..self.clone() };
        match door {
            Door::Rest => self.begin(door, tool, arguments).await,
            Door::RestEvents => {
                let body = flat(tool, arguments);
                let mut events = self.app.post_for_events("/api/v0/tools/invoke", body).await;
                assert_eq!(events.next().await.expect("a first step").name.as_deref(), Some("progress"));
                Begun::Events(events)
            }
            Door::Legacy => {
                let (agent, id) = (self.legacy.clone(), self.legacy.next_id());
                let mut talk = agent.begin(&request(id, callers.params(tool, arguments))).await;
                talk.expect("notifications/progress").await;
                let answering = tokio::spawn(async move { while talk.next().await.is_some() {} });
                Begun::Legacy { agent, id, answering }
            }
            Door::Sse => {
                let mut agent = SseAgent::connect(&self.app, "/sse", json!({})).await;
                agent.send(&request(1, callers.params(tool, arguments))).await;
                assert_eq!(agent.next().await.expect("a first step")["method"], "notifications/progress");
                Begun::Sse(agent)
            }
            Door::Modern => {
                let agent = ModernAgent::at(&self.app, "/mcp");
                let message = agent.message(json!(1), "tools/call", callers.params(tool, arguments));
                let mut talk = agent.begin(&message).await;
                talk.expect("notifications/progress").await;
                Begun::Talk(talk)
            }
        }
    }

    /// Starts a call whose response is not read.
    pub async fn begin(&self, door: Door, tool: &str, arguments: Value) -> Begun {
        let app = &self.app;
        match door {
            Door::Rest => Begun::Connection(app.invoke_and_hold(&flat(tool, arguments)).await),
            Door::RestEvents => {
                Begun::Events(app.post_for_events("/api/v0/tools/invoke", flat(tool, arguments)).await)
            }
            Door::Legacy => {
                let (agent, id) = (self.legacy.clone(), self.legacy.next_id());
                let call = request(id, self.params(tool, arguments));
                let answering = tokio::spawn({
                    let agent = agent.clone();
                    async move { drop(agent.post(&call).await) }
                });
                Begun::Legacy { agent, id, answering }
            }
            Door::Sse => {
                let agent = SseAgent::connect(app, "/sse", json!({})).await;
                agent.send(&request(1, self.params(tool, arguments))).await;
                Begun::Sse(agent)
            }
            Door::Modern => {
                let agent = ModernAgent::at(app, "/mcp");
                let message = agent.message(json!(1), "tools/call", self.params(tool, arguments));
                Begun::Connection(agent.hold(&message).await)
            }
        }
    }
}

impl Callers {
    /// The params of an agent's call.
    fn params(&self, tool: &str, arguments: Value) -> Value {
        let mut params = json!({"name": tool, "arguments": arguments});
        if self.want_progress {
            params["_meta"] = json!({"progressToken": "p"});
        }
        params
    }
}

/// A call in flight.
pub enum Begun {
    Connection(TcpStream),
    Events(Events),
    Talk(Talk),
    Legacy { agent: Arc<Agent>, id: u64, answering: JoinHandle<()> },
    Sse(SseAgent),
}

impl Begun {
    /// The caller disconnects or cancels, as is usual at its door.
    pub async fn give_up(self) {
        match self {
            Begun::Connection(connection) => drop(connection),
            Begun::Events(events) => drop(events),
            Begun::Talk(talk) => drop(talk),
            Begun::Sse(agent) => drop(agent),
            Begun::Legacy { agent, id, answering } => {
                agent.tell("notifications/cancelled", json!({"requestId": id})).await;
                answering.await.expect("what was cancelled is answered");
            }
        }
    }
}

fn request(id: u64, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// The body for REST: the name, and the arguments as further keys.
fn flat(tool: &str, mut arguments: Value) -> Value {
    arguments["name"] = json!(tool);
    arguments
}
