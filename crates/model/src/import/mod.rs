//! Reads configuration files, ours and those of other programs, as plain data: text in, servers to register out, with a
//! reason for each server that cannot be registered. Nothing is looked up here; the caller supplies the variables. The
//! description of an entry names environment variables and headers but contains no values.

mod document;
mod foreign;
mod plan;
mod variables;
mod yaml;

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};
use url::Url;

use super::{Group, Registration};

pub use document::{read, without_comments};
pub use plan::{Action, Plan};
pub use variables::{escape, expand};

/// Why a text could not be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// The servers and groups of a text.
#[derive(Debug, Default)]
pub struct Import {
    /// In the order of the text if it is a list, else by name.
    pub servers: Vec<ImportEntry>,
    pub groups: Vec<ImportedGroup>,
}

/// One server of a text.
#[derive(Debug)]
pub struct ImportEntry {
    /// The name under which it would be registered.
    pub name: String,
    /// The name in the text, if it is not a valid server name.
    pub renamed_from: Option<String>,
    /// `streamable_http`, `sse`, `stdio`, or empty if the text does not say.
    pub transport: String,
    /// The address or command in one line, without credentials and arguments.
    pub summary: String,
    pub env_keys: Vec<String>,
    /// The names of the headers, without `Authorization`, which would say nothing more than that it is set.
    pub header_keys: Vec<String>,
    /// Settings of the other program that have no meaning here.
    pub ignored: Vec<String>,
    pub outcome: EntryOutcome<CheckedInput>,
}

/// One tool group of a text; only our own files have them.
#[derive(Debug)]
pub struct ImportedGroup {
    pub name: String,
    pub outcome: EntryOutcome<Map<String, Value>>,
}

#[derive(Debug)]
pub enum EntryOutcome<T> {
    /// Checked, and ready to be sent.
    Ready(T),
    /// Skipped, with a sentence that says why and what to do about it.
    Skip(String),
}

/// A registration input that [`Registration::parse`] has accepted. Fields that the text omits stay omitted, so that
/// replacing a server does not reset its flags.
#[derive(Clone, PartialEq)]
pub struct CheckedInput(Map<String, Value>);

impl CheckedInput {
    /// Whether registering this input would change the registered server `current`, which is given as the gateway
    /// exports it. Flags that this input omits stay as they are.
    pub fn differs_from(&self, current: &Map<String, Value>) -> bool {
        let (Ok(mut new), Ok(old)) =
            (Registration::parse(self.0.clone()), Registration::parse(current.clone()))
        else {
            return true;
        };
        let names = |key: &str| self.0.get(key).is_some_and(|value| !value.is_null());
        if !names("enabled") {
            new.flags.enabled = old.flags.enabled;
        }
        if !names("disabled_tools") {
            new.flags.disabled_tools = old.flags.disabled_tools.clone();
        }
        if !names("disabled_prompts") {
            new.flags.disabled_prompts = old.flags.disabled_prompts.clone();
        }
        new != old
    }

    /// The input with every secret in clear text.
    pub fn into_json(self) -> Map<String, Value> {
        self.0
    }
}

impl fmt::Debug for CheckedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckedInput").field(&self.0.get("name")).finish()
    }
}

/// Reads the servers and groups of a text in JSON (with comments) or YAML. `${NAME}` in a value is replaced by the
/// value that `variable` returns for that name; an entry with an unknown variable is skipped.
pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Import, Unreadable> {
    let mut reader = DocumentReader { variable, import: Import::default(), names: BTreeSet::new() };
    match read(text)? {
        Value::Array(items) => items.into_iter().for_each(|item| reader.take_own(item)),
        Value::Object(object) => reader.take_object(object)?,
        _ => return Err(unknown_form()),
    }
    Ok(reader.import)
}

fn unknown_form() -> Unreadable {
    Unreadable(
        "the text contains no servers: expected \"mcpServers\" or \"servers\" as in the files of MCP clients, or a \
         server with \"name\" and \"transport\""
            .into(),
    )
}

struct DocumentReader<V> {
    variable: V,
    import: Import,
    names: BTreeSet<String>,
}

impl<V: Fn(&str) -> Option<String>> DocumentReader<V> {
    fn take_object(&mut self, mut object: Map<String, Value>) -> Result<(), Unreadable> {
        if is_own(&object) {
            self.take_own(Value::Object(object));
            return Ok(());
        }
        let groups = object.remove("groups");
        let settings = object.remove("mcp").and_then(|mcp| match mcp {
            Value::Object(mut mcp) => mcp.remove("servers").or_else(|| mcp.remove("mcpServers")),
            _ => None,
        });
        let named = ["mcpServers", "servers", "mcp.servers"].iter().find_map(|key| object.remove(*key));
        match named.or(settings) {
            Some(Value::Object(servers)) => self.take_foreign(servers),
            Some(Value::Array(servers)) => servers.into_iter().for_each(|item| self.take_own(item)),
            Some(_) => return Err(unknown_form()),
            // The contents of `mcpServers` alone, as people copy them from a manual.
            None if !object.is_empty() && object.values().all(foreign::looks_like_server) => {
                self.take_foreign(object);
            }
            None => return Err(unknown_form()),
        }
        if let Some(Value::Array(groups)) = groups {
            groups.into_iter().for_each(|group| self.take_own(group));
        }
        Ok(())
    }

    fn take_foreign(&mut self, servers: Map<String, Value>) {
        for (name, value) in servers {
            let own = foreign::to_own(&name, value);
            let renamed_from = (own.name != name).then_some(name);
            self.take_server(own.input, own.name, renamed_from, own.ignored, own.refusal);
        }
    }

    /// Reads one of our own objects; those of MCPJungle have the same form.
    fn take_own(&mut self, item: Value) {
        let Value::Object(object) = item else {
            let refusal = Some("it is not an object with \"name\" and \"transport\"".to_owned());
            self.take_server(Map::new(), String::new(), None, Vec::new(), refusal);
            return;
        };
        let name = object.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if is_group(&object) {
            let group = self.expanded(object).and_then(|object| {
                Group::parse(object.clone()).map(|_| object).map_err(|error| error.to_string())
            });
            self.import.groups.push(ImportedGroup { name, outcome: group.into() });
        } else {
            self.take_server(object, name, None, Vec::new(), None);
        }
    }

    fn take_server(
        &mut self,
        input: Map<String, Value>,
        name: String,
        renamed_from: Option<String>,
        ignored: Vec<String>,
        refusal: Option<String>,
    ) {
        let transport = input.get("transport").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (summary, env_keys) = (summarize(&input), keys(&input, "env"));
        let mut header_keys = keys(&input, "headers");
        header_keys.retain(|key| !key.eq_ignore_ascii_case("authorization"));
        let outcome = match refusal {
            Some(refusal) => Err(refusal),
            None if self.names.contains(&name) => Err(format!("the text contains another server {name:?}")),
            None => self.expanded(input).and_then(check),
        };
        self.names.insert(name.clone());
        let outcome = outcome.into();
        let entry =
            ImportEntry { name, renamed_from, transport, summary, env_keys, header_keys, ignored, outcome };
        self.import.servers.push(entry);
    }

    fn expanded(&self, object: Map<String, Value>) -> Result<Map<String, Value>, String> {
        match expand(Value::Object(object), &self.variable)? {
            Value::Object(object) => Ok(object),
            _ => Err("it is not an object".into()),
        }
    }
}

fn check(input: Map<String, Value>) -> Result<CheckedInput, String> {
    match Registration::parse(input.clone()) {
        Ok(_) => Ok(CheckedInput(input)),
        Err(error) => Err(error.to_string()),
    }
}

impl<T> From<Result<T, String>> for EntryOutcome<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(ready) => EntryOutcome::Ready(ready),
            Err(reason) => EntryOutcome::Skip(reason),
        }
    }
}

fn is_own(object: &Map<String, Value>) -> bool {
    is_group(object) || (object.get("name").is_some_and(Value::is_string) && object.contains_key("transport"))
}

fn is_group(object: &Map<String, Value>) -> bool {
    ["included_tools", "included_servers", "excluded_tools"].iter().any(|key| object.contains_key(*key))
}

/// The address without user, password, query and fragment, or the command with the number of its arguments.
fn summarize(input: &Map<String, Value>) -> String {
    let text = |key: &str| input.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(url) = text("url") {
        let Ok(mut url) = Url::parse(url) else { return String::new() };
        let _ = (url.set_username(""), url.set_password(None));
        url.set_query(None);
        url.set_fragment(None);
        return url.into();
    }
    let Some(command) = text("command") else { return String::new() };
    match input.get("args").and_then(Value::as_array).map_or(0, Vec::len) {
        0 => command.to_owned(),
        1 => format!("{command} with 1 argument"),
        count => format!("{command} with {count} arguments"),
    }
}

fn keys(input: &Map<String, Value>, field: &str) -> Vec<String> {
    let entries = input.get(field).and_then(Value::as_object);
    entries.map(|entries| entries.keys().cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
