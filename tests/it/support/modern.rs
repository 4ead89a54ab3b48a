//! A client of revision 2026-07-28: no handshake, every request is self-contained. It sends the test's own text, and the
//! headers that repeat parts of it may be changed, left out or sent twice.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::TestApp;
use super::app::bearer;
use super::client::{self, Answer};
use super::mcp::{BOTH, Talk};

pub const VERSION: &str = "2026-07-28";
pub const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
pub const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
pub const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";
pub const LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
pub const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
pub const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// A client at one endpoint.
pub struct ModernAgent {
    pub address: String,
    pub path: String,
    pub capabilities: Value,
    authorization: Option<String>,
}

impl ModernAgent {
    pub fn at(app: &TestApp, path: &str) -> Self {
        Self { address: app.address.clone(), path: path.into(), capabilities: json!({}), authorization: None }
    }

    /// As a client with a token.
    pub fn using(mut self, token: &str) -> Self {
        self.authorization = Some(bearer(token));
        self
    }

    fn post_of(&self, message: &Value) -> Post {
        let post = Post::of(message.to_string());
        match &self.authorization {
            Some(authorization) => post.adding("authorization", authorization),
            None => post,
        }
    }

    pub fn with(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// A request with everything that the revision requires.
    pub fn message(&self, id: Value, method: &str, mut params: Value) -> Value {
        let meta = &mut params["_meta"];
        meta[VERSION_KEY] = json!(VERSION);
        meta[CAPABILITIES_KEY] = self.capabilities.clone();
        meta[CLIENT_KEY] = json!({"name": "modern agent", "version": "9"});
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// Posts a message with the headers that belong to it.
    pub async fn post(&self, message: &Value) -> Answer {
        self.send(&self.post_of(message)).await
    }

    /// The same at a gateway that may end meanwhile.
    pub async fn attempt(&self, message: &Value) -> std::io::Result<Answer> {
        let post = self.post_of(message);
        client::attempt(&self.address, "POST", &self.path, &post.headers(), post.body.clone().into()).await
    }

    pub async fn send(&self, post: &Post) -> Answer {
        client::request(&self.address, "POST", &self.path, &post.headers(), post.body.clone().into()).await
    }

    /// Sends a request; the messages that come back can be read one by one.
    pub async fn begin(&self, message: &Value) -> Talk {
        self.begin_post(&self.post_of(message)).await
    }

    pub async fn begin_post(&self, post: &Post) -> Talk {
        Talk::open(&self.address, "POST", &self.path, &post.headers(), post.body.clone()).await
    }

    /// The response to a request; messages before it are skipped.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        self.begin(&self.message(json!(1), method, params)).await.answer().await
    }

    /// The result of a request that must work.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        let answer = self.request(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The HTTP status and the error of a request that must fail.
    pub async fn error(&self, method: &str, params: Value) -> (u16, Value) {
        let answer = self.post(&self.message(json!(1), method, params)).await;
        let message = answer.json();
        assert!(message.get("result").is_none(), "no error: {message}");
        (answer.status, message["error"].clone())
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// The text of the first content block of a call that must work.
    pub async fn call_text(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}")).into()
    }

    /// The names of a list, by its member.
    pub async fn list(&self, method: &str, member: &str, key: &str) -> Vec<String> {
        let result = self.result(method, json!({})).await;
        let items = result[member].as_array().unwrap_or_else(|| panic!("no list: {result}"));
        items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
    }

    /// Sends a request and reads nothing; dropping the connection closes it.
    pub async fn hold(&self, message: &Value) -> TcpStream {
        let post = Post::of(message.to_string());
        let mut head = format!("POST {} HTTP/1.1\r\nhost: localhost\r\n", self.path);
        for (name, value) in post.headers() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let request = format!("{head}content-length: {}\r\n\r\n{}", post.body.len(), post.body);
        client::raw(&self.address, request.as_bytes()).await
    }

    /// Opens a subscription and reads its acknowledgement, which comes first; returns what was granted.
    pub async fn listen(&self, id: Value, wanted: Value) -> (Talk, Value) {
        let message = self.message(id.clone(), "subscriptions/listen", json!({"notifications": wanted}));
        let mut talk = self.begin(&message).await;
        let notice = talk.expect("notifications/subscriptions/acknowledged").await;
        assert_eq!(notice["params"]["_meta"][SUBSCRIPTION_KEY], id, "{notice}");
        (talk, notice["params"]["notifications"].clone())
    }
}

/// One body and the headers that go with it.
#[derive(Clone)]
pub struct Post {
    pub body: String,
    headers: Vec<(String, String)>,
}

impl Post {
    /// With the headers that repeat parts of the body.
    pub fn of(body: impl Into<String>) -> Self {
        let body = body.into();
        let message: Value = serde_json::from_str(&body).expect("the test writes JSON");
        let params = &message["params"];
        let mut post = Self { body, headers: Vec::new() };
        let name = match message["method"].as_str() {
            Some("tools/call" | "prompts/get") => params["name"].as_str(),
            Some("resources/read") => params["uri"].as_str(),
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => params["taskId"].as_str(),
            _ => None,
        };
        let version = params["_meta"][VERSION_KEY].as_str();
        for (header, value) in [
            ("mcp-protocol-version", version),
            ("mcp-method", message["method"].as_str()),
            ("mcp-name", name),
        ] {
            post.headers.extend(value.map(|value| (header.to_owned(), encode(value))));
        }
        post
    }

    /// With no headers of the protocol at all.
    pub fn bare(body: impl Into<String>) -> Self {
        Self { body: body.into(), headers: Vec::new() }
    }

    /// Adds a header; if it exists already, it is sent twice.
    pub fn adding(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self
    }

    pub fn replacing(self, name: &str, value: &str) -> Self {
        self.without(name).adding(name, value)
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        if !headers.iter().any(|(name, _)| *name == "accept") {
            headers.push(BOTH);
        }
        headers
    }
}

/// A value in the form allowed in a header: text that is not allowed there is sent in base64.
pub fn encode(value: &str) -> String {
    let arrives = value.trim() == value && value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    match arrives {
        true => value.to_owned(),
        false => format!("=?base64?{}?=", BASE64_STANDARD.encode(value)),
    }
}
