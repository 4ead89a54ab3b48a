//! Changes one table in a TOML file of another program; everything else in the file stays as it is.

use anyhow::bail;
use serde_json::Value;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, value};

/// Sets the table `section.name` to these members.
pub fn set(text: &str, section: &str, name: &str, entry: &Value) -> anyhow::Result<String> {
    let mut document = read(text)?;
    let section_item = document.entry(section).or_insert_with(|| {
        let mut table = Table::new();
        // Only the tables in it have a header.
        table.set_implicit(true);
        Item::Table(table)
    });
    let Some(servers) = section_item.as_table_like_mut() else { bail!("{section:?} is not a table") };
    let mut table = Table::new();
    for (key, member) in entry.as_object().into_iter().flatten() {
        table.insert(key, to_toml(member));
    }
    match servers.get_mut(name) {
        Some(Item::Table(old)) => {
            // Keeps the place and the comments above the header.
            *table.decor_mut() = old.decor().clone();
            table.set_position(old.position());
            *old = table;
        }
        Some(other) => *other = value(table.into_inline_table()),
        None => {
            if !text.trim().is_empty() {
                table.decor_mut().set_prefix("\n");
            }
            servers.insert(name, Item::Table(table));
        }
    }
    Ok(document.to_string())
}

/// Removes the table `section.name`; `None` if it does not exist.
pub fn remove(text: &str, section: &str, name: &str) -> anyhow::Result<Option<String>> {
    let mut document = read(text)?;
    let Some(section_item) = document.get_mut(section) else { return Ok(None) };
    let Some(servers) = section_item.as_table_like_mut() else { bail!("{section:?} is not a table") };
    Ok(servers.remove(name).map(|_| document.to_string()))
}

/// Reads `section.name`; `None` if it does not exist, or has members that no entry of ours has.
pub fn get(text: &str, section: &str, name: &str) -> Option<Value> {
    read(text).ok()?.get(section)?.get(name).and_then(to_json)
}

pub fn has(text: &str, section: &str, name: &str) -> bool {
    read(text).is_ok_and(|document| document.get(section).is_some_and(|servers| servers.get(name).is_some()))
}

fn read(text: &str) -> anyhow::Result<DocumentMut> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        anyhow::anyhow!("the text is not TOML: {} (line {line})", error.message())
    })
}

fn to_toml(member: &Value) -> Item {
    match member {
        Value::Array(items) => {
            value(items.iter().map(|item| item.as_str().unwrap_or_default()).collect::<Array>())
        }
        Value::Object(members) => {
            let members = members.iter().map(|(key, text)| (key.as_str(), text.as_str().unwrap_or_default()));
            value(members.collect::<InlineTable>())
        }
        other => value(other.as_str().unwrap_or_default()),
    }
}

fn to_json(item: &Item) -> Option<Value> {
    if let Some(table) = item.as_table_like() {
        let members = table.iter().map(|(key, item)| Some((key.to_owned(), to_json(item)?)));
        return members.collect::<Option<serde_json::Map<_, _>>>().map(Value::Object);
    }
    match (item.as_str(), item.as_array()) {
        (Some(text), _) => Some(text.into()),
        (None, Some(items)) => items
            .iter()
            .map(|item| item.as_str().map(Value::from))
            .collect::<Option<Vec<_>>>()
            .map(Value::Array),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "# My settings\nmodel = \"gpt\"   # the usual one\n\n[mcp_servers.docs] # keep\ncommand = \"npx\"\nargs = [\n  \"-y\", # yes\n  \"docs\",\n]\n\n[profiles.fast]\nmodel=\"mini\"\n";

    #[test]
    fn a_table_is_added_and_removed_and_the_rest_stays() {
        let entry = json!({"url": "http://g/mcp", "http_headers": {"Authorization": "Bearer x"}});
        let changed = set(FILE, "mcp_servers", "toolgate", &entry).unwrap();
        assert!(get(&changed, "mcp_servers", "toolgate").as_ref() == Some(&entry), "{changed}");
        let table = "\n[mcp_servers.toolgate]\nhttp_headers = { Authorization = \"Bearer x\" }\nurl = \"http://g/mcp\"\n";
        assert!(changed.contains(table), "{changed}");
        assert_eq!(changed.replace(table, ""), FILE);
        assert_eq!(remove(&changed, "mcp_servers", "toolgate").unwrap().as_deref(), Some(FILE));
        let other = json!({"url": "http://h/mcp"});
        let replaced = set(&changed, "mcp_servers", "toolgate", &other).unwrap();
        assert!(get(&replaced, "mcp_servers", "toolgate").as_ref() == Some(&other), "{replaced}");
        assert_eq!(remove(&replaced, "mcp_servers", "toolgate").unwrap().as_deref(), Some(FILE));
    }

    #[test]
    fn every_form_of_the_section_is_understood() {
        let entry = json!({"url": "http://g/mcp"});
        for text in [
            "",
            "# only a comment\n",
            "mcp_servers = { docs = { command = \"x\" } }\n",
            "mcp_servers.docs.command = \"x\"\n",
            "[mcp_servers]\ndocs = { command = \"x\" }\n",
            "[mcp_servers]\ntoolgate = { url = \"old\" } # here\n",
        ] {
            let changed = set(text, "mcp_servers", "toolgate", &entry).unwrap();
            assert!(get(&changed, "mcp_servers", "toolgate").as_ref() == Some(&entry), "{text}: {changed}");
            assert!(!text.contains("docs") || has(&changed, "mcp_servers", "docs"), "{changed}");
        }
        assert_eq!(remove("a = 1\n", "mcp_servers", "toolgate").unwrap(), None);
    }

    #[test]
    fn what_is_not_toml_is_refused() {
        let entry = json!({"url": "u"});
        let error = set("a = 1\nb = \n", "mcp_servers", "toolgate", &entry).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(set("mcp_servers = 1\n", "mcp_servers", "toolgate", &entry).is_err());
    }
}
