//! Indents JSON. It works on the text, so that the order of keys and the digits of numbers stay the same.

use super::terminal::steers;

const STEP: &str = "  ";

/// Returns JSON text with line ends and indentation. Characters that would steer a terminal are escaped. Text that is not
/// JSON gives unspecified output, but no error.
pub fn indented(text: &str) -> String {
    let mut page = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let mut rest = text.trim().chars().peekable();
    while let Some(next) = rest.next() {
        if in_string {
            push(&mut page, next);
            in_string = next != '"' || escaped;
            escaped = next == '\\' && !escaped;
            continue;
        }
        match next {
            '"' => {
                in_string = true;
                page.push(next);
            }
            '{' | '[' => {
                page.push(next);
                while rest.next_if(|next| next.is_whitespace()).is_some() {}
                if let Some(close) = rest.next_if(|next| matches!(next, '}' | ']')) {
                    page.push(close);
                } else {
                    depth += 1;
                    break_line(&mut page, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut page, depth);
                page.push(next);
            }
            ',' => {
                page.push(next);
                break_line(&mut page, depth);
            }
            ':' => page.push_str(": "),
            _ if next.is_whitespace() => {}
            _ => push(&mut page, next),
        }
    }
    page
}

/// Appends a character, escaped if a terminal would obey it. All of those have at most four hexadecimal digits.
fn push(page: &mut String, next: char) {
    match steers(next) {
        true => page.push_str(&format!("\\u{:04x}", u32::from(next))),
        false => page.push(next),
    }
}

fn break_line(page: &mut String, depth: usize) {
    page.push('\n');
    page.push_str(&STEP.repeat(depth));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_white_space_stays() {
        let text = r#"{"b":[1.0,{ } , 12345678901234567890123],"a":"x: {\"y\"}, [\\","e":[],"n":null}"#;
        let expected = "{\n  \"b\": [\n    1.0,\n    {},\n    12345678901234567890123\n  ],\n  \"a\": \"x: {\\\"y\\\"}, [\\\\\",\n  \"e\": [],\n  \"n\": null\n}";
        assert_eq!(indented(text), expected);
        assert_eq!(indented(expected), expected);
        assert_eq!(indented(" [] "), "[]");
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_with_the_same_meaning() {
        let text = "{\"a\u{9b}\":\"\u{7f}\u{202e}\u{2069}\u{200e} é\\\\\u{85}\\u001b\"}";
        let page = indented(text);
        assert_eq!(page, "{\n  \"a\\u009b\": \"\\u007f\\u202e\\u2069\\u200e é\\\\\\u0085\\u001b\"\n}");
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parsed(&page), parsed(text));
        assert!(!indented("no JSON \u{1b}[0m \u{202e}").contains(['\u{1b}', '\u{202e}']));
    }
}
