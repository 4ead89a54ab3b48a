//! A small MCP client of the legacy revisions: JSON values in, JSON values and HTTP responses out.
//! `Agent` uses streamable HTTP, `SseAgent` the older HTTP+SSE.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::TestApp;
use super::app::bearer;
use super::client::{self, Answer, Connection, Events};

pub const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");
/// Timeout for everything that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Agent {
    pub address: String,
    pub path: String,
    pub session: String,
    /// The result of `initialize`.
    pub greeting: Value,
    authorization: Option<String>,
    last_id: AtomicU64,
}

impl Agent {
    /// Uses another token from now on.
    pub fn use_token(&mut self, token: &str) {
        self.authorization = Some(bearer(token));
    }

    pub async fn connect(app: &TestApp, path: &str) -> Self {
        Self::connect_with(app, path, json!({})).await
    }

    pub async fn connect_with(app: &TestApp, path: &str, capabilities: Value) -> Self {
        Self::shake_hands(app, path, capabilities, None).await
    }

    /// As a client with a token.
    pub async fn connect_as(app: &TestApp, path: &str, token: &str) -> Self {
        Self::shake_hands(app, path, json!({}), Some(bearer(token))).await
    }

    async fn shake_hands(
        app: &TestApp,
        path: &str,
        capabilities: Value,
        authorization: Option<String>,
    ) -> Self {
        let opened = Self::attempt_connect(&app.address, path, capabilities, authorization).await;
        opened.expect("the gateway answers").unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    /// Opens a session at a gateway that may end meanwhile, or refuse it.
    pub async fn attempt_connect(
        address: &str,
        path: &str,
        capabilities: Value,
        authorization: Option<String>,
    ) -> std::io::Result<Result<Self, Answer>> {
        let headers = authorization.as_deref().map(|value| ("authorization", value));
        let headers: Vec<_> = headers.into_iter().chain([BOTH]).collect();
        let body = hello("2025-11-25", capabilities).to_string();
        let answer = client::attempt(address, "POST", path, &headers, body.into()).await?;
        if answer.status != 200 {
            return Ok(Err(answer));
        }
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let greeting = answer.json()["result"].clone();
        let (address, path) = (address.to_owned(), path.to_owned());
        let agent = Self { address, path, session, greeting, authorization, last_id: AtomicU64::new(0) };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let answer = agent.attempt(&initialized).await?;
        Ok(if answer.status == 202 { Ok(agent) } else { Err(answer) })
    }

    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Posts one body in this session and reads the whole response.
    pub async fn post(&self, body: &Value) -> Answer {
        self.attempt(body).await.expect("the gateway answers")
    }

    /// The same at a gateway that may end meanwhile.
    pub async fn attempt(&self, body: &Value) -> std::io::Result<Answer> {
        client::attempt(&self.address, "POST", &self.path, &self.headers(BOTH), body.to_string().into()).await
    }

    /// The response to a request: the only message, or the last of its stream.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": self.next_id(), "method": method, "params": params});
        let mut talk = self.begin(&request).await;
        talk.answer().await
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// The text of the first content block of a call that must work.
    pub async fn call_text(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(tool, arguments).await;
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}")).into()
    }

    /// The error of a request that must fail.
    pub async fn error(&self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await;
        assert!(answer.get("result").is_none(), "no error: {answer}");
        answer["error"].clone()
    }

    /// The names of a list, by its member.
    pub async fn list(&self, method: &str, member: &str, key: &str) -> Vec<String> {
        let answer = self.request(method, json!({})).await;
        let items = answer["result"][member].as_array().unwrap_or_else(|| panic!("no list: {answer}"));
        items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
    }

    pub async fn tools(&self) -> Vec<String> {
        self.list("tools/list", "tools", "name").await
    }

    /// Sends a request; the messages that come back can be read one by one.
    pub async fn begin(&self, request: &Value) -> Talk {
        Talk::open(&self.address, "POST", &self.path, &self.headers(BOTH), request.to_string()).await
    }

    pub async fn begin_call(&self, id: Value, tool: &str, arguments: Value) -> Talk {
        let params = json!({"name": tool, "arguments": arguments});
        self.begin(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await
    }

    pub async fn tell(&self, method: &str, params: Value) {
        self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await.expect(202);
    }

    /// Answers a question of a server.
    pub async fn reply(&self, question: &Value, result: Value) {
        self.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await.expect(202);
    }

    /// Opens the stream of the session.
    pub async fn listen(&self) -> Talk {
        let headers = self.headers(("accept", "text/event-stream"));
        Talk::open(&self.address, "GET", &self.path, &headers, String::new()).await
    }

    pub async fn end(&self) -> Answer {
        client::request(&self.address, "DELETE", &self.path, &self.headers(BOTH), Vec::new()).await
    }

    fn headers<'a>(&'a self, accept: (&'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
        let mut headers = vec![accept, ("mcp-session-id", self.session.as_str())];
        headers.extend(self.authorization.as_deref().map(|value| ("authorization", value)));
        headers
    }
}

/// Sends `initialize` and nothing after it.
pub async fn initialize(address: &str, path: &str, version: &str, capabilities: Value) -> Answer {
    let body = hello(version, capabilities).to_string();
    client::request(address, "POST", path, &[BOTH], body.into()).await
}

fn hello(version: &str, capabilities: Value) -> Value {
    let params = json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": {"name": "agent", "version": "7.0"},
    });
    json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params})
}

/// The messages that come back for one HTTP request.
pub struct Talk(Source);

enum Source {
    Json { message: Option<Value>, _connection: Connection },
    Events(Events),
}

impl Talk {
    pub async fn open(
        address: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Self {
        let (response, connection) = client::open(address, method, path, headers, body.into()).await;
        if response.headers().get("content-type").is_some_and(|media| media == "text/event-stream") {
            return Self(Source::Events(Events::new((response, connection))));
        }
        let body = response.into_body().collect().await.expect("the answer ends well").to_bytes();
        let message = (!body.is_empty()).then(|| serde_json::from_slice(&body).expect("the answer is JSON"));
        Self(Source::Json { message, _connection: connection })
    }

    pub fn is_stream(&self) -> bool {
        matches!(self.0, Source::Events(_))
    }

    /// `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        match &mut self.0 {
            Source::Json { message, .. } => message.take(),
            Source::Events(events) => {
                let event = tokio::time::timeout(LIMIT, events.next()).await.expect("something comes")?;
                Some(serde_json::from_slice(&event.data).expect("an event is a message"))
            }
        }
    }

    /// The next message, which must have this method.
    pub async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await.unwrap_or_else(|| panic!("ended before {method}"));
        assert_eq!(message["method"], method, "{message}");
        message
    }

    /// The response; messages before it are skipped.
    pub async fn answer(&mut self) -> Value {
        loop {
            let message = self.next().await.expect("an answer comes");
            if message.get("method").is_none() {
                return message;
            }
        }
    }
}

/// A client of HTTP+SSE.
pub struct SseAgent {
    pub address: String,
    /// The address from the first event.
    pub endpoint: String,
    authorization: Option<String>,
    events: Events,
}

impl SseAgent {
    /// Opens the stream only.
    pub async fn open(app: &TestApp, path: &str) -> Self {
        Self::open_with(app, path, None).await
    }

    async fn open_with(app: &TestApp, path: &str, authorization: Option<String>) -> Self {
        let headers = authorization.as_deref().map(|value| ("authorization", value));
        let headers: Vec<_> = headers.into_iter().chain([("accept", "text/event-stream")]).collect();
        let mut events = Events::new(client::open(&app.address, "GET", path, &headers, Vec::new()).await);
        let first = events.next().await.expect("the stream begins with its endpoint");
        assert_eq!(first.name.as_deref(), Some("endpoint"));
        let endpoint = String::from_utf8(first.data.to_vec()).unwrap();
        Self { address: app.address.clone(), endpoint, authorization, events }
    }

    pub async fn connect(app: &TestApp, path: &str, capabilities: Value) -> Self {
        Self::open(app, path).await.shake_hands(capabilities).await
    }

    /// As a client with a token.
    pub async fn connect_as(app: &TestApp, path: &str, token: &str) -> Self {
        Self::open_with(app, path, Some(bearer(token))).await.shake_hands(json!({})).await
    }

    async fn shake_hands(mut self, capabilities: Value) -> Self {
        let params = json!({
            "protocolVersion": "2024-11-05",
            "capabilities": capabilities,
            "clientInfo": {"name": "agent", "version": "7.0"},
        });
        self.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})).await;
        assert_eq!(self.answer(json!(0)).await["result"]["protocolVersion"], "2024-11-05");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        self
    }

    pub async fn send(&self, message: &Value) {
        let headers: Vec<_> =
            self.authorization.as_deref().map(|value| ("authorization", value)).into_iter().collect();
        let body = message.to_string().into();
        client::request(&self.address, "POST", &self.endpoint, &headers, body).await.expect(202);
    }

    pub async fn next(&mut self) -> Option<Value> {
        let event = tokio::time::timeout(LIMIT, self.events.next()).await.expect("something comes")?;
        assert_eq!(event.name.as_deref(), Some("message"));
        Some(serde_json::from_slice(&event.data).expect("an event is a message"))
    }

    pub async fn call(&mut self, id: Value, tool: &str, arguments: Value) -> Value {
        let params = json!({"name": tool, "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await;
        self.next().await.expect("the stream goes on")
    }

    /// The response to the request with this id; messages before it are skipped.
    pub async fn answer(&mut self, id: Value) -> Value {
        loop {
            let message = self.next().await.expect("the stream goes on");
            if message.get("method").is_none() && message["id"] == id {
                return message;
            }
        }
    }
}
