//! The capabilities of an endpoint with several servers: those that the gateway itself serves, and the extensions and
//! experimental capabilities of all servers.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;

use model::deep_json;
use wire::authored;

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

type Members<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

/// The union of what servers declare. Where two of them declare the same with different settings, these are left out.
pub fn united(declared: &[&RawValue]) -> Vec<u8> {
    let united: Vec<_> = OPEN.iter().map(|key| (*key, settings(declared, key))).collect();
    let mut members = SERVED.to_vec();
    members.extend(united.iter().filter_map(|(key, settings)| Some((*key, settings.as_deref()?))));
    authored::object(&members)
}

/// The members of one such capability; `None` if no server declares it.
fn settings(declared: &[&RawValue], key: &str) -> Option<Vec<u8>> {
    let parts: Vec<_> = declared.iter().filter_map(|declared| members(declared).remove(key)).collect();
    let mut union: BTreeMap<Cow<'_, str>, &[u8]> = BTreeMap::new();
    let objects: Vec<_> = parts.iter().filter(|part| part.get().starts_with('{')).collect();
    for (name, settings) in objects.iter().flat_map(|part| members(part)) {
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
    (!objects.is_empty()).then(|| authored::object(&members))
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
        let united = String::from_utf8(united(&declared.each_ref().map(|declared| &**declared))).unwrap();
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
        assert!(String::from_utf8(united(&[])).unwrap().ends_with(r#""logging":{},"completions":{}}"#));
    }
}
