//! Reads JSON of any depth as a value. serde_json reads values only to a fixed depth, so that the input does not decide
//! how much stack is used; what is deeper is replaced by null here, and the rest is kept.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

/// How many levels are taken apart one by one; what is too deep below them is null.
const LEVELS: usize = 16;

/// Parses JSON as a value. What is nested more than about a hundred levels deep may be null.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    read(text, LEVELS)
}

fn read(text: &str, levels: usize) -> Result<Value, serde_json::Error> {
    let error = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    match text.trim_ascii_start().bytes().next() {
        Some(b'{' | b'[') if levels == 0 => Ok(Value::Null),
        Some(b'{') => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            let members = members.into_iter().map(|(key, value)| Ok((key, read(value.get(), levels - 1)?)));
            Ok(Value::Object(members.collect::<Result<_, serde_json::Error>>()?))
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            let items = items.into_iter().map(|item| read(item.get(), levels - 1));
            Ok(Value::Array(items.collect::<Result<_, _>>()?))
        }
        Some(_) | None => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_too_deep_is_null_and_the_rest_is_read() {
        let nested = |depth: usize| format!("{}1{}", r#"{"a":["#.repeat(depth), "]}".repeat(depth));
        let text = format!(r#" {{"roots":{{}},"deep":{{"x":{},"y":[2]}}}}"#, nested(100_000));
        let value = parse(&text).unwrap();
        assert_eq!((&value["roots"], &value["deep"]["y"]), (&json!({}), &json!([2])));
        assert!(value["deep"]["x"]["a"].is_array());
        assert_eq!(parse(&nested(20)).unwrap(), serde_json::from_str::<Value>(&nested(20)).unwrap());
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "[1,]", "{\"a\":tru}", "[1] 2"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
