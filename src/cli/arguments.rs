//! Arguments of a tool call on the command line: a JSON object, and `key=value` pairs whose types come from the tool's
//! schema. Dots in a key address nested objects. Values given as JSON keep their digits.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::error::UsageError;
use super::schema::{at, types};

type ArgumentMap = BTreeMap<String, ArgumentValue>;

/// The arguments of a call, by name.
#[derive(Debug, Default)]
pub struct ToolArguments(ArgumentMap);

#[derive(Debug)]
enum ArgumentValue {
    Written(Box<RawValue>),
    Object(ArgumentMap),
    List(Vec<Box<RawValue>>),
}

impl ToolArguments {
    /// Parses the text of `--input`.
    pub fn parse(text: &str) -> Result<Self, UsageError> {
        let members = members_of(text);
        members.map(Self).map_err(|error| UsageError(format!("the input is not a JSON object: {error}")))
    }

    /// Adds one `key=value`, which replaces an earlier value.
    pub fn add(&mut self, pair: &str, schema: &Value) -> Result<(), UsageError> {
        let split = pair.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) =
            split.ok_or_else(|| UsageError(format!("{pair:?} is not an argument; write key=value")))?;
        // The name of an argument may itself contain a dot.
        let whole = at(schema, &[key]).is_some();
        let path: Vec<&str> = if whole { vec![key] } else { key.split('.').collect() };
        let property = at(schema, &path).unwrap_or(&Value::Null);
        let wanted = types(schema, property);
        let (members, last) = descend(&mut self.0, &path)
            .ok_or_else(|| UsageError(format!("{key}: a part of the path is not an object")))?;
        if wanted == ["array"] && !value.trim_start().starts_with('[') {
            let item = typed(key, value, &types(schema, &property["items"]))?;
            match members.get_mut(last) {
                Some(ArgumentValue::List(list)) => list.push(item),
                Some(ArgumentValue::Written(_) | ArgumentValue::Object(_)) | None => {
                    members.insert(last.to_owned(), ArgumentValue::List(vec![item]));
                }
            }
        } else {
            members.insert(last.to_owned(), ArgumentValue::Written(typed(key, value, &wanted)?));
        }
        Ok(())
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns the arguments as a JSON object that begins with the given members.
    pub fn to_json(&self, before: &[(&str, String)]) -> String {
        let before = before.iter().map(|(name, value)| format!("{}:{value}", Value::from(*name)));
        format!("{{{}}}", before.chain(self.0.iter().map(member)).collect::<Vec<_>>().join(","))
    }
}

/// Finds or creates the object that holds the last part of a path. Returns `None` if a part before it is not an object.
fn descend<'a, 'b>(members: &'a mut ArgumentMap, path: &[&'b str]) -> Option<(&'a mut ArgumentMap, &'b str)> {
    let (last, way) = path.split_last()?;
    let mut members = members;
    for name in way {
        let next =
            members.entry((*name).to_owned()).or_insert_with(|| ArgumentValue::Object(ArgumentMap::new()));
        if let ArgumentValue::Written(written) = next {
            *next = ArgumentValue::Object(members_of(written.get()).ok()?);
        }
        match next {
            ArgumentValue::Object(deeper) => members = deeper,
            ArgumentValue::Written(_) | ArgumentValue::List(_) => return None,
        }
    }
    Some((members, last))
}

fn members_of(object: &str) -> serde_json::Result<ArgumentMap> {
    let values: BTreeMap<String, Box<RawValue>> = serde_json::from_str(object)?;
    Ok(values.into_iter().map(|(name, value)| (name, ArgumentValue::Written(value))).collect())
}

fn member((name, value): (&String, &ArgumentValue)) -> String {
    let value = match value {
        ArgumentValue::Written(value) => value.get().to_owned(),
        ArgumentValue::Object(values) => {
            format!("{{{}}}", values.iter().map(member).collect::<Vec<_>>().join(","))
        }
        ArgumentValue::List(items) => {
            format!("[{}]", items.iter().map(|item| item.get()).collect::<Vec<_>>().join(","))
        }
    };
    format!("{}:{value}", Value::from(name.as_str()))
}

/// Converts a value to JSON of one of the wanted types. If the schema names no type, text that is valid JSON is JSON.
fn typed(key: &str, text: &str, wanted: &[&str]) -> Result<Box<RawValue>, UsageError> {
    let json = RawValue::from_string(text.trim().to_owned()).ok();
    let is = |json: &RawValue| match json.get().as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        Some(_) | None => "number",
    };
    let fits = |json: &RawValue| {
        let found = is(json);
        let whole = || !json.get().contains(['.', 'e', 'E']);
        wanted.iter().any(|name| *name == found || (*name == "integer" && found == "number" && whole()))
    };
    let plain = || RawValue::from_string(Value::from(text).to_string()).expect("a string is JSON");
    match json {
        // A string stays a string, even if it is also valid JSON.
        _ if wanted == ["string"] => Ok(plain()),
        Some(json) if wanted.is_empty() || (fits(&json) && is(&json) != "string") => Ok(json),
        _ if wanted.is_empty() || wanted.contains(&"string") => Ok(plain()),
        _ => Err(UsageError(format!("{key} must be of type {}, which {text:?} is not", wanted.join(" or ")))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"properties": {
            "text": {"type": "string"}, "count": {"type": "integer"}, "ratio": {"type": "number"},
            "on": {"type": "boolean"}, "list": {"type": "array", "items": {"type": "integer"}},
            "tags": {"type": "array", "items": {"type": "string"}}, "map": {"type": "object"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "deep": {"$ref": "#/$defs/deep"}, "a.b": {"type": "string"},
        }, "$defs": {"deep": {"properties": {"x": {"type": "string"}, "y": {"type": "integer"}}}}})
    }

    fn built(input: &str, pairs: &[&str]) -> Result<String, UsageError> {
        let mut arguments = ToolArguments::parse(input)?;
        for pair in pairs {
            arguments.add(pair, &schema())?;
        }
        Ok(arguments.to_json(&[]))
    }

    #[test]
    fn values_get_the_types_of_the_schema() {
        let pairs = [
            "text=5",
            "count=12345678901234567890123",
            "ratio=1.50",
            "on=true",
            "list=1",
            "list=2",
            "tags=[\"a\"]",
            "map={\"k\":1}",
            "either=7",
            "deep.x=1",
            "deep.y=2",
            "a.b=c",
            "free=[1]",
            "word=hi",
        ];
        let expected = r#"{"a.b":"c","count":12345678901234567890123,"deep":{"x":"1","y":2},"either":7,"free":[1],"list":[1,2],"map":{"k":1},"on":true,"ratio":1.50,"tags":["a"],"text":"5","word":"hi"}"#;
        assert_eq!(built("{}", &pairs).unwrap(), expected);
        assert_eq!(
            built("{}", &["either=seven", "text=a=b", "tags=x"]).unwrap(),
            r#"{"either":"seven","tags":["x"],"text":"a=b"}"#
        );
    }

    #[test]
    fn pairs_win_over_the_input_and_reach_into_it() {
        let input = r#"{"count": 1.0, "deep": {"x": "old", "z": 1e5}, "text": "t"}"#;
        let expected = r#"{"count":2,"deep":{"x":"new","z":1e5},"text":"t"}"#;
        assert_eq!(built(input, &["deep.x=new", "count=2"]).unwrap(), expected);
    }

    #[test]
    fn a_wrong_value_names_its_argument() {
        for pair in ["count=many", "count=1.5", "on=yes", "list=x", "map=1", "novalue", "=x", "text.x=1"] {
            let wrong = built(r#"{"text": "t"}"#, &[pair]);
            assert!(wrong.is_err(), "{pair}: {wrong:?}");
        }
        assert!(ToolArguments::parse("[1]").is_err() && ToolArguments::parse("{").is_err());
    }
}
