//! `toolgate invoke`: calls a tool, shows its progress and result, and asks on the terminal what the tool asks for.
//! Ctrl-C cancels the call.

use std::path::Path;

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::arguments::ToolArguments;
use super::conversation::Conversation;
use super::error::{ToolError, UsageError};
use super::events::CallEvents;
use super::invocation::Invocation;
use super::output::{self, Format};
use super::remote::{ApiRequest, RemoteError};
use super::suggestion::{ListedNoun, explain};
use super::wording::Source;
use super::{content, files, schema, tools};
use model::deep_json;

/// Call a tool
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate invoke everything__echo message=hello
  toolgate invoke github__create_issue owner=me repo=mine labels=bug labels=ui
  toolgate invoke maps__route from.city=Rome to.city=Oslo
  toolgate invoke everything__echo --input '{\"message\": \"hello\"}'
  toolgate invoke everything__echo --input @message.json
  echo '{\"message\": \"hello\"}' | toolgate invoke everything__echo --input -

Arguments get the types of the tool's schema (`toolgate usage NAME`). Images, audio and other data are saved to
files in the working directory. If the tool asks for input, you are prompted on the terminal. The exit code is 1
when the tool reports an error.")]
pub struct Invoke {
    #[arg(help = "Full name of the tool: <server>__<tool>")]
    name: String,
    /// Arguments of the tool; a dot addresses a nested object, a repeated key makes a list
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// Arguments as a JSON object: the object itself, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    input: Option<String>,
    /// Call it only if this group shows it
    #[arg(long)]
    group: Option<String>,
    /// Tell the server that it may ask for input; a stdio server may need another process for this
    #[arg(long, conflicts_with = "no_input")]
    ask: bool,
    /// Do not ask on the terminal; a tool that asks for input then fails
    #[arg(long)]
    no_input: bool,
}

pub async fn run(invocation: &Invocation, invoke: Invoke) -> anyhow::Result<()> {
    let mut arguments = match invoke.input.as_deref().map(str::trim) {
        None => ToolArguments::default(),
        Some("-") => ToolArguments::parse(&files::text(Path::new("-")).await?)?,
        Some(input) => match input.strip_prefix('@') {
            Some(path) => ToolArguments::parse(&files::text(Path::new(path)).await?)?,
            None => ToolArguments::parse(input)?,
        },
    };
    if let Some(group) = &invoke.group
        && !tools::effective(invocation, group).await?.contains(&invoke.name)
    {
        bail!(
            "tool {:?} is not in group {group:?}; `{}` lists the tools that are",
            invoke.name,
            invocation.command(&format!("list tools --group {group}"))
        );
    }
    let name = Value::from(invoke.name.as_str()).to_string();
    let body = if invoke.pairs.is_empty() && !arguments.has("name") {
        arguments.to_json(&[("name", name)])
    } else {
        let schema = input_schema(invocation, &invoke.name).await?;
        for pair in &invoke.pairs {
            arguments.add(pair, &schema)?;
        }
        match (arguments.has("name"), takes(&schema, "name") && !takes(&schema, "arguments")) {
            (false, _) => arguments.to_json(&[("name", name)]),
            // `name` is the name of the tool, so these arguments are sent under `arguments`.
            (true, true) => format!("{{\"name\":{name},\"arguments\":{}}}", arguments.to_json(&[])),
            (true, false) => {
                let sentence = "this command cannot pass an argument called \"name\" to this tool";
                return Err(UsageError(sentence.into()).into());
            }
        }
    };
    let mut request = ApiRequest::post(&["tools", "invoke"]).body(body);
    if invoke.no_input || !output::can_ask() {
        request = request.query("input", "false");
    } else if invoke.ask {
        request = request.query("input", "true");
    }
    let answer = call(invocation, &invoke.name, request).await;
    let result = explain(invocation, ListedNoun::Tool, &invoke.name, answer).await?;
    match invocation.format {
        Format::Json => output::json(&result)?,
        Format::Table => content::show_result(&result, &invoke.name)?,
    }
    let result = deep_json::parse(&result)?;
    if result["isError"] == true { Err(ToolError.into()) } else { Ok(()) }
}

async fn input_schema(invocation: &Invocation, name: &str) -> Result<Value, RemoteError> {
    let answer = invocation.remote.ask(ApiRequest::get(&["tool"]).query("name", name)).await;
    let tool = explain(invocation, ListedNoun::Tool, name, answer).await?.json()?;
    Ok(tool["input_schema"].clone())
}

fn takes(schema: &Value, name: &str) -> bool {
    schema::at(schema, &[name]).is_some()
}

/// Calls a tool and returns its result, unchanged.
async fn call(invocation: &Invocation, name: &str, request: ApiRequest) -> Result<String, RemoteError> {
    let mut conversation = Conversation::start(&invocation.remote, name);
    let response = invocation.remote.ask_for_events(request).await?;
    let mut events = CallEvents::new(&invocation.remote, response);
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            answered = conversation.next_answer() => {
                conversation.send(answered).await?;
                continue;
            }
        };
        let Some(event) = event else { break };
        match event.name.as_str() {
            "progress" => conversation.tell(progress(&event.data)),
            "input" => conversation.add(&event.data)?,
            "result" => return Ok(event.data),
            "error" => {
                let said: Value = serde_json::from_str(&event.data).unwrap_or_default();
                let sentence = said["error"].as_str().unwrap_or("the call failed");
                let sentence = invocation.remote.translate(sentence, Source::Flags);
                return Err(RemoteError::Refused { status: 500, sentence, code: None });
            }
            _ => {}
        }
    }
    let reason = "the connection was closed before the result arrived".to_owned();
    Err(RemoteError::Unreachable { registry: invocation.remote.registry().to_owned(), reason })
}

/// Formats a progress event, such as `3/10 downloading`; on a terminal with a bar.
fn progress(data: &str) -> String {
    let params: Value = serde_json::from_str(data).unwrap_or_default();
    let (done, total) = (&params["progress"], &params["total"]);
    let count = if total.is_number() { format!("{done}/{total}") } else { done.to_string() };
    let part =
        done.as_f64().zip(total.as_f64()).filter(|(_, total)| *total > 0.0).map(|(done, total)| done / total);
    let bar = part.and_then(output::bar).map_or(String::new(), |bar| format!("{bar} "));
    format!("{bar}{count} {}", params["message"].as_str().unwrap_or_default()).trim_end().to_owned()
}
