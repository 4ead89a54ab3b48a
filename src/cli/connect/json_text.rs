//! Changes one member of an object in a JSON file of another program, in its text: comments, trailing commas, order and
//! white space of everything else stay as they are.

use std::ops::Range;

use anyhow::{Context, bail};
use serde_json::Value;

use model::import;
use wire::walk;

const INDENT: &str = "  ";

/// The text of a file, and the same text without comments, in which every byte is at the same position.
struct Document<'a> {
    text: &'a str,
    plain: String,
    trailing_commas: Vec<usize>,
    line_end: &'static str,
}

/// One member of an object, as positions in the text.
struct Member {
    key: Range<usize>,
    value: Range<usize>,
}

/// Sets `section.name`, and creates the section if it does not exist.
pub fn set(text: &str, section: &str, name: &str, value: &Value) -> anyhow::Result<String> {
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        let whole = serde_json::json!({ section: { name: value } });
        return Ok(format!("{}\n", pretty(&whole, "", INDENT, "\n")));
    }
    let document = Document::read(text)?;
    let root = document.object(document.whole(), "the file")?;
    let Some(found) = document.find(&root, section) else {
        return Ok(document.insert(&root, section, &serde_json::json!({ name: value })));
    };
    let section = document.object(found.value, &format!("{section:?}"))?;
    match document.find(&section, name) {
        Some(entry) => {
            let indent = document.indent_at(entry.key.start);
            let mut changed = text.to_owned();
            changed.replace_range(entry.value, &document.pretty(value, indent));
            Ok(changed)
        }
        None => Ok(document.insert(&section, name, value)),
    }
}

/// Removes `section.name`; `None` if it does not exist.
pub fn remove(text: &str, section: &str, name: &str) -> anyhow::Result<Option<String>> {
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(None);
    }
    let document = Document::read(text)?;
    let root = document.object(document.whole(), "the file")?;
    let Some(found) = document.find(&root, section) else { return Ok(None) };
    let section = document.object(found.value, &format!("{section:?}"))?;
    Ok(document.find(&section, name).map(|_| document.remove(&section, name)))
}

/// Reads `section.name`; `None` if it does not exist.
pub fn get(text: &str, section: &str, name: &str) -> Option<Value> {
    import::read(text).ok()?.get(section)?.get(name).cloned()
}

impl<'a> Document<'a> {
    fn read(text: &'a str) -> anyhow::Result<Self> {
        import::read(text)?;
        let (plain, trailing_commas) = import::without_comments(text);
        let plain = match plain.strip_prefix('\u{feff}') {
            Some(rest) => format!("   {rest}"),
            None => plain,
        };
        walk::whole(plain.as_bytes()).context("the text is not JSON")?;
        let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Ok(Self { text, plain, trailing_commas, line_end })
    }

    fn whole(&self) -> Range<usize> {
        let start = self.plain.len() - self.plain.trim_start().len();
        start..self.plain.trim_end().len()
    }

    fn object(&self, span: Range<usize>, what: &str) -> anyhow::Result<Range<usize>> {
        match self.plain.as_bytes().get(span.start) {
            Some(b'{') => Ok(span),
            _ => bail!("{what} is not an object"),
        }
    }

    fn members(&self, object: &Range<usize>) -> Vec<Member> {
        let members = walk::members(self.plain.as_bytes(), object);
        members.map(|(_, key, value)| Member { key, value }).collect()
    }

    fn find(&self, object: &Range<usize>, key: &str) -> Option<Member> {
        let mut members = walk::members(self.plain.as_bytes(), object);
        members.find(|(found, ..)| found == key).map(|(_, key, value)| Member { key, value })
    }

    /// Adds a member at the end of an object, in the style of the members before it.
    fn insert(&self, object: &Range<usize>, key: &str, value: &Value) -> String {
        let close = object.end - 1;
        let members = self.members(object);
        let last = members.last();
        let key = Value::from(key);
        let inside = &self.text[object.start + 1..close];
        let mut changed = self.text.to_owned();
        if !inside.contains('\n') && last.is_some() {
            let end = last.map_or(close, |last| last.value.end);
            changed.insert_str(end, &format!(", {key}: {value}"));
            return changed;
        }
        let outer = self.indent_at(object.start);
        let indent = match members.first() {
            Some(first) if self.begins_line(first.key.start) => self.indent_at(first.key.start).to_owned(),
            Some(_) | None => format!("{outer}{}", self.unit()),
        };
        let comma = self
            .trailing_commas
            .iter()
            .find(|at| last.is_some_and(|last| (last.value.end..close).contains(at)));
        // After comments that follow the last member.
        let end = object.start + 1 + inside.trim_end().len();
        let mut member = format!("{}{indent}{key}: {}", self.line_end, self.pretty(value, &indent));
        if comma.is_some() {
            member.push(',');
        }
        if !inside[inside.trim_end().len()..].contains('\n') {
            member.push_str(&format!("{}{outer}", self.line_end));
        }
        changed.insert_str(end, &member);
        if let (Some(last), None) = (last, comma) {
            changed.insert(last.value.end, ',');
        }
        changed
    }

    /// Removes a member with its line and its comma.
    fn remove(&self, object: &Range<usize>, key: &str) -> String {
        let members = walk::members(self.plain.as_bytes(), object);
        let names: Vec<_> = members.map(|(found, key, value)| (found, Member { key, value })).collect();
        let Some(index) = names.iter().position(|(found, _)| found == key) else {
            return self.text.to_owned();
        };
        let Member { key, value } = &names[index].1;
        let next = names.get(index + 1).map_or(object.end - 1, |(_, next)| next.key.start);
        let comma = self.comma_in(value.end..next);
        let previous = index.checked_sub(1).map(|index| names[index].1.value.end);
        let before = &self.text[..key.start];
        let floor =
            previous.map_or(object.start + 1, |end| self.comma_in(end..key.start).map_or(end, |at| at + 1));
        let mut start = before.trim_end_matches([' ', '\t', '\r', '\n']).len().max(floor);
        let mut end = comma.map_or(value.end, |at| at + 1);
        if !before[start..].contains('\n') {
            // On the line of another member: the space after it goes, not the space before it.
            start = key.start;
            let rest = &self.text[end..];
            end += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        }
        let mut changed = self.text.to_owned();
        changed.replace_range(start..end, "");
        if let (None, Some(previous)) = (comma, previous)
            && let Some(at) = self.comma_in(previous..key.start)
        {
            // The member before it is the last one now.
            let until = if self.text[at + 1..key.start].contains('\n') { at + 1 } else { start };
            changed.replace_range(at..until.max(at + 1), "");
        }
        changed
    }

    /// Finds the comma after a value; there may be comments around it.
    fn comma_in(&self, range: Range<usize>) -> Option<usize> {
        let plain = self.plain[range.clone()].find(',').map(|at| range.start + at);
        plain.or_else(|| self.trailing_commas.iter().copied().find(|at| range.contains(at)))
    }

    fn pretty(&self, value: &Value, indent: &str) -> String {
        pretty(value, indent, self.unit(), self.line_end)
    }

    /// The indentation of the members of the outermost object.
    fn unit(&self) -> &str {
        let first = self.members(&self.whole()).into_iter().next();
        let first = first.filter(|first| self.begins_line(first.key.start));
        let indent = first.map_or(INDENT, |first| self.indent_at(first.key.start));
        if indent.is_empty() { INDENT } else { indent }
    }

    /// The white space at the beginning of the line of a position.
    fn indent_at(&self, at: usize) -> &str {
        let line = &self.text[self.text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// Tells whether only white space and comments stand before a position on its line, which is not the first one.
    fn begins_line(&self, at: usize) -> bool {
        self.plain[..at].rfind('\n').is_some_and(|end| self.plain[end..at].trim().is_empty())
    }
}

/// Formats a value on several lines, indented like the line that it begins on.
fn pretty(value: &Value, indent: &str, unit: &str, line_end: &str) -> String {
    let text = format!("{value:#}");
    let lines = text.lines().map(|line| {
        let content = line.trim_start();
        format!("{}{content}", unit.repeat((line.len() - content.len()) / INDENT.len()))
    });
    lines.collect::<Vec<_>>().join(&format!("{line_end}{indent}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry() -> Value {
        json!({"url": "http://g/mcp"})
    }

    /// Adds an entry, checks the text, and checks that removing it restores the original.
    #[track_caller]
    fn added(text: &str, expected: &str) {
        let changed = set(text, "mcpServers", "toolgate", &entry()).unwrap();
        assert_eq!(changed, expected);
        assert_eq!(get(&changed, "mcpServers", "toolgate"), Some(entry()));
        assert_eq!(remove(&changed, "mcpServers", "toolgate").unwrap().as_deref(), Some(text));
    }

    #[test]
    fn an_entry_is_added_in_the_style_of_the_file() {
        added(
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    }\n  }\n}\n",
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\"\n    },\n    \"toolgate\": {\n      \
             \"url\": \"http://g/mcp\"\n    }\n  }\n}\n",
        );
        // Tabs and line ends of Windows.
        added(
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": 1\r\n\t}\r\n}",
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": 1,\r\n\t\t\"toolgate\": {\r\n\t\t\t\"url\": \"http://g/mcp\"\r\n\t\t}\r\n\t}\r\n}",
        );
        // All on one line.
        added(
            r#"{"a":{},"mcpServers":{"b":{}}}"#,
            r#"{"a":{},"mcpServers":{"b":{}, "toolgate": {"url":"http://g/mcp"}}}"#,
        );
    }

    #[test]
    fn comments_and_trailing_commas_stay() {
        added(
            "// mine, all of it\n{\n    /* é */ \"mcpServers\": {\n        \"a\": 1, // first, \"b\": 2\n        \"b\": {} // last\n        // end\n    }, // after\n    \"z\": 1.0,\n}\n",
            "// mine, all of it\n{\n    /* é */ \"mcpServers\": {\n        \"a\": 1, // first, \"b\": 2\n        \"b\": {}, // last\n        // end\n        \"toolgate\": {\n            \"url\": \"http://g/mcp\"\n        }\n    }, // after\n    \"z\": 1.0,\n}\n",
        );
        added(
            "{\n  \"mcpServers\": {\n    \"a\": 1, // kept\n  },\n}\n",
            "{\n  \"mcpServers\": {\n    \"a\": 1, // kept\n    \"toolgate\": {\n      \"url\": \"http://g/mcp\"\n    },\n  },\n}\n",
        );
    }

    #[test]
    fn missing_and_empty_parts_are_created() {
        let whole =
            "{\n  \"mcpServers\": {\n    \"toolgate\": {\n      \"url\": \"http://g/mcp\"\n    }\n  }\n}\n";
        for nothing in ["", "  \n", "\u{feff}"] {
            assert_eq!(set(nothing, "mcpServers", "toolgate", &entry()).unwrap(), whole);
            assert_eq!(remove(nothing, "mcpServers", "toolgate").unwrap(), None);
        }
        assert_eq!(set("{}\n", "mcpServers", "toolgate", &entry()).unwrap(), whole);
        assert_eq!(
            set("{\n  \"mcpServers\": {}\n}\n", "mcpServers", "toolgate", &entry()).unwrap(),
            whole,
            "an empty section is filled"
        );
        let text = "{\n  \"theme\": \"dark\" // or light\n}\n";
        let changed = set(text, "mcpServers", "toolgate", &entry()).unwrap();
        let expected = "{\n  \"theme\": \"dark\", // or light\n  \"mcpServers\": {\n    \"toolgate\": {\n      \
                        \"url\": \"http://g/mcp\"\n    }\n  }\n}\n";
        assert_eq!(changed, expected);
        let bom = set("\u{feff}{\"a\": 1}", "mcpServers", "toolgate", &entry()).unwrap();
        assert_eq!(bom, "\u{feff}{\"a\": 1, \"mcpServers\": {\"toolgate\":{\"url\":\"http://g/mcp\"}}}");
    }

    #[test]
    fn an_entry_is_replaced_in_its_place() {
        let text = "{\n  \"mcpServers\": {\n    // ours\n    \"toolgate\": { \"url\": \"old\", /* x */ }, // here\n    \"b\": 1\n  }\n}\n";
        let changed = set(text, "mcpServers", "toolgate", &entry()).unwrap();
        let expected = "{\n  \"mcpServers\": {\n    // ours\n    \"toolgate\": {\n      \"url\": \"http://g/mcp\"\n    }, // here\n    \"b\": 1\n  }\n}\n";
        assert_eq!(changed, expected);
    }

    #[test]
    fn entries_are_removed_from_every_place() {
        for (text, expected) in [
            (r#"{"s": {"toolgate": 1, "b": 2}}"#, r#"{"s": {"b": 2}}"#),
            (r#"{"s": {"a": 1, "toolgate": 1, "b": 2}}"#, r#"{"s": {"a": 1, "b": 2}}"#),
            (r#"{"s": {"toolgate": 1}}"#, r#"{"s": {}}"#),
            ("{\"s\": {\n  \"toolgate\": 1,\n  \"b\": 2\n}}", "{\"s\": {\n  \"b\": 2\n}}"),
            (
                "{\"s\": {\n  \"a\": 1, // a\n  \"toolgate\": 1 // t\n}}",
                "{\"s\": {\n  \"a\": 1 // a // t\n}}",
            ),
        ] {
            assert_eq!(remove(text, "s", "toolgate").unwrap().as_deref(), Some(expected), "{text}");
        }
        assert_eq!(remove(r#"{"s": {"a": 1}}"#, "s", "toolgate").unwrap(), None);
        assert_eq!(remove(r#"{"a": 1}"#, "s", "toolgate").unwrap(), None);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in
            ["{\"mcpServers\": {", "[1]", "{\"mcpServers\": []}", "{\"mcpServers\": null}", "nonsense"]
        {
            assert!(set(text, "mcpServers", "toolgate", &entry()).is_err(), "{text}");
            assert!(remove(text, "mcpServers", "toolgate").is_err(), "{text}");
        }
    }
}
