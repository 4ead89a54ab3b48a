//! One field of a form that a server asks to be filled in: how it is described, and how an entered line becomes a value.
//! What the schema says beyond that is left to the server.

use serde_json::{Number, Value};

use super::schema;
use super::text_format;

pub struct FormField {
    pub name: String,
    /// The title, or else the name.
    pub title: String,
    pub description: String,
    pub required: bool,
    pub kind: FieldKind,
    default: Option<Value>,
    schema: Value,
}

pub enum FieldKind {
    Text,
    Integer,
    Number,
    Boolean,
    /// One of several values.
    One(Vec<FieldChoice>),
    /// Any number of several values.
    Several(Vec<FieldChoice>),
    /// Anything else, entered as JSON.
    Json,
}

pub struct FieldChoice {
    pub value: Value,
    pub title: String,
}

impl FormField {
    pub fn new(name: &str, schema: Value, required: bool) -> Self {
        let text = |key: &str| schema[key].as_str().unwrap_or_default().trim().to_owned();
        let title = Some(text("title")).filter(|title| !title.is_empty()).unwrap_or_else(|| name.to_owned());
        Self {
            name: name.to_owned(),
            title: title.replace('\n', " "),
            description: text("description"),
            required,
            kind: kind(&schema),
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            schema,
        }
    }

    /// Describes what belongs into the field, such as `email, required` or `integer from 1 to 9`.
    pub fn expected(&self) -> String {
        let bounds = |least: &str, most: &str| {
            let limit = |key: &str| self.schema.get(key).filter(|limit| limit.is_number());
            match (limit(least), limit(most)) {
                (Some(least), Some(most)) => format!(" from {least} to {most}"),
                (Some(least), None) => format!(" from {least}"),
                (None, Some(most)) => format!(" up to {most}"),
                (None, None) => String::new(),
            }
        };
        let mut words = match &self.kind {
            FieldKind::Text => {
                let format = self.schema["format"].as_str().unwrap_or("text");
                let length = bounds("minLength", "maxLength");
                if length.is_empty() { format.to_owned() } else { format!("{format},{length} characters") }
            }
            FieldKind::Integer => format!("integer{}", bounds("minimum", "maximum")),
            FieldKind::Number => format!("number{}", bounds("minimum", "maximum")),
            FieldKind::Boolean => "yes or no".to_owned(),
            FieldKind::One(_) => "number of one choice".to_owned(),
            FieldKind::Several(_) => {
                format!("numbers of choices, such as 1,2; 0 for none{}", bounds("minItems", "maxItems"))
            }
            FieldKind::Json => "JSON".to_owned(),
        };
        if let Some(pattern) = self.schema["pattern"].as_str() {
            words.push_str(&format!(", matching {}", pattern.replace('\n', " ")));
        }
        words + if self.required { ", required" } else { ", optional" }
    }

    /// Formats the default as a person would enter it.
    pub fn shown_default(&self) -> Option<String> {
        let default = self.default.as_ref()?;
        let number = |value: &Value, choices: &[FieldChoice]| {
            choices.iter().position(|choice| choice.value == *value).map(|at| (at + 1).to_string())
        };
        match (&self.kind, default) {
            (FieldKind::Boolean, Value::Bool(yes)) => Some(if *yes { "yes" } else { "no" }.to_owned()),
            (FieldKind::One(choices), value) => number(value, choices),
            (FieldKind::Several(choices), Value::Array(values)) if !values.is_empty() => {
                let numbers: Option<Vec<_>> = values.iter().map(|value| number(value, choices)).collect();
                Some(numbers?.join(","))
            }
            (FieldKind::Several(_), Value::Array(_)) => Some("0".to_owned()),
            (FieldKind::Text, Value::String(text)) => Some(text.replace('\n', " ")),
            (FieldKind::Boolean | FieldKind::Several(_), _) => None,
            (_, value) => Some(value.to_string()),
        }
    }

    /// Reads an entered line. An empty one is the default, or no value if the field is optional.
    pub fn read(&self, line: &str) -> Result<Option<Value>, String> {
        if line.trim().is_empty() {
            return match &self.default {
                Some(default) if self.shown_default().is_some() => Ok(Some(default.clone())),
                _ if self.required => Err("is required".to_owned()),
                _ => Ok(None),
            };
        }
        let entered = line.trim();
        let value = match &self.kind {
            FieldKind::Text => self.read_text(line)?,
            FieldKind::Integer => self.read_number(read_integer(entered)?)?,
            FieldKind::Number => self.read_number(read_number(entered).ok_or("must be a number")?)?,
            FieldKind::Boolean => match entered.to_lowercase().as_str() {
                "y" | "yes" | "true" => true.into(),
                "n" | "no" | "false" => false.into(),
                _ => return Err("must be yes or no".to_owned()),
            },
            FieldKind::One(choices) => find(choices, entered).ok_or_else(|| not_offered(choices))?.clone(),
            FieldKind::Several(choices) => self.read_several(choices, entered)?,
            FieldKind::Json => {
                serde_json::from_str(entered).map_err(|error| format!("is not JSON: {error}"))?
            }
        };
        Ok(Some(value))
    }

    fn read_text(&self, line: &str) -> Result<Value, String> {
        // Surrounding white space is part of a text, but never of an address or a date.
        let format = self.schema["format"].as_str();
        let text = if format.is_some() { line.trim() } else { line };
        self.check_count(text.chars().count(), "minLength", "maxLength", "characters")?;
        match format.and_then(|format| text_format::problem(format, text)) {
            Some(problem) => Err(problem.to_owned()),
            None => Ok(text.into()),
        }
    }

    fn read_number(&self, number: Number) -> Result<Value, String> {
        let value = number.as_f64().unwrap_or_default();
        let limit = |key: &str| self.schema[key].as_f64();
        let problem = match (limit("minimum"), limit("maximum")) {
            (Some(least), _) if value < least => format!("must be at least {}", self.schema["minimum"]),
            (_, Some(most)) if value > most => format!("must be at most {}", self.schema["maximum"]),
            _ => return Ok(Value::Number(number)),
        };
        Err(problem)
    }

    fn read_several(&self, choices: &[FieldChoice], entered: &str) -> Result<Value, String> {
        let mut chosen: Vec<Value> = Vec::new();
        let parts = entered.split(',').map(str::trim).filter(|part| !part.is_empty());
        // A part that is no choice as a whole may be several, separated by spaces.
        let parts = parts.flat_map(|part| match find(choices, part) {
            Some(_) => vec![part],
            None => part.split_whitespace().collect(),
        });
        if entered != "0" {
            for part in parts {
                let value = find(choices, part).ok_or_else(|| not_offered(choices))?;
                if !chosen.contains(value) {
                    chosen.push(value.clone());
                }
            }
        }
        self.check_count(chosen.len(), "minItems", "maxItems", "choices")?;
        Ok(chosen.into())
    }

    fn check_count(&self, count: usize, least: &str, most: &str, noun: &str) -> Result<(), String> {
        let limit = |key: &str| self.schema[key].as_u64().and_then(|limit| usize::try_from(limit).ok());
        match (limit(least), limit(most)) {
            (Some(least), _) if count < least => Err(format!("must have at least {least} {noun}")),
            (_, Some(most)) if count > most => Err(format!("must have at most {most} {noun}")),
            _ => Ok(()),
        }
    }
}

fn kind(schema: &Value) -> FieldKind {
    let one = choices(schema);
    if !one.is_empty() {
        return FieldKind::One(one);
    }
    match schema::types(schema, schema).as_slice() {
        ["string"] => FieldKind::Text,
        ["integer"] => FieldKind::Integer,
        ["number"] => FieldKind::Number,
        ["boolean"] => FieldKind::Boolean,
        ["array"] => match choices(&schema["items"]) {
            several if several.is_empty() => FieldKind::Json,
            several => FieldKind::Several(several),
        },
        _ => FieldKind::Json,
    }
}

/// Returns the values that a schema lists, with their titles.
fn choices(schema: &Value) -> Vec<FieldChoice> {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let titled = |value: &Value, title: Option<&str>| FieldChoice {
        value: value.clone(),
        title: title.map_or_else(|| word(value), str::to_owned).replace('\n', " "),
    };
    if let Some(values) = schema["enum"].as_array() {
        let title = |at: usize| schema["enumNames"][at].as_str();
        return values.iter().enumerate().map(|(at, value)| titled(value, title(at))).collect();
    }
    let listed = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array());
    let constants = listed.into_iter().flatten().map(|choice| {
        let value = choice.get("const")?;
        Some(titled(value, choice["title"].as_str()))
    });
    constants.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Finds a choice by its number, value or title. The number comes first, since it is what the list shows.
fn find<'a>(choices: &'a [FieldChoice], entered: &str) -> Option<&'a Value> {
    let at = entered.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    let by_value = || choices.iter().find(|choice| choice.value.as_str() == Some(entered));
    let by_title = || choices.iter().find(|choice| choice.title.eq_ignore_ascii_case(entered));
    at.or_else(by_value).or_else(by_title).map(|choice| &choice.value)
}

fn not_offered(choices: &[FieldChoice]) -> String {
    format!("must be a number from 1 to {}", choices.len())
}

fn read_integer(entered: &str) -> Result<Number, String> {
    match read_number(entered) {
        Some(number) if number.is_f64() && number.as_f64().is_some_and(|value| value.fract() == 0.0) => {
            Err("is too large".to_owned())
        }
        Some(number) if !number.is_f64() => Ok(number),
        _ => Err("must be a whole number".to_owned()),
    }
}

fn read_number(entered: &str) -> Option<Number> {
    let signed = entered.parse::<i64>().map(Number::from);
    let unsigned = || entered.parse::<u64>().map(Number::from);
    let float = || entered.parse().ok().and_then(Number::from_f64);
    signed.or_else(|_| unsigned()).ok().or_else(float)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(schema: Value) -> FormField {
        FormField::new("field", schema, true)
    }

    #[track_caller]
    fn reads(schema: Value, line: &str, expected: Value) {
        assert_eq!(field(schema).read(line), Ok(Some(expected)), "{line:?}");
    }

    #[track_caller]
    fn refuses(schema: Value, line: &str, reason: &str) {
        assert_eq!(field(schema).read(line), Err(reason.to_owned()), "{line:?}");
    }

    #[test]
    fn an_entered_line_gets_the_type_of_the_field() {
        reads(json!({"type": "string"}), " two words ", json!(" two words "));
        reads(json!({"type": "string", "format": "email"}), " a@b.c ", json!("a@b.c"));
        reads(json!({"type": "integer"}), "-12", json!(-12));
        reads(json!({"type": "integer"}), "18446744073709551615", json!(u64::MAX));
        reads(json!({"type": "number"}), "2.50", json!(2.5));
        reads(json!({"type": ["number", "null"]}), "3", json!(3));
        reads(json!({"type": "boolean"}), "Yes", json!(true));
        reads(json!({"type": "boolean"}), "n", json!(false));
        reads(json!({"type": "object"}), r#"{"a": [1]}"#, json!({"a": [1]}));
        reads(json!({"type": "array", "items": {"type": "string"}}), r#"["a"]"#, json!(["a"]));
    }

    #[test]
    fn a_choice_is_made_by_number_value_or_title() {
        let titled =
            json!({"oneOf": [{"const": "r", "title": "Dark red"}, {"const": "g", "title": "Green"}]});
        for line in ["1", "r", "dark red"] {
            reads(titled.clone(), line, json!("r"));
        }
        refuses(titled, "3", "must be a number from 1 to 2");
        let named = json!({"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]});
        reads(named, "second", json!("b"));
        reads(json!({"enum": ["2", "1"]}), "2", json!("1"));
        reads(json!({"enum": [10, 20]}), "2", json!(20));
        let several = json!({"type": "array", "items": {"anyOf": [
            {"const": "r", "title": "Dark red"}, {"const": "g", "title": "Green"}, {"const": "b", "title": "Blue"}
        ]}, "maxItems": 2});
        reads(several.clone(), "3, 1, 3", json!(["b", "r"]));
        reads(several.clone(), "1 2", json!(["r", "g"]));
        reads(several.clone(), "Dark red, b", json!(["r", "b"]));
        reads(several.clone(), "0", json!([]));
        refuses(several.clone(), "1,2,3", "must have at most 2 choices");
        refuses(several, "1,4", "must be a number from 1 to 3");
        refuses(
            json!({"type": "array", "items": {"enum": ["a"]}, "minItems": 1}),
            "0",
            "must have at least 1 choices",
        );
    }

    #[test]
    fn a_wrong_line_is_refused_with_the_reason() {
        refuses(json!({"type": "string", "minLength": 3}), "äö", "must have at least 3 characters");
        refuses(json!({"type": "string", "maxLength": 2}), "abc", "must have at most 2 characters");
        refuses(json!({"type": "string", "format": "date"}), "soon", "must be a date, such as 2030-12-31");
        refuses(json!({"type": "integer"}), "1.5", "must be a whole number");
        refuses(json!({"type": "integer"}), "x", "must be a whole number");
        refuses(json!({"type": "integer"}), "99999999999999999999", "is too large");
        refuses(json!({"type": "integer", "minimum": 1, "maximum": 9}), "0", "must be at least 1");
        refuses(json!({"type": "number", "minimum": 1, "maximum": 9.5}), "9.6", "must be at most 9.5");
        refuses(json!({"type": "number"}), "NaN", "must be a number");
        refuses(json!({"type": "boolean"}), "maybe", "must be yes or no");
        assert!(field(json!({})).read("{").unwrap_err().starts_with("is not JSON: "));
    }

    #[test]
    fn an_empty_line_is_the_default_or_nothing_unless_the_field_is_required() {
        for (schema, shown) in [
            (json!({"type": "string", "default": "x"}), "x"),
            (json!({"type": "integer", "default": 3}), "3"),
            (json!({"type": "boolean", "default": false}), "no"),
            (json!({"enum": ["a", "b"], "default": "b"}), "2"),
            (json!({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["b", "a"]}), "2,1"),
            (json!({"type": "array", "items": {"enum": ["a"]}, "default": []}), "0"),
        ] {
            let default = schema["default"].clone();
            assert_eq!(field(schema.clone()).shown_default().as_deref(), Some(shown));
            reads(schema, " ", default);
        }
        refuses(json!({"type": "string"}), "", "is required");
        assert_eq!(FormField::new("f", json!({"type": "string"}), false).read(""), Ok(None));
        // A default that cannot be shown is not taken silently.
        refuses(json!({"enum": ["a"], "default": "z"}), "", "is required");
    }

    #[test]
    fn a_field_says_what_belongs_into_it() {
        let expected = |schema: Value| field(schema).expected();
        assert_eq!(expected(json!({"type": "string", "format": "email"})), "email, required");
        assert_eq!(
            expected(json!({"type": "string", "minLength": 1, "maxLength": 9})),
            "text, from 1 to 9 characters, required"
        );
        assert_eq!(expected(json!({"type": "integer", "minimum": 1})), "integer from 1, required");
        let optional = FormField::new("f", json!({"type": "boolean", "title": " Sure? "}), false);
        assert_eq!((optional.title.as_str(), optional.expected().as_str()), ("Sure?", "yes or no, optional"));
    }
}
