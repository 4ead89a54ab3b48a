//! `toolgate calls` and `toolgate stats`: what was called, by whom, and how long it took.

use clap::Args;
use serde_json::Value;

use super::events::CallEvents;
use super::invocation::Invocation;
use super::output::{self, Cell, Format, Table, Tone};
use super::record::text;
use super::remote::ApiRequest;

/// Show calls, newest first
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate calls
  toolgate calls --server github --outcome tool_error
  toolgate calls --since 2026-01-31T12:00:00Z --limit 1000
  toolgate calls -f
  toolgate calls 0190d5c3a1b200004e2f1a7c

Outcomes are ok, tool_error, upstream_error, timed_out, cancelled, denied and limited. With CALL_LOG=full the gateway
also keeps arguments and results, which are shown for a single call.")]
pub struct CallsArgs {
    /// Id of a single call
    id: Option<String>,
    /// Only calls to this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Only calls to this tool, prompt or URI, as its server names it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only calls of this user or client
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Only calls with this outcome, such as ok or tool_error
    #[arg(long)]
    outcome: Option<String>,
    /// Only calls over mcp, sse, rest or dashboard
    #[arg(long)]
    via: Option<String>,
    /// Only calls from this time on, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only calls until this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only calls with this text in a name, agent, endpoint or error
    #[arg(long, short, value_name = "TEXT")]
    query: Option<String>,
    /// How many calls to show at most
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Show calls as they end, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

impl CallsArgs {
    fn filter(&self, request: ApiRequest) -> ApiRequest {
        request.filters(&[
            ("server", &self.server),
            ("name", &self.name),
            ("principal", &self.principal),
            ("outcome", &self.outcome),
            ("via", &self.via),
            ("since", &self.since),
            ("until", &self.until),
            ("q", &self.query),
        ])
    }
}

pub async fn run(invocation: &Invocation, calls: CallsArgs) -> anyhow::Result<()> {
    if let Some(id) = &calls.id {
        let answer = invocation.remote.ask(ApiRequest::get(&["calls", id])).await?;
        return invocation.show(&answer, page);
    }
    if calls.follow {
        return follow(invocation, &calls).await;
    }
    let mut request = calls.filter(ApiRequest::get(&["calls"]));
    if let Some(limit) = calls.limit {
        request = request.query("limit", limit.to_string());
    }
    let answer = invocation.remote.ask(request).await?;
    invocation.show(&answer, |answer| {
        let calls = answer["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        if calls.is_empty() {
            output::message("There are no such calls.");
            return String::new();
        }
        let mut table = Table::new(["TIME", "WHO", "CALL", "OUTCOME", "TIME TAKEN", "OWN TIME", "ERROR"]);
        for call in calls {
            table.row(row(call));
        }
        table.render(output::width())
    })
}

/// Prints each call as it ends, until the gateway ends the stream: when it stops, or when the role of the reader changes.
async fn follow(invocation: &Invocation, calls: &CallsArgs) -> anyhow::Result<()> {
    let request = calls.filter(ApiRequest::get(&["calls", "stream"]));
    let response = invocation.remote.ask_for_events(request).await?;
    let mut events = CallEvents::new(&invocation.remote, response);
    while let Some(event) = events.next().await? {
        match invocation.format {
            Format::Json => output::json(&event.data)?,
            Format::Table => {
                let call: Value = serde_json::from_str(&event.data)?;
                let error = text(&call, "error");
                let line = format!(
                    "{} {} {} {} {}{}{error}\n",
                    text(&call, "at"),
                    who(&call),
                    what(&call),
                    text(&call, "outcome"),
                    milliseconds(&call, "duration_ms"),
                    if error.is_empty() { "" } else { ": " },
                );
                output::foreign(&line)?;
            }
        }
    }
    Ok(())
}

fn row(call: &Value) -> [Cell; 7] {
    let outcome = text(call, "outcome");
    let tone = match outcome.as_str() {
        "ok" => Tone::Good,
        "cancelled" | "limited" => Tone::Plain,
        _ => Tone::Bad,
    };
    [
        text(call, "at").into(),
        who(call).into(),
        what(call).into(),
        Cell::new(outcome, tone),
        milliseconds(call, "duration_ms").into(),
        milliseconds(call, "gateway_ms").into(),
        text(call, "error").into(),
    ]
}

fn who(call: &Value) -> String {
    let agent = text(call, "agent");
    let name = text(&call["principal"], "name");
    if agent.is_empty() { name } else { format!("{name} ({agent})") }
}

fn what(call: &Value) -> String {
    match text(call, "server").as_str() {
        "" => text(call, "name"),
        server => format!("{server}: {}", text(call, "name")),
    }
}

fn milliseconds(of: &Value, key: &str) -> String {
    of[key].as_f64().map_or_else(String::new, |time| format!("{time:.1} ms"))
}

/// Everything that is known of one call.
fn page(call: &Value) -> String {
    let mut lines = Vec::new();
    for (key, value) in call.as_object().into_iter().flatten() {
        let shown = match value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Object(principal) if key == "principal" => {
                let part = |key: &str| principal[key].as_str().unwrap_or_default();
                format!("{} ({})", part("name"), part("kind"))
            }
            other => other.to_string(),
        };
        lines.push(format!("{key}: {shown}\n"));
    }
    lines.concat()
}

/// Show how many calls there were, and how long they took
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate stats
  toolgate stats --by tool --server github --window 24h
  toolgate stats --by principal --window 30d")]
pub struct StatsArgs {
    /// Count by server, tool or principal
    #[arg(long, value_name = "WHAT", default_value = "server")]
    by: String,
    /// The time until now: 1h, 24h, 7d or 30d
    #[arg(long, value_name = "TIME", default_value = "1h")]
    window: String,
    /// Only this server, or only the tools of this server
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
}

pub async fn stats(invocation: &Invocation, stats: StatsArgs) -> anyhow::Result<()> {
    let mut request = ApiRequest::get(&["stats"]).query("by", &stats.by).query("window", &stats.window);
    if let Some(server) = &stats.server {
        request = request.query("server", server);
    }
    let answer = invocation.remote.ask(request).await?;
    invocation.show(&answer, |answer| {
        let rows = answer["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        if rows.is_empty() {
            output::message("There were no calls in this time.");
            return String::new();
        }
        let mut table =
            Table::new(["NAME", "CALLS", "ERRORS", "MEDIAN", "P95", "P99", "OWN MEDIAN", "BYTES"]);
        for row in rows {
            table.row([
                text(row, "key").into(),
                row["calls"].to_string().into(),
                row["errors"].to_string().into(),
                milliseconds(row, "p50_ms").into(),
                milliseconds(row, "p95_ms").into(),
                milliseconds(row, "p99_ms").into(),
                milliseconds(row, "gateway_p50_ms").into(),
                row["bytes"].to_string().into(),
            ]);
        }
        table.render(output::width())
    })
}
