//! The Rust SDK as a client of the gateway, with every server behind it. Called with the address of the gateway;
//! prints what it did and stops at the first failure.

// Revision 2026-07-28 removes sampling; current clients still have it.
#![allow(deprecated)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ErrorData, ProgressNotificationParam,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceError, ServiceExt};
use serde_json::{Value, json};

#[derive(Clone, Default)]
struct Client {
    progress: Arc<Mutex<Vec<f64>>>,
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities: ClientCapabilities = typed(json!({ "elicitation": {}, "sampling": {} }));
        ClientConfig::new(capabilities, typed(json!({ "name": "smoke", "version": "1.0.0" })))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(typed(json!({ "action": "accept", "content": { "username": "Ada" } })))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let content = json!({ "type": "text", "text": "forty-two" });
        Ok(typed(json!({ "role": "assistant", "model": "none", "content": content })))
    }

    async fn on_progress(&self, step: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().expect("no code panics while it holds the steps").push(step.progress);
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // This program shares the gateway's features of rustls, which include no default crypto provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let gateway = std::env::args().nth(1).context("the address of the gateway is missing")?;
    // A timeout is also a failure.
    tokio::time::timeout(Duration::from_secs(60), visit(&gateway)).await?
}

async fn visit(gateway: &str) -> Result<()> {
    let transport = StreamableHttpClientTransport::from_uri(format!("{gateway}/mcp"));
    let client = Client::default().serve(transport).await?;
    for server in ["stdio", "http", "sse"] {
        tour(&client, server).await.with_context(|| format!("server {server}"))?;
    }
    let asked = call(&client, "fixture__test_elicitation", json!({ "message": "Who?" })).await?;
    ensure!(asked.to_string().contains("accept"), "elicitation: {asked}");
    let sampled = call(&client, "fixture__test_sampling", json!({ "prompt": "What?" })).await?;
    ensure!(sampled.to_string().contains("forty-two"), "sampling: {sampled}");
    client.cancel().await?;
    println!("  Rust SDK over streamable HTTP: all well");
    Ok(())
}

async fn tour(client: &RunningService<RoleClient, Client>, server: &str) -> Result<()> {
    let named = |name: &str| format!("{server}__{name}");
    let tools = client.list_all_tools().await?;
    ensure!(tools.iter().any(|tool| tool.name == named("echo")), "echo is not listed");
    let prompts = client.list_all_prompts().await?;
    ensure!(prompts.iter().any(|prompt| prompt.name == named("args-prompt")), "args-prompt is not listed");
    let resources = json!(client.list_all_resources().await?);
    ensure!(!client.list_all_resource_templates().await?.is_empty(), "no templates are listed");

    let echo = call(client, &named("echo"), json!({ "message": "hé 😀" })).await?;
    ensure!(echo["content"][0]["text"] == "Echo: hé 😀", "echo: {echo}");
    let image = call(client, &named("get-tiny-image"), json!({})).await?;
    ensure!(image.to_string().contains(r#""type":"image""#), "no picture");
    let weather = call(client, &named("get-structured-content"), json!({ "location": "Chicago" })).await?;
    ensure!(weather["structuredContent"]["temperature"].is_number(), "structured: {weather}");
    let failed = call(client, &named("get-sum"), json!({ "a": "no number" })).await?;
    ensure!(failed["isError"] == true, "no error: {failed}");
    let unknown = call(client, &named("no-such-tool"), json!({})).await;
    let is_refused = matches!(&unknown, Err(ServiceError::McpError(error)) if error.code.0 == -32602);
    ensure!(is_refused, "unknown tool: {unknown:?}");

    let take = || std::mem::take(&mut *client.service().progress.lock().expect("no code panics with it"));
    take();
    let long = json!({ "duration": 0.2, "steps": 4 });
    call(client, &named("trigger-long-running-operation"), long).await?;
    // Notifications are handled concurrently with the call, so the last one may come after the response.
    let steps = take();
    ensure!(steps.starts_with(&[1.0, 2.0, 3.0]), "progress: {steps:?}");

    let prompt = json!({ "name": named("args-prompt"), "arguments": { "city": "Oslo" } });
    let prompt = json!(client.get_prompt(typed(prompt)).await?);
    ensure!(prompt.to_string().contains("Oslo"), "prompt: {prompt}");
    // All three servers have the same resources, so each is listed under a qualified URI of the gateway.
    let prefix = format!("toolgate://res/{server}/");
    let uris = resources.as_array().into_iter().flatten().filter_map(|resource| resource["uri"].as_str());
    let uri = uris.into_iter().find(|uri| uri.starts_with(&prefix)).context("no resource is listed")?;
    let read = json!(client.read_resource(typed(json!({ "uri": uri }))).await?);
    ensure!(read["contents"][0]["text"].is_string(), "resource: {read}");
    let reference = json!({ "type": "ref/prompt", "name": named("completable-prompt") });
    let argument = json!({ "name": "department", "value": "E" });
    let completed = client.complete(typed(json!({ "ref": reference, "argument": argument }))).await?;
    ensure!(completed.completion.values == ["Engineering"], "completion: {:?}", completed.completion.values);
    Ok(())
}

async fn call(
    client: &RunningService<RoleClient, Client>,
    name: &str,
    arguments: Value,
) -> Result<Value, ServiceError> {
    let result = client.call_tool(typed(json!({ "name": name, "arguments": arguments }))).await?;
    Ok(json!(result))
}

/// The SDK's types cannot be written as literals.
fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("what is written here fits the SDK's types")
}
