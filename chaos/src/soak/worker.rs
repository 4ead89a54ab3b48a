//! A worker of the soak: creates things, uses them like an agent, and removes them again.

use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::agent::Agent;
use crate::http::Request;
use crate::random::Random;
use crate::report::Report;
use crate::server::{ECHO, Server, WAIT};

/// A server that is registered during the whole run.
pub const ANCHOR: &str = "anchor";

pub struct Worker {
    pub index: usize,
    pub address: String,
    pub admin: String,
    /// The token of a client that exists during the whole run and may use everything.
    pub keeper: String,
    pub server: Arc<Server>,
    pub random: Random,
    pub report: Report,
    /// A counter that makes every name unique.
    pub count: u64,
}

impl Worker {
    /// Does this many rounds.
    pub async fn run(mut self, rounds: u64) -> Self {
        for _ in 0..rounds {
            let (what, outcome) = match self.random.below(8) {
                0 => ("server", self.churn_server().await),
                1..=3 => ("client", self.churn_client().await),
                4 | 5 => ("group", self.churn_group().await),
                6 => ("calls", self.call().await),
                _ => ("streams", self.churn_streams().await),
            };
            self.report.operation(&format!("round of {what}"));
            if let Err(error) = outcome {
                self.report.violation(format!("{what}: {error:#}"));
            }
        }
        self
    }

    /// Registers a server, uses it through its own endpoint, and deletes it.
    async fn churn_server(&mut self) -> Result<()> {
        let name = self.fresh_name("s");
        let url = self.server.url(&name);
        let body = json!({"name": name, "transport": "streamable_http", "url": url});
        self.change("POST", "/api/v0/servers", Some(body)).await?;
        let agent = self.connect(&format!("/v0/servers/{name}/mcp"), None).await?;
        self.list(&agent).await?;
        agent.ask("tools/call", json!({"name": ECHO, "arguments": {"message": "hello"}})).await?;
        agent.end().await?;
        if self.random.chance(50) {
            self.change("POST", &format!("/api/v0/servers/{name}/disable"), None).await?;
        }
        self.change("DELETE", &format!("/api/v0/servers/{name}"), None).await
    }

    /// Creates a client with its own allow list, reads lists as that client, and deletes it with or without its session.
    async fn churn_client(&mut self) -> Result<()> {
        let name = self.fresh_name("c");
        let token = format!("{name}-{:016x}", self.random.draw());
        let body = json!({"name": name, "access_token": token, "allow_list": [ANCHOR, name]});
        self.change("POST", "/api/v0/clients", Some(body)).await?;
        let agent = self.connect("/mcp", Some(&token)).await?;
        self.list(&agent).await?;
        let stream = if self.random.chance(50) { Some(agent.stream().await?) } else { None };
        if self.random.chance(50) {
            agent.end().await?;
        }
        self.change("DELETE", &format!("/api/v0/clients/{name}"), None).await?;
        drop(stream);
        Ok(())
    }

    /// Creates a group, reads its lists through its own endpoint, and deletes it.
    async fn churn_group(&mut self) -> Result<()> {
        let name = self.fresh_name("g");
        let body = json!({"name": name, "included_servers": [ANCHOR]});
        self.change("POST", "/api/v0/tool-groups", Some(body)).await?;
        let agent = self.connect(&format!("/v0/groups/{name}/mcp"), None).await?;
        self.list(&agent).await?;
        if self.random.chance(50) {
            agent.end().await?;
        }
        self.change("DELETE", &format!("/api/v0/tool-groups/{name}"), None).await
    }

    async fn call(&mut self) -> Result<()> {
        let agent = self.connect("/mcp", None).await?;
        for _ in 0..10 {
            let message = format!("{:x}", self.random.draw());
            let params = json!({"name": format!("{ANCHOR}__{ECHO}"), "arguments": {"message": message}});
            let result = agent.ask("tools/call", params).await?;
            ensure!(
                result["content"][0]["text"] == json!(message),
                "another answer than asked for: {result}"
            );
            self.report.operation("call");
        }
        agent.cancel_call(&format!("{ANCHOR}__{WAIT}")).await?;
        self.report.operation("call: cancelled");
        agent.end().await?;
        Ok(())
    }

    /// Opens streams of every kind and closes them.
    async fn churn_streams(&mut self) -> Result<()> {
        let agent = self.connect("/mcp", None).await?;
        for _ in 0..5 {
            drop(agent.stream().await?);
            self.report.operation("stream");
            drop(agent.sse_stream().await?);
            self.report.operation("stream of HTTP+SSE");
            drop(agent.subscription().await?);
            self.report.operation("subscription");
        }
        if self.random.chance(50) {
            agent.end().await?;
        }
        Ok(())
    }

    async fn connect(&mut self, path: &str, token: Option<&str>) -> Result<Agent> {
        self.report.operation("session");
        Agent::connect(&self.address, path, token.unwrap_or(&self.keeper)).await
    }

    async fn list(&mut self, agent: &Agent) -> Result<()> {
        self.report.operation("list");
        let result = agent.ask("tools/list", json!({})).await?;
        let count = result["tools"].as_array().map_or(0, Vec::len);
        ensure!(count > 0, "an empty list");
        Ok(())
    }

    async fn change(&mut self, method: &str, path: &str, body: Option<Value>) -> Result<()> {
        self.report.operation("change");
        let mut request = Request::new(method, path).token(&self.admin);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let response = request.send(&self.address).await?;
        ensure!(response.is_success(), "{method} {path}: {} {}", response.status, response.text());
        Ok(())
    }

    fn fresh_name(&mut self, letter: &str) -> String {
        self.count += 1;
        format!("{letter}{}-{}", self.index, self.count)
    }
}
