//! Commands about the gateway itself: initialization, login, the current user, versions.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use super::invocation::Invocation;
use super::output::{self, Format};
use super::record::{one, text};
use super::remote::{ApiRequest, RemoteError};
use super::{files, settings, users};
use crate::config::{init_secret, variable};

const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// Timeout for the version of the gateway.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// Set up enterprise mode and save the admin token
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate --registry https://gate.example.com init-server
  INIT_SECRET=\"$(cat secret.txt)\" toolgate init-server

The variable INIT_SECRET must have the same value as that of the gateway, if the gateway has one.")]
pub struct InitServer {}

/// Save a token for later commands
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate login \"$TOKEN\"
  toolgate login - < token.txt
  toolgate --registry https://gate.example.com login -")]
pub struct Login {
    /// Access token, or - to read it from standard input
    #[arg(allow_hyphen_values = true)]
    token: String,
}

/// Show the user of the current token (enterprise mode)
#[derive(Args)]
#[command(after_help = "Example:
  toolgate whoami")]
pub struct Whoami {}

/// Print the version
#[derive(Args)]
#[command(after_help = "Example:
  toolgate version")]
pub struct Version {}

pub async fn init_server(invocation: &Invocation) -> anyhow::Result<()> {
    // Checked first, since the response shows the token only once.
    settings::path().context("there is no home directory to store the token in: set HOME")?;
    let request = ApiRequest::post(&["init"]).object(&one("mode", "enterprise"));
    let request = request.token(init_secret(variable("INIT_SECRET")));
    let answer = invocation.remote.ask_system(request).await?;
    let token = text(&answer.json()?, "admin_access_token");
    if token.is_empty() {
        bail!("the gateway returned no token; it is probably initialized already");
    }
    match settings::save(invocation.remote.registry(), &token) {
        Ok(path) => output::message(&format!(
            "Initialized. The admin token is saved in {}; you are logged in.",
            path.display()
        )),
        Err(error) => {
            // The gateway shows the token only once, so it is printed.
            match invocation.format {
                Format::Json => output::json(&answer.text)?,
                Format::Table => output::foreign(&token)?,
            }
            return Err(error.context("initialized, but the admin token above could not be saved"));
        }
    }
    match invocation.format {
        Format::Json => output::json(&answer.text),
        Format::Table => Ok(()),
    }
}

pub async fn login(invocation: &Invocation, login: Login) -> anyhow::Result<()> {
    let token = match login.token.as_str() {
        "-" => files::text(Path::new("-")).await?,
        token => token.to_owned(),
    };
    let token = token.trim();
    if token.is_empty() {
        bail!("the token is empty");
    }
    let remote = invocation.remote.with_token(Some(token))?;
    let answer = remote.ask(ApiRequest::get(&["users", "whoami"])).await?;
    let user = answer.json()?;
    let path = settings::save(remote.registry(), token)?;
    output::message(&format!(
        "You are logged in as {:?} ({}). The token is stored in {}.",
        text(&user, "username"),
        text(&user, "role"),
        path.display()
    ));
    match invocation.format {
        Format::Json => output::json(&answer.text),
        Format::Table => Ok(()),
    }
}

pub async fn whoami(invocation: &Invocation) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["users", "whoami"])).await?;
    invocation.show(&answer, users::page)
}

pub async fn version(invocation: &Invocation) -> anyhow::Result<()> {
    let asking = invocation.remote.ask_system(ApiRequest::get(&["metadata"]));
    let answered = match tokio::time::timeout(VERSION_LIMIT, asking).await {
        Ok(answer) => answer.and_then(|answer| answer.json()).map(|metadata| text(&metadata, "version")),
        Err(_) => Err(RemoteError::Unreachable {
            registry: invocation.remote.registry().to_owned(),
            reason: "it took too long".to_owned(),
        }),
    };
    let registry = invocation.remote.registry();
    if invocation.format == Format::Json {
        let versions = json!({ "version": VERSION, "registry": registry, "gateway_version": answered.ok() });
        return output::json(&versions.to_string());
    }
    output::line(&format!("toolgate {VERSION}"))?;
    match answered {
        Ok(version) => output::message(&format!("The gateway at {registry} is {version}.")),
        Err(_) => output::message(&format!("Cannot reach a gateway at {registry}.")),
    }
    Ok(())
}
