//! Compares what the gateway shows with what it confirmed, for each name and each token.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::thing::{ANCHOR, Kind, State, TOOLS, Thing, token};
use super::writer::{Stage, Writer};
use crate::http::{Request, Response};
use crate::report::Report;
use crate::server;

/// Lists that must be identical, byte for byte, before and after a restart.
const LISTS: &[&str] = &["/api/v0/tools?all=true", "/api/v0/prompts?all=true", "/api/v0/resources?all=true"];

/// What the gateway shows.
pub struct Shown {
    things: BTreeMap<(Kind, String), Value>,
    lists: BTreeMap<&'static str, String>,
}

impl Shown {
    pub async fn read(stage: &Stage) -> Result<Self> {
        let mut shown = Self { things: BTreeMap::new(), lists: BTreeMap::new() };
        for kind in kinds(stage.admin.is_some()) {
            let (path, key) = kind.list();
            let response = get(stage, path).await?;
            let mut list = response.json()?;
            for item in list.as_array_mut().context("a list is no array")? {
                let name = item[key].as_str().context("an item has no name")?;
                let members = kind.members().iter().map(|key| ((*key).to_owned(), item[*key].clone()));
                shown.things.insert((*kind, name.to_owned()), members.collect::<Map<_, _>>().into());
                // Asking is being seen, which is written only now and then.
                item.as_object_mut().map(|item| item.remove("last_seen_at"));
            }
            let text = if *kind == Kind::User { list.to_string() } else { response.text() };
            shown.lists.insert(path, text);
        }
        for path in LISTS {
            shown.lists.insert(path, get(stage, path).await?.text());
        }
        Ok(shown)
    }

    /// The lists that differ from those before a restart.
    pub fn difference(&self, other: &Self) -> Vec<&'static str> {
        self.lists
            .iter()
            .filter(|(path, text)| other.lists.get(*path) != Some(text))
            .map(|(p, _)| *p)
            .collect()
    }
}

/// The kinds of things that exist in a mode.
pub fn kinds(is_enterprise: bool) -> &'static [Kind] {
    match is_enterprise {
        true => &[Kind::Server, Kind::Group, Kind::Client, Kind::User],
        false => &[Kind::Server, Kind::Group],
    }
}

/// Checks everything that the writers own. Afterwards the model is set to what the gateway shows, so that each loss is
/// reported once.
pub async fn check(stage: &Stage, writers: &mut [Writer], report: &mut Report, when: &str) -> Result<Shown> {
    let mut shown = Shown::read(stage).await?;
    let mut left = std::mem::take(&mut shown.things);
    let tools: Value = serde_json::from_str(&shown.lists["/api/v0/tools?all=true"])?;
    for thing in writers.iter_mut().flat_map(|writer| &mut writer.things) {
        let mut seen: State = left.remove(&(thing.kind, thing.name.clone()));
        if thing.kind == Kind::User
            && let Some(seen) = &mut seen
        {
            seen["access_token"] = json!(working_token(stage, thing).await?);
        }
        report.operation("check of a thing");
        if seen != thing.state && thing.doubt.as_ref() != Some(&seen) {
            let (kind, name) = (thing.kind, &thing.name);
            let promised = short(&thing.state);
            let or = thing.doubt.as_ref().map(|doubt| format!(" or {}", short(doubt))).unwrap_or_default();
            let seen = short(&seen);
            report.violation(format!("{when}: {kind:?} {name} is {seen}, promised {promised}{or}"));
        }
        thing.settle(seen);
        check_tokens(stage, thing, report, when).await?;
        if thing.kind == Kind::Server {
            check_tools(thing, &tools, report, when);
        }
    }
    let is_ours = |(kind, name): &(Kind, String)| *kind == Kind::Server && name == ANCHOR || name == "admin";
    for (kind, name) in left.keys().filter(|key| !is_ours(key)) {
        report.violation(format!("{when}: {kind:?} {name} exists, although it was never created"));
    }
    Ok(shown)
}

/// The token of a user that works, out of those that may be valid.
async fn working_token(stage: &Stage, thing: &Thing) -> Result<Option<String>> {
    let doubt = thing.doubt.as_ref().and_then(token);
    for token in token(&thing.state).into_iter().chain(doubt) {
        if use_token(stage, Kind::User, token).await?.status == 200 {
            return Ok(Some(token.to_owned()));
        }
    }
    Ok(None)
}

async fn check_tokens(stage: &Stage, thing: &Thing, report: &mut Report, when: &str) -> Result<()> {
    if !matches!(thing.kind, Kind::Client | Kind::User) {
        return Ok(());
    }
    let (kind, name) = (thing.kind, &thing.name);
    if let Some(token) = token(&thing.state) {
        report.operation("check of a token");
        let status = use_token(stage, kind, token).await?.status;
        if status != 200 {
            report.violation(format!("{when}: the token of {kind:?} {name} gets {status}"));
        }
    }
    for token in &thing.dead_tokens {
        report.operation("check of a dead token");
        let status = use_token(stage, kind, token).await?.status;
        // Too many wrong tokens get 429.
        if !matches!(status, 401 | 429) {
            report.violation(format!("{when}: a dead token of {kind:?} {name} gets {status}"));
        }
    }
    Ok(())
}

async fn use_token(stage: &Stage, kind: Kind, token: &str) -> Result<Response> {
    let request = match kind {
        Kind::User => Request::new("GET", "/api/v0/users/whoami"),
        Kind::Server | Kind::Group | Kind::Client => {
            let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "chaos", "version": "1"}});
            Request::new("POST", "/mcp")
                .json(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
                .header("Accept", "application/json, text/event-stream")
        }
    };
    request.token(token).send(&stage.address).await
}

/// Checks that a tool is shown as enabled if both the tool and its server are.
fn check_tools(thing: &Thing, tools: &Value, report: &mut Report, when: &str) {
    let Some(state) = &thing.state else { return };
    let is_off = |tool: &str| {
        state["disabled_tools"].as_array().is_some_and(|off| off.iter().any(|name| name == tool))
    };
    for tool in (0..TOOLS).map(server::tool) {
        let name = format!("{}__{tool}", thing.name);
        let promised = state["enabled"] == json!(true) && !is_off(&tool);
        let found = tools.as_array().and_then(|all| all.iter().find(|item| item["name"] == json!(name)));
        let shown = found.map(|item| &item["enabled"]);
        if shown != Some(&json!(promised)) {
            report.violation(format!("{when}: tool {name} has enabled {shown:?}, promised {promised}"));
        }
    }
}

async fn get(stage: &Stage, path: &str) -> Result<Response> {
    let request = Request::new("GET", path);
    let request = match &stage.admin {
        Some(admin) => request.token(admin),
        None => request,
    };
    let response = request.send(&stage.address).await?;
    ensure!(response.status == 200, "GET {path}: {} {}", response.status, response.text());
    Ok(response)
}

/// A state with its long texts shortened.
fn short(state: &State) -> String {
    let Some(state) = state else { return "absent".to_owned() };
    let mut state = state.clone();
    if let Some(text) = state["description"].as_str() {
        state["description"] = json!(text.chars().take(8).collect::<String>());
    }
    state.to_string()
}
