//! `toolgate register`: registers a server from flags or a file, with OAuth authorization in a browser if it is
//! required.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value};

use super::authorize::{Callback, finish};
use super::error::UsageError;
use super::flags::ServerFlags;
use super::invocation::Invocation;
use super::output::Spinner;
use super::record::text;
use super::remote::{ApiRequest, OAUTH_REQUIRED, RemoteError};
use super::wording::Source;
use super::{files, servers};

/// Register a server
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate register --name time --url http://localhost:8000/mcp
  toolgate register --name github --url https://api.githubcopilot.com/mcp --bearer-token \"$GITHUB_TOKEN\"
  toolgate register --name old --url http://localhost:8000/sse --transport sse
  toolgate register --name files --env DEBUG=1 -- npx -y @modelcontextprotocol/server-filesystem .
  toolgate register --conf github.yaml

If the server requires authorization, the browser is opened for it. A file has the keys of the REST API, in JSON or
YAML, and may use variables as ${NAME}.")]
pub struct Register {
    /// Name of the server: letters, digits, '-' and '_'
    #[arg(long)]
    name: Option<String>,
    /// File that describes the server, JSON or YAML; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Replace a server with the same name
    #[arg(long)]
    force: bool,
    /// Keep the server even if it cannot be connected; the gateway keeps trying
    #[arg(long)]
    keep: bool,
    /// Print the authorization URL, do not open a browser
    #[arg(long)]
    no_browser: bool,
    #[command(flatten)]
    flags: ServerFlags,
}

pub async fn run(invocation: &Invocation, register: Register) -> anyhow::Result<()> {
    let mut input = match &register.conf {
        Some(conf) => {
            files::warn_about_flags(register.name.is_none() && register.flags.is_empty());
            files::object(invocation, conf).await?
        }
        None => from_flags(&register)?,
    };
    if register.keep {
        input.insert("keep_failed".into(), true.into());
    }
    let name = text(&Value::Object(input.clone()), "name");
    let source = Source::of(&register.conf);
    let send = |input: Map<String, Value>| async move {
        let force = if register.force { "true" } else { "false" };
        let request = ApiRequest::post(&["servers"]).query("force", force).object(&input).source(source);
        invocation.remote.ask(request).await
    };
    let spinner = Spinner::start(&format!("connecting to {name}"));
    let mut answer = send(input.clone()).await;
    drop(spinner);
    let mut callback = None;
    if let Err(RemoteError::Refused { code: Some(code), .. }) = &answer
        && code == OAUTH_REQUIRED
    {
        let listening = Callback::listen(None).await?;
        input.insert("oauth_redirect_uri".into(), listening.redirect_uri().into());
        callback = Some(listening);
        answer = send(input.clone()).await;
    }
    let answer = answer?;
    if answer.status != 202 {
        return servers::show_registered(invocation, &answer);
    }
    let redirect_uri = input.get("oauth_redirect_uri").and_then(Value::as_str);
    let browser = !register.no_browser;
    match finish(invocation, &answer, callback, redirect_uri, browser).await? {
        Some(answer) => servers::show_registered(invocation, &answer),
        None => Ok(()),
    }
}

fn from_flags(register: &Register) -> anyhow::Result<Map<String, Value>> {
    let mut input = register.flags.to_object()?;
    let Some(name) = &register.name else {
        return Err(UsageError(
            "specify the name of the server with --name, or a file that describes it with --conf".into(),
        )
        .into());
    };
    input.insert("name".into(), name.clone().into());
    if !input.contains_key("url") && !input.contains_key("command") {
        let sentence = "specify how to connect to the server: --url URL, or its command after `--`";
        return Err(UsageError(sentence.into()).into());
    }
    input.entry("transport").or_insert("streamable_http".into());
    Ok(input)
}
