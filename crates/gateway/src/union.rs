//! The capabilities of an endpoint with several servers: those that the gateway itself serves, the extensions and
//! experimental capabilities of all servers, and tasks as clients of each era can use them.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use serde_json::value::RawValue;

use super::tasks::EXTENSION;
use model::deep_json;
use wire::{Era, Patch, authored, walk};

/// What the gateway serves for servers of any capabilities.
const SERVED: [(&str, &[u8]); 5] = [
    ("tools", br#"{"listChanged":true}"#),
    ("prompts", br#"{"listChanged":true}"#),
    ("resources", br#"{"subscribe":true,"listChanged":true}"#),
    ("logging", b"{}"),
    ("completions", b"{}"),
];
/// Capabilities that are objects of settings by name, which anybody may define.
const OPEN: [&str; 2] = ["experimental", "extensions"];

/// The capability of legacy servers that have tasks.
const TASKS: &str = "tasks";

type Members<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// The union of what servers declare, for clients of an era. Where two of them declare the same with different settings,
/// these are left out.
pub fn united(declared: &[(Era, &RawValue)], era: Era) -> Vec<u8> {
    let mut united: Vec<_> = OPEN.iter().map(|key| (*key, settings(declared, key, era))).collect();
    united.push((TASKS, tasks(declared).filter(|_| era == Era::Legacy)));
    let mut members = SERVED.to_vec();
    members.extend(united.iter().filter_map(|(key, settings)| Some((*key, settings.as_deref()?))));
    authored::object(&members)
}

/// The capabilities of a server without its tasks, for clients of the other era.
pub fn without_tasks(declared: &[u8]) -> Vec<u8> {
    let whole = 0..declared.len();
    let mut patch = Patch::new(declared);
    if let Some(extensions) = walk::member(declared, &whole, "extensions") {
        patch.edit_members(&extensions, |key| key == EXTENSION, &[]);
    }
    patch.edit_members(&whole, |key| key == TASKS, &[]);
    patch.apply().into()
}

/// The tasks of all legacy servers together; `None` if none has any.
fn tasks(declared: &[(Era, &RawValue)]) -> Option<Vec<u8>> {
    let legacy = declared.iter().filter(|(era, _)| *era == Era::Legacy);
    let parts = legacy.filter_map(|(_, declared)| {
        let tasks = members(declared).remove(TASKS)?;
        deep_json::parse(tasks.get()).ok().filter(Value::is_object)
    });
    let tasks = parts.reduce(|mut all, part| {
        unite(&mut all, part);
        all
    });
    tasks.map(|tasks| tasks.to_string().into_bytes())
}

/// Adds the members of one object to another, in nested objects too.
fn unite(all: &mut Value, part: Value) {
    if let (Value::Object(all), Value::Object(part)) = (all, part) {
        for (key, value) in part {
            match all.get_mut(&key) {
                Some(known) => unite(known, value),
                None => drop(all.insert(key, value)),
            }
        }
    }
}

/// The members of one such capability that clients of an era can use; `None` if there are none.
fn settings(declared: &[(Era, &RawValue)], key: &str, era: Era) -> Option<Vec<u8>> {
    let parts = declared.iter().filter_map(|(of, declared)| Some((*of, members(declared).remove(key)?)));
    let objects: Vec<_> = parts.filter(|(_, part)| part.get().starts_with('{')).collect();
    let all = objects.iter().flat_map(|(of, part)| members(part).into_iter().map(|member| (*of, member)));
    let mut union: BTreeMap<Cow<'_, str>, &[u8]> = BTreeMap::new();
    for (of, (name, settings)) in all {
        if name == EXTENSION && (of, era) != (Era::Modern, Era::Modern) {
            continue;
        }
        let settings = settings.get().as_bytes();
        union
            .entry(name)
            .and_modify(|other| {
                if !same(other, settings) {
                    *other = b"{}"
                }
            })
            .or_insert(settings);
    }
    let members: Vec<_> = union.iter().map(|(name, settings)| (&**name, *settings)).collect();
    (!members.is_empty()).then(|| authored::object(&members))
}

fn members(object: &RawValue) -> Members<'_> {
    serde_json::from_str(object.get()).unwrap_or_default()
}

fn same(one: &[u8], other: &[u8]) -> bool {
    let value = |json: &[u8]| deep_json::parse(std::str::from_utf8(json).ok()?).ok();
    one == other || value(one).is_some_and(|one| value(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_of_all_servers_are_united() {
        let declared = [
            r#"{"tools":{},"extensions":{"a/x":{"n":1.0,"m":[ ]},"a/y":{"v":1}},"tasks":{}}"#,
            r#"{"extensions":{"a/x":{"m":[],"n":1.0},"a/y":{"v":2},"b/z":{"k":12345678901234567890123}}}"#,
            r#"{"extensions":{"a/y":{"v":1}},"experimental":{"e":true}}"#,
            r#"{"extensions":null,"experimental":[]}"#,
        ]
        .map(|text| RawValue::from_string(text.to_owned()).unwrap());
        let declared = declared.each_ref().map(|declared| (Era::Modern, &**declared));
        let united = String::from_utf8(united(&declared, Era::Modern)).unwrap();
        assert!(united.starts_with(r#"{"tools":{"listChanged":true},"#), "{united}");
        let extensions =
            r#""extensions":{"a/x":{"n":1.0,"m":[ ]},"a/y":{},"b/z":{"k":12345678901234567890123}}"#;
        assert!(
            united.ends_with(&format!(r#""completions":{{}},"experimental":{{"e":true}},{extensions}}}"#)),
            "{united}"
        );
    }

    #[test]
    fn without_any_there_are_only_those_of_the_gateway() {
        let nothing = String::from_utf8(united(&[], Era::Legacy)).unwrap();
        assert!(nothing.ends_with(r#""logging":{},"completions":{}}"#));
    }

    #[test]
    fn tasks_are_declared_to_clients_of_the_era_that_has_them() {
        let declared = [
            (
                Era::Legacy,
                r#"{"tasks":{"list":{},"requests":{"tools":{"call":{}}}},"extensions":{"a/x":{}}}"#,
            ),
            (Era::Legacy, r#"{"tasks":{"cancel":{},"requests":{"tools":{"other":{}}}}}"#),
            (Era::Legacy, r#"{"tasks":true,"extensions":{"io.modelcontextprotocol/tasks":{"of":"nobody"}}}"#),
            (
                Era::Modern,
                r#"{"tasks":{"vendor":{}},"extensions":{"io.modelcontextprotocol/tasks":{"k":1}}}"#,
            ),
        ];
        let declared = declared.map(|(era, text)| (era, RawValue::from_string(text.to_owned()).unwrap()));
        let declared = declared.each_ref().map(|(era, declared)| (*era, &**declared));
        let united = |era| serde_json::from_slice::<Value>(&united(&declared, era)).unwrap();
        let (legacy, modern) = (united(Era::Legacy), united(Era::Modern));
        let tasks = r#"{"cancel":{},"list":{},"requests":{"tools":{"call":{},"other":{}}}}"#;
        assert_eq!(legacy["tasks"], serde_json::from_str::<Value>(tasks).unwrap());
        assert_eq!(legacy["extensions"].to_string(), r#"{"a/x":{}}"#);
        assert_eq!(modern.get("tasks"), None);
        let extensions = r#"{"a/x":{},"io.modelcontextprotocol/tasks":{"k":1}}"#;
        assert_eq!(modern["extensions"].to_string(), extensions);
        let stripped = without_tasks(declared[3].1.get().as_bytes());
        assert_eq!(stripped, br#"{"extensions":{}}"#);
    }
}
