//! Reads the input schema of a tool: its parameters with their types, including nested ones. References within the
//! schema are resolved.

use serde_json::{Map, Value};

/// Deepest nesting that is listed, since a schema may refer to itself. Deeper objects are shown as one value.
const DEEPEST: usize = 4;
const MOST_REFERENCES: usize = 16;

/// One parameter of a tool.
#[derive(Debug)]
pub struct Parameter {
    /// The name, with dots between levels and `[]` after a list of objects.
    pub path: String,
    pub kind: String,
    pub required: bool,
    pub description: String,
    pub default: Option<String>,
    pub choices: Vec<String>,
    /// An example value.
    pub example: String,
}

/// Returns all parameters, required ones first on each level.
pub fn parameters(schema: &Value) -> Vec<Parameter> {
    let mut found = Vec::new();
    collect(schema, schema, "", true, 0, &mut found);
    found
}

/// Returns the part of the schema that describes the value at a path.
pub fn at<'a>(root: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(resolve(root, root), |schema, name| {
        schema["properties"].get(*name).map(|property| resolve(root, property))
    })
}

/// Resolves a reference; returns any other schema unchanged.
pub fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MOST_REFERENCES {
        let pointer = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        match pointer.and_then(|pointer| root.pointer(pointer)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Returns the types that a schema allows, without `null`, which only marks a value as optional.
pub fn types<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a str> {
    let schema = resolve(root, schema);
    let mut types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => {
            let branches = ["anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array());
            branches.into_iter().flatten().flat_map(|branch| types(root, branch)).collect()
        }
    };
    types.retain(|name| *name != "null");
    types.dedup();
    types
}

fn collect(
    root: &Value,
    schema: &Value,
    prefix: &str,
    needed: bool,
    depth: usize,
    found: &mut Vec<Parameter>,
) {
    let schema = resolve(root, schema);
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort_by_key(|name| (!required.contains(&name.as_str()), name.to_owned()));
    for name in names {
        let (property, outer) = (resolve(root, &properties[name]), &properties[name]);
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let needed = needed && required.contains(&name.as_str());
        if property["properties"].is_object() && depth < DEEPEST {
            collect(root, property, &path, needed, depth + 1, found);
            continue;
        }
        let items = resolve(root, &property["items"]);
        let has_fields = items["properties"].is_object() && depth < DEEPEST;
        let text = |key: &str| outer[key].as_str().or(property[key].as_str()).unwrap_or_default().to_owned();
        let default = outer.get("default").or(property.get("default"));
        found.push(Parameter {
            kind: kind(root, property),
            required: needed,
            description: text("description"),
            default: default.map(Value::to_string),
            choices: choices(root, property),
            example: plain(&example(root, property, 0)),
            path: path.clone(),
        });
        if has_fields {
            collect(root, items, &format!("{path}[]"), true, depth + 1, found);
        }
    }
}

/// Describes the type of a parameter with its limits.
fn kind(root: &Value, schema: &Value) -> String {
    let names = types(root, schema);
    let mut kind = match names.as_slice() {
        [] => "any".to_owned(),
        ["array"] => match types(root, &schema["items"]).join("|") {
            items if items.is_empty() => "array".to_owned(),
            items => format!("array of {items}"),
        },
        names => names.join("|"),
    };
    if let Some(format) = schema["format"].as_str() {
        kind.push_str(&format!(" ({format})"));
    }
    let limit = |key: &str| schema.get(key).filter(|limit| limit.is_number()).map(Value::to_string);
    match (limit("minimum"), limit("maximum")) {
        (Some(least), Some(most)) => kind.push_str(&format!(" {least}..{most}")),
        (Some(least), None) => kind.push_str(&format!(" >= {least}")),
        (None, Some(most)) => kind.push_str(&format!(" <= {most}")),
        (None, None) => {}
    }
    kind
}

fn choices(root: &Value, schema: &Value) -> Vec<String> {
    let schema = if schema["type"] == "array" { resolve(root, &schema["items"]) } else { schema };
    let fixed = schema.get("const").map(|value| vec![value.clone()]);
    let values = schema["enum"].as_array().cloned().or(fixed).unwrap_or_default();
    values.iter().map(plain).collect()
}

/// Makes a value that fits a schema: one that the schema gives, or else a usual one of its type. Objects get their required
/// fields, or all if none is required.
fn example(root: &Value, schema: &Value, depth: usize) -> Value {
    let schema = resolve(root, schema);
    let given = schema["examples"].get(0).or(schema.get("default")).or(schema["enum"].get(0));
    if let Some(given) = given.or(schema.get("const")).filter(|given| !given.is_null()) {
        return given.clone();
    }
    match types(root, schema).first() {
        Some(&"integer" | &"number") => schema.get("minimum").cloned().unwrap_or(1.into()),
        Some(&"boolean") => true.into(),
        Some(&"array") if depth < DEEPEST && !types(root, &schema["items"]).is_empty() => {
            vec![example(root, &schema["items"], depth + 1)].into()
        }
        Some(&"array") => Value::Array(Vec::new()),
        Some(&"object") if depth < DEEPEST => {
            let none = Map::new();
            let fields = schema["properties"].as_object().unwrap_or(&none);
            let required = schema["required"].as_array().filter(|required| !required.is_empty());
            let is_shown = |name: &str| required.is_none_or(|list| list.iter().any(|item| item == name));
            let shown = fields.iter().filter(|(name, _)| is_shown(name));
            shown
                .map(|(name, field)| (name.clone(), example(root, field, depth + 1)))
                .collect::<Map<_, _>>()
                .into()
        }
        Some(&"object") => Map::new().into(),
        Some(_) | None => match schema["format"].as_str() {
            Some("date") => "2026-01-31",
            Some("date-time") => "2026-01-31T12:00:00Z",
            Some("time") => "12:00:00Z",
            Some("email") => "me@example.com",
            Some("uri" | "url") => "https://example.com",
            Some("uuid") => "123e4567-e89b-12d3-a456-426614174000",
            Some(_) | None => "text",
        }
        .into(),
    }
}

/// Formats a string without quotes, any other value as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
