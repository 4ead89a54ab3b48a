//! Prompts: listing, switching and rendering them.

use clap::Args;
use serde_json::{Map, Value, json};

use super::content;
use super::error::UsageError;
use super::invocation::Invocation;
use super::output::{self, Format, Table};
use super::record::{enabled, text};
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};
use super::switch::{Switch, switch_entity};

/// List prompts, all or those of a server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate list prompts
  toolgate list prompts --server github")]
pub struct ListPrompts {
    /// Only those of this server
    #[arg(long)]
    server: Option<String>,
    /// Include those of disabled servers
    #[arg(long)]
    all: bool,
}

/// Render a prompt with arguments
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate get prompt github__review
  toolgate get prompt github__review --arg language=rust --arg style=\"short and kind\"")]
pub struct GetPrompt {
    #[arg(help = "Full name of the prompt: <server>__<prompt>")]
    name: String,
    /// Argument of the prompt, as KEY=VALUE; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    arg: Vec<String>,
}

/// Enable or disable one prompt, or all prompts of a server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate disable prompt github__review
  toolgate enable prompt github")]
pub struct SwitchPrompt {
    /// Full name of a prompt, or the name of a server
    name: String,
}

pub async fn list(invocation: &Invocation, list: ListPrompts) -> anyhow::Result<()> {
    let mut request = ApiRequest::get(&["prompts"]);
    if let Some(server) = &list.server {
        request = request.query("server", server);
    }
    if list.all {
        request = request.query("all", "true");
    }
    let answer = invocation.remote.ask(request).await;
    let answer =
        explain(invocation, ListedNoun::Server, list.server.as_deref().unwrap_or_default(), answer).await?;
    invocation.show(&answer, |prompts| page(prompts.as_array().map(Vec::as_slice).unwrap_or_default()))
}

pub async fn get(invocation: &Invocation, get: GetPrompt) -> anyhow::Result<()> {
    let mut arguments = Map::new();
    for pair in &get.arg {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| UsageError(format!("--arg {pair:?} must have the form KEY=VALUE")))?;
        arguments.insert(key.to_owned(), value.into());
    }
    let body = json!({ "name": get.name, "arguments": arguments }).to_string();
    let answer = invocation.remote.ask(ApiRequest::post(&["prompts", "render"]).body(body)).await;
    let answer = explain(invocation, ListedNoun::Prompt, &get.name, answer).await?;
    if invocation.format == Format::Json {
        return output::json(&answer.text);
    }
    let rendered = answer.json()?;
    let description = text(&rendered, "description");
    if !description.is_empty() {
        output::message(&description);
    }
    for message in rendered["messages"].as_array().into_iter().flatten() {
        output::line(&format!("[{}]", output::printable(&text(message, "role"))))?;
        content::show_block(&message["content"], &get.name)?;
    }
    Ok(())
}

pub async fn switch(invocation: &Invocation, switch: Switch, prompt: SwitchPrompt) -> anyhow::Result<()> {
    switch_entity(invocation, switch, ListedNoun::Prompt, "prompts", &prompt.name).await
}

fn page(prompts: &[Value]) -> String {
    if prompts.is_empty() {
        output::message("There are no prompts.");
        return String::new();
    }
    let mut table = Table::new(["NAME", "ENABLED", "ARGUMENTS", "DESCRIPTION"]);
    for prompt in prompts {
        let arguments = prompt["arguments"].as_array().into_iter().flatten().map(|argument| {
            let name = text(argument, "name");
            if argument["required"] == true { name } else { format!("[{name}]") }
        });
        table.row([
            text(prompt, "name").into(),
            enabled(prompt),
            arguments.collect::<Vec<_>>().join(" ").into(),
            text(prompt, "description").into(),
        ]);
    }
    table.render(output::width())
}
