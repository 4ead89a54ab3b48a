//! `toolgate explain`: says whether a user or client may use something, and by which rules.

use clap::Args;
use serde_json::Value;

use super::invocation::Invocation;
use super::output;
use super::record::text;
use super::remote::ApiRequest;

/// Explain by which rules a user or client may use something (enterprise mode)
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate explain client:ci github__delete_repository
  toolgate explain user:ann github

Admins may ask about everybody; others about themselves.")]
pub struct ExplainArgs {
    /// user:NAME or client:NAME
    subject: String,
    /// Full name of a tool or prompt, or the name of a server
    name: String,
}

pub async fn run(invocation: &Invocation, explain: ExplainArgs) -> anyhow::Result<()> {
    let ExplainArgs { subject, name } = explain;
    let request = ApiRequest::get(&["access", "explain"]).query("subject", &subject).query("name", &name);
    let answer = invocation.remote.ask(request).await?;
    invocation.show(&answer, |found| page(found, &subject, &name))
}

fn page(found: &Value, subject: &str, name: &str) -> String {
    let (mark, may) = if found["allowed"] == true { ("✓", "may use") } else { ("✗", "may not use") };
    let reason = output::printable(&text(found, "reason"));
    let mut lines = vec![format!("{mark} {subject} {may} {name}: {reason}.")];
    for rule in found["rules"].as_array().into_iter().flatten() {
        let (entry, from) = (output::printable(&text(rule, "entry")), output::printable(&text(rule, "from")));
        lines.push(format!("    {entry}  ({from})"));
    }
    lines.join("\n")
}
