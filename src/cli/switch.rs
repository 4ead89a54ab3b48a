//! Enabling and disabling tools, prompts and servers.

use serde_json::Value;

use super::invocation::Invocation;
use super::output;
use super::remote::ApiRequest;
use super::suggestion::{ListedNoun, explain};

/// Whether to enable or to disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Enable,
    Disable,
}

impl Switch {
    /// Returns the last segment of the route.
    pub fn route(self) -> &'static str {
        match self {
            Switch::Enable => "enable",
            Switch::Disable => "disable",
        }
    }

    pub fn done(self) -> &'static str {
        match self {
            Switch::Enable => "enabled",
            Switch::Disable => "disabled",
        }
    }
}

/// Enables or disables one tool or prompt, or all of a server. `route` is the first segment of the path, and the noun
/// in messages.
pub async fn switch_entity(
    invocation: &Invocation,
    switch: Switch,
    noun: ListedNoun,
    route: &str,
    name: &str,
) -> anyhow::Result<()> {
    let request = ApiRequest::post(&[route, switch.route()]).query("entity", name);
    let answer = invocation.remote.ask(request).await;
    // A name without `__` is the name of a server.
    let noun = if name.contains("__") { noun } else { ListedNoun::Server };
    let answer = explain(invocation, noun, name, answer).await?;
    invocation.show(&answer, |names| {
        let names: Vec<&str> = names.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        output::message(&match names.len() {
            0 => format!("Nothing changed: all its {route} were already {}.", switch.done()),
            1 => format!("Now {}:", switch.done()),
            count => format!("{count} {route} are now {}:", switch.done()),
        });
        output::printable(&names.join("\n"))
    })
}
