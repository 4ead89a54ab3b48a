//! Replaces `${NAME}` in the values of a configuration file. `$${` stands for a literal `${`. Forms of other programs
//! with the same meaning are accepted too: `${env:NAME}`, and `${NAME:-default}`.

use serde_json::Value;

/// Replaces every variable in every string of the value. The error names the variable and says what to do.
pub fn expand(value: Value, variable: &impl Fn(&str) -> Option<String>) -> Result<Value, String> {
    match value {
        Value::String(text) => expand_text(&text, variable).map(Value::String),
        Value::Array(items) => {
            items.into_iter().map(|item| expand(item, variable)).collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Object(entries) => entries
            .into_iter()
            .map(|(key, value)| Ok((key, expand(value, variable)?)))
            .collect::<Result<_, _>>()
            .map(Value::Object),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(value),
    }
}

/// Escapes the text for a file, so that reading it returns the same text.
pub fn escape(text: &str) -> String {
    text.replace("${", "$${")
}

fn expand_text(text: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut expanded, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        expanded.push_str(before);
        let (inside, after) = after.split_once('}').ok_or_else(|| {
            "a value has \"${\" without \"}\"; write \"$${\" for a literal \"${\"".to_owned()
        })?;
        expanded.push_str(&resolve(inside, variable)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn resolve(inside: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if let Some(input) = name.strip_prefix("input:") {
        return Err(format!(
            "it prompts for input {input:?}, which only editors support; write the value, or ${{NAME}} for a variable"
        ));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) || !name.bytes().all(is_name)
    {
        return Err(format!(
            "\"${{{name}}}\" is not a valid variable; write the value, or \"$${{\" for a literal \"${{\""
        ));
    }
    let value = variable(name).or_else(|| default.map(str::to_owned));
    value.ok_or_else(|| format!("the variable {name} is not set; set it, or write its value"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(name: &str) -> Option<String> {
        (name == "KEY").then(|| "k$${1".to_owned())
    }

    #[test]
    fn variables_are_replaced_once_in_every_string() {
        let value = json!({"a": ["x-${KEY}", 1, null, true], "${KEY}": {"b": "${env:KEY}${OTHER:-d}"}});
        let expanded = expand(value, &known).unwrap();
        assert_eq!(expanded, json!({"a": ["x-k$${1", 1, null, true], "${KEY}": {"b": "k$${1d"}}));
        assert_eq!(expand(json!("$KEY costs $5 {KEY} $$"), &known).unwrap(), json!("$KEY costs $5 {KEY} $$"));
    }

    #[test]
    fn what_is_escaped_reads_back_the_same() {
        for text in ["${KEY}", "$${KEY}", "$$${", "a${", "${}", "$", "", "$$", "${a}${b}", "ä${ö"] {
            assert_eq!(expand(json!(escape(text)), &known).unwrap(), json!(text), "{text}");
        }
    }

    #[test]
    fn a_missing_variable_is_named() {
        let error = |text: &str| expand(json!([text]), &known).unwrap_err();
        assert!(error("a${OTHER}").contains("OTHER is not set"));
        assert!(error("${input:token}").contains("token"));
        assert!(error("${workspaceFolder}/x").contains("workspaceFolder"));
        assert!(error("${a b}").contains("$${"));
        assert!(error("${KEY").contains("without"));
    }
}
