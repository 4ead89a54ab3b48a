//! Reads YAML as a JSON value: one document, plain scalars by the core schema of YAML 1.2, aliases and merge keys
//! resolved. Limits keep a small text from becoming a large value.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Number, Value};

use super::Unreadable;

const DEEPEST: usize = 64;
/// The largest number of values, including those that aliases repeat.
const MOST_VALUES: usize = 100_000;
/// The largest number of bytes of text that anchors and aliases copy.
const MOST_COPIED: usize = 4 * 1024 * 1024;

pub fn read(text: &str) -> Result<Value, Unreadable> {
    let mut tree = Tree::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| Unreadable(format!("the text is not YAML: {error}")))?;
        tree.take(event).map_err(|problem| {
            Unreadable(format!("the text is not usable YAML: line {}: {problem}", span.start.line()))
        })?;
    }
    tree.root.ok_or_else(|| Unreadable("the text is empty".into()))
}

/// A collection under construction, with its anchor (0: none).
enum OpenCollection {
    Sequence(usize, Vec<Value>),
    Mapping { anchor: usize, entries: Map<String, Value>, merged: Vec<Value>, key: Option<String> },
}

#[derive(Default)]
struct Tree {
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, Value>,
    values: usize,
    copied: usize,
    root: Option<Value>,
}

impl Tree {
    fn take(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => Err("a second document begins".into()),
            Event::DocumentStart(_) => Ok(()),
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).ok_or("an alias refers to a value that contains it")?;
                let size = size(value);
                self.count_copy(size)?;
                let value = self.anchors.get(&anchor).cloned().unwrap_or_default();
                self.put(0, value)
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1)?;
                self.put(anchor, scalar(&text, style, tag.as_deref()))
            }
            Event::SequenceStart(anchor, _) => self.begin(OpenCollection::Sequence(anchor, Vec::new())),
            Event::MappingStart(anchor, _) => {
                let (entries, merged) = (Map::new(), Vec::new());
                self.begin(OpenCollection::Mapping { anchor, entries, merged, key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
        }
    }

    fn begin(&mut self, open: OpenCollection) -> Result<(), String> {
        if self.open.len() >= DEEPEST {
            return Err(format!("it is nested more than {DEEPEST} levels deep"));
        }
        if let Some(OpenCollection::Mapping { key: None, .. }) = self.open.last() {
            return Err("a key must be plain text".into());
        }
        self.open.push(open);
        self.count(1)
    }

    fn end(&mut self) -> Result<(), String> {
        match self.open.pop() {
            None => Ok(()),
            Some(OpenCollection::Sequence(anchor, items)) => self.put(anchor, Value::Array(items)),
            Some(OpenCollection::Mapping { anchor, mut entries, merged, .. }) => {
                for base in merged {
                    let Value::Object(base) = base else { return Err("`<<` must name a mapping".into()) };
                    for (key, value) in base {
                        entries.entry(key).or_insert(value);
                    }
                }
                self.put(anchor, Value::Object(entries))
            }
        }
    }

    fn put(&mut self, anchor: usize, value: Value) -> Result<(), String> {
        if anchor > 0 {
            self.count_copy(size(&value))?;
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(OpenCollection::Sequence(_, items)) => items.push(value),
            Some(OpenCollection::Mapping { key: key @ None, .. }) => *key = Some(key_of(value)?),
            Some(OpenCollection::Mapping { key: key @ Some(_), entries, merged, .. }) => {
                let key = key.take().unwrap_or_default();
                match value {
                    Value::Array(bases) if key == "<<" => merged.extend(bases),
                    base if key == "<<" => merged.push(base),
                    value => {
                        if entries.insert(key.clone(), value).is_some() {
                            return Err(format!("the key {key:?} is given twice"));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn count(&mut self, more: usize) -> Result<(), String> {
        self.values += more;
        if self.values > MOST_VALUES { Err("it has too many values".into()) } else { Ok(()) }
    }

    fn count_copy(&mut self, size: Size) -> Result<(), String> {
        self.copied += size.text;
        if self.copied > MOST_COPIED {
            return Err("the text that its aliases repeat is too large".into());
        }
        self.count(size.values)
    }
}

/// The cost of a copy of a value.
#[derive(Clone, Copy)]
struct Size {
    values: usize,
    text: usize,
}

fn size(value: &Value) -> Size {
    let sum = |own: Size, more: Size| Size { values: own.values + more.values, text: own.text + more.text };
    let one = Size { values: 1, text: 0 };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => one,
        Value::String(text) => Size { text: text.len(), ..one },
        Value::Array(items) => items.iter().map(size).fold(one, sum),
        Value::Object(entries) => {
            let keys = Size { text: entries.keys().map(String::len).sum(), ..one };
            entries.values().map(size).fold(keys, sum)
        }
    }
}

fn key_of(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok("null".into()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Array(_) | Value::Object(_) => Err("a key must be plain text".into()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let says_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    if style != ScalarStyle::Plain || says_text {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).map_or_else(|| Value::from(text), Value::Number),
    }
}

/// Parses a number. Infinity and the like have no JSON number; they stay text.
fn number(text: &str) -> Option<Number> {
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        // These have no sign, neither before nor after the prefix.
        if let Some(digits) = text.strip_prefix(prefix) {
            let number = u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'));
            return number.map(Number::from);
        }
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let plain = text.strip_prefix('+').unwrap_or(text);
    let whole = plain.parse::<i64>().map(Number::from).or_else(|_| plain.parse::<u64>().map(Number::from));
    whole.ok().or_else(|| plain.parse::<f64>().ok().and_then(Number::from_f64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn scalars_have_the_types_of_the_core_schema() {
        let text = "a: yes\nb: true\nc: 10\nd: '10'\ne: ~\nf: 1.5\ng: 0x1F\nh: .inf\ni: 1.2.3\nj: !!str 5\nk: -3\nl: -0x1F\nm: 0x-1\nn: +-3\no: +3\n";
        let expected = json!({"a": "yes", "b": true, "c": 10, "d": "10", "e": null, "f": 1.5, "g": 31,
            "h": ".inf", "i": "1.2.3", "j": "5", "k": -3, "l": "-0x1F", "m": "0x-1", "n": "+-3", "o": 3});
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn blocks_aliases_and_merges_are_resolved() {
        let text = "base: &base\n  args: [-y, \"x y\"]\n  env: {A: '1'}\nserver:\n  <<: *base\n  env: {B: '2'}\ntext: |\n  one\n  two\n";
        let expected = json!({"base": {"args": ["-y", "x y"], "env": {"A": "1"}},
            "server": {"args": ["-y", "x y"], "env": {"B": "2"}}, "text": "one\ntwo\n"});
        assert_eq!(read(text).unwrap(), expected);
    }

    #[test]
    fn a_small_text_does_not_become_a_large_value() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..9 {
            let items = format!("*a{}, ", level - 1).repeat(10);
            bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(read(&bomb).unwrap_err().to_string().contains("too many values"));
        let long_text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(90_000));
        assert!(read(&long_text).unwrap_err().to_string().contains("too large"));
        let long_key = format!("a: &a {{{}: 1}}\nb: [{}]\n", "x".repeat(1000), "*a, ".repeat(40_000));
        assert!(read(&long_key).unwrap_err().to_string().contains("too large"));
        assert!(read(&"[".repeat(5000)).is_err());
        assert!(read(&"- ".repeat(5000)).unwrap_err().to_string().contains("levels deep"));
    }

    #[test]
    fn mistakes_name_their_line() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert!(error("a: 1\nb: 2\na: 3\n").contains("line 3"));
        assert!(error("a: [1\nb: 2\n").contains("not YAML"));
        assert!(error("a: 1\n---\nb: 1\n").contains("second document"));
        assert!(error("[1]: a\n").contains("key"));
        assert!(error("a: &a [*a]\n").contains("alias"));
    }
}
