//! `toolgate usage`: shows the description and parameters of a tool, with an example call.

use clap::Args;
use serde_json::Value;

use super::invocation::Invocation;
use super::output::{self, Table, Tone};
use super::record::text;
use super::remote::ApiRequest;
use super::schema::{self, Parameter};
use super::suggestion::{ListedNoun, explain};

/// Show what a tool does and which arguments it takes
#[derive(Args)]
#[command(after_help = "Example:
  toolgate usage github__create_issue")]
pub struct Usage {
    #[arg(help = "Full name of the tool: <server>__<tool>")]
    name: String,
}

pub async fn run(invocation: &Invocation, usage: Usage) -> anyhow::Result<()> {
    let answer = invocation.remote.ask(ApiRequest::get(&["tool"]).query("name", &usage.name)).await;
    let answer = explain(invocation, ListedNoun::Tool, &usage.name, answer).await?;
    invocation.show(&answer, |tool| page(tool, &invocation.command("invoke")))
}

/// Formats a tool; `invoke` is the command that calls one.
fn page(tool: &Value, invoke: &str) -> String {
    let name = text(tool, "name");
    let mut page = match text(tool, "title") {
        title if title.is_empty() => format!("{name}\n"),
        title => format!("{name}: {title}\n"),
    };
    if tool["enabled"] == false {
        page.push_str("This tool is disabled: agents do not see it.\n");
    }
    for hint in hints(&tool["annotations"]) {
        page.push_str(&format!("{hint}\n"));
    }
    let description = text(tool, "description");
    if !description.trim().is_empty() {
        let room = output::width().unwrap_or(usize::MAX);
        let lines: Vec<String> =
            description.trim().lines().flat_map(|line| output::wrap(line, room)).collect();
        page.push_str(&format!("\n{}\n", lines.join("\n")));
    }
    // The table has colours of its own.
    let mut page = output::printable(&page);
    let parameters = schema::parameters(&tool["input_schema"]);
    if parameters.is_empty() {
        page.push_str("\nIt takes no parameters.\n");
    } else {
        page.push_str(&format!("\nParameters:\n{}", table(&parameters)));
    }
    page.push_str(&format!("\nExample:\n  {}\n", output::printable(&example(invoke, &name, &parameters))));
    page
}

fn hints(annotations: &Value) -> Vec<&'static str> {
    let known = [
        ("readOnlyHint", true, "Read-only."),
        ("destructiveHint", true, "Can delete or overwrite data."),
        ("openWorldHint", true, "Has external access."),
    ];
    let given = |key: &str, wanted: bool| annotations[key] == wanted;
    known.iter().filter(|(key, wanted, _)| given(key, *wanted)).map(|(_, _, hint)| *hint).collect()
}

fn table(parameters: &[Parameter]) -> String {
    let mut table = Table::new(["NAME", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION"]);
    for parameter in parameters {
        let description = match parameter.choices.as_slice() {
            [] => parameter.description.replace('\n', " "),
            choices => {
                format!("{} (one of {})", parameter.description.replace('\n', " "), choices.join(", "))
            }
        };
        table.row([
            parameter.path.clone().into(),
            parameter.kind.clone().into(),
            if parameter.required { "yes".into() } else { output::Cell::new("no", Tone::Faint) },
            parameter.default.clone().unwrap_or_default().into(),
            description.trim().into(),
        ]);
    }
    indent(&table.render(output::width().map(|width| width.saturating_sub(2))))
}

fn indent(page: &str) -> String {
    page.lines().map(|line| format!("  {line}\n")).collect()
}

/// Makes a shell command that calls the tool with all required parameters.
fn example(invoke: &str, name: &str, parameters: &[Parameter]) -> String {
    let mut call = format!("{invoke} {name}");
    // The fields of lists are in the example of the list.
    let is_argument = |parameter: &&Parameter| parameter.required && !parameter.path.contains("[]");
    for parameter in parameters.iter().filter(is_argument) {
        call.push_str(&format!(" {}", quoted(&format!("{}={}", parameter.path, parameter.example))));
    }
    call
}

fn quoted(argument: &str) -> String {
    let is_plain = |next: char| next.is_ascii_alphanumeric() || "._-=/:,+@%".contains(next);
    if argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_read_as_people_say_them() {
        let tool = json!({
            "name": "s__t", "title": "A tool", "enabled": true, "description": "Does\nthings.",
            "annotations": {"readOnlyHint": true},
            "input_schema": {
                "type": "object",
                "required": ["where", "kind", "many"],
                "properties": {
                    "kind": {"enum": ["a b", "c"], "type": "string"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3},
                    "where": {"$ref": "#/$defs/place"},
                    "many": {"type": "array", "items": {"type": "string"}},
                    "loose": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "maybe"},
                },
                "$defs": {"place": {"type": "object", "required": ["city"], "properties": {
                    "city": {"type": "string", "description": "its name"}, "zip": {"type": "string"}}}},
            },
        });
        let expected = "s__t: A tool\nRead-only.\n\nDoes\nthings.\n\nParameters:\n\
            \x20 NAME        TYPE             REQUIRED  DEFAULT  DESCRIPTION\n\
            \x20 kind        string           yes                (one of a b, c)\n\
            \x20 many        array of string  yes\n\
            \x20 where.city  string           yes                its name\n\
            \x20 where.zip   string           no\n\
            \x20 limit       integer 1..9     no        3\n\
            \x20 loose       string           no                 maybe\n\
            \nExample:\n  toolgate invoke s__t 'kind=a b' 'many=[\"text\"]' where.city=text\n";
        let shown = page(&tool, "toolgate invoke");
        let order = |page: &str| page.lines().map(str::trim_end).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(order(&shown), order(expected), "{shown}");
    }

    #[test]
    fn lists_of_objects_show_their_fields_and_a_whole_example() {
        let tool = json!({"name": "s__t", "input_schema": {"type": "object", "required": ["people"], "properties": {
            "people": {"type": "array", "description": "Who comes", "items": {"$ref": "#/$defs/person"}}},
            "$defs": {"person": {"type": "object", "required": ["name", "mail"], "properties": {
                "name": {"type": "string"}, "mail": {"type": "string", "format": "email"},
                "tags": {"type": "array", "items": {"type": "string"}}}}}}});
        let shown = page(&tool, "toolgate invoke");
        for row in [
            "people         array of object  yes",
            "people[].mail  string (email)   yes",
            "people[].name  string",
        ] {
            assert!(shown.contains(row), "{row}: {shown}");
        }
        let example = "toolgate invoke s__t 'people=[{\"mail\":\"me@example.com\",\"name\":\"text\"}]'";
        assert!(shown.contains(example), "{shown}");
    }

    #[test]
    fn a_schema_that_refers_to_itself_comes_to_an_end() {
        let schema = json!({"properties": {"tree": {"$ref": "#/$defs/n"}},
            "$defs": {"n": {"properties": {"child": {"$ref": "#/$defs/n"}, "loop": {"$ref": "#/$defs/l"}}},
                "l": {"$ref": "#/$defs/l"}}});
        assert!(!schema::parameters(&schema).is_empty());
        assert!(schema::parameters(&json!(true)).is_empty());
    }
}
