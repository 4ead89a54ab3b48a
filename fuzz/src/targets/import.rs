//! Reads any text as a configuration file, ours or another program's. Promises: an entry that is reported as ready can
//! be registered, importing its export changes nothing, JSON read as YAML has the same value, and escaped text reads
//! back.

use model::import::{self, EntryOutcome};
use model::{Group, Registration};
use serde_json::Value;

pub const DICTIONARY: &[&str] = &[
    "{\"mcpServers\":{",
    "\"servers\":{",
    "\"mcp\":{\"servers\":",
    "\"command\":\"npx\"",
    "\"args\":[\"-y\"]",
    "\"env\":{\"A\":\"${A}\"}",
    "\"url\":\"http://h/sse\"",
    "\"serverUrl\":",
    "\"httpUrl\":",
    "\"type\":\"http\"",
    "\"transport\":\"stdio\"",
    "\"name\":\"a\"",
    "\"headers\":{\"X\":1}",
    "\"auth\":{\"CLIENT_ID\":\"c\"}",
    "\"disabled\":true",
    "\"included_tools\":[]",
    "${",
    "$${",
    "${env:A}",
    "${A:-d}",
    "${input:x}",
    "//",
    "/*",
    "*/",
    ",}",
    ",]",
    "mcpServers:\n",
    "  command: npx\n",
    "- ",
    "&a ",
    "*a",
    "<<: *a\n",
    "? ",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "!!str ",
    "%YAML 1.2\n",
    "0x1F",
    "-0o7",
    ".inf",
    "~",
    "\t",
    "\u{feff}",
    "\"\\x41\"",
    "'",
    "''",
    "@",
    "`",
];

pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let variable = |name: &str| (name.len() < 3).then(|| format!("<{name}>"));
    if let Ok(import) = import::parse(&text, variable) {
        for entry in import.servers {
            match entry.outcome {
                EntryOutcome::Ready(ready) => {
                    let input = ready.clone().into_json();
                    let registration = Registration::parse(input).expect("what is ready can be registered");
                    assert_eq!(registration.config.name.as_str(), entry.name);
                    assert!(!ready.differs_from(&registration.to_json()), "an export is no change");
                }
                EntryOutcome::Skip(reason) => assert!(!reason.is_empty()),
            }
        }
        for group in import.groups {
            if let EntryOutcome::Ready(group) = group.outcome {
                assert!(Group::parse(group).is_ok());
            }
        }
    }
    if let Ok(value) = import::read(&text)
        && let Ok(json) = serde_json::to_string(&value)
        && !json.contains("<<")
    {
        same_as_yaml(&value, &json);
    }
    let escaped = Value::from(import::escape(&text));
    assert_eq!(import::expand(escaped, &variable), Ok(Value::from(text.as_ref())));
}

/// YAML has its own limits, such as the length of keys, but must not read a different value.
fn same_as_yaml(value: &Value, json: &str) {
    if let Ok(other) = import::read(&format!("--- {json}\n")) {
        assert_eq!(&other, value, "read as YAML");
    }
}
