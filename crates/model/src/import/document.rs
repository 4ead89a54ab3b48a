//! Reads a text in JSON or YAML. JSON may have comments and trailing commas, as editors allow them in settings.

use serde_json::Value;

use super::{Unreadable, yaml};

pub fn read(text: &str) -> Result<Value, Unreadable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(Unreadable("the text is empty".into()));
    }
    let (plain, _) = without_comments(text);
    // YAML has braces too, but a text that begins with one is meant as JSON, whose errors are more helpful.
    if !plain.trim_start().starts_with(['{', '[']) {
        return yaml::read(text);
    }
    serde_json::from_str(&plain).map_err(|error| Unreadable(format!("the text is not JSON: {error}")))
}

/// The text with comments and trailing commas replaced by spaces, byte for byte, so that every other byte is where it was;
/// and the positions of the trailing commas.
pub fn without_comments(text: &str) -> (String, Vec<usize>) {
    let mut plain = String::with_capacity(text.len());
    let mut trailing = Vec::new();
    // The position of the last comma, while only white space and comments follow it.
    let mut comma: Option<usize> = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        if first == '/' && length > 1 {
            plain.extend(token.bytes().map(|next| if next == b'\n' { '\n' } else { ' ' }));
        } else {
            if matches!(first, '}' | ']')
                && let Some(at) = comma
            {
                plain.replace_range(at..=at, " ");
                trailing.push(at);
            }
            if !first.is_whitespace() {
                comma = (first == ',').then_some(plain.len());
            }
            plain.push_str(token);
        }
        rest = after;
    }
    (plain, trailing)
}

/// Length of the string literal at the beginning, quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, next) in text.char_indices().skip(1) {
        match next {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_trailing_commas_are_no_mistake() {
        let text = "// mine\n{ /* two\nlines */ \"a\": \"// no comment, }\", \"b\": [1, 2, ], // end\n}\n";
        assert_eq!(read(text).unwrap(), json!({"a": "// no comment, }", "b": [1, 2]}));
        assert_eq!(read("\u{feff}{\"a\": \"\\\"//\"}").unwrap(), json!({"a": "\"//"}));
        assert_eq!(read("{/*/ \"a\": 1, /*/ \"b\": 2}").unwrap(), json!({"b": 2}));
    }

    #[test]
    fn what_is_no_comment_stays_where_it_is() {
        let text = "{ /* é😀 */ \"ä\": [1, // 2,\n], }";
        let (plain, trailing) = without_comments(text);
        assert_eq!(plain.len(), text.len());
        assert_eq!(plain.find("\"ä\""), text.find("\"ä\""));
        assert_eq!(trailing, [text.find(", //").unwrap(), text.rfind(',').unwrap()]);
    }

    #[test]
    fn an_error_names_the_place() {
        let error = read("{\n  // comment\n  \"a\": nope\n}").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
        assert!(read("  \n").unwrap_err().to_string().contains("empty"));
        assert!(read("{\"a\": ").unwrap_err().to_string().contains("JSON"));
    }
}
