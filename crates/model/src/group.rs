//! A tool group: a named selection of what the servers offer. It refers to its members by name and never loses one: a
//! member that is gone stays configured, and is available again when its server is.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{FieldError, Fields};

const MAX_LENGTH: usize = 64;

/// Selects everything of one kind that the included servers offer.
pub const EVERYTHING: &str = "*";

/// Keys that responses contain besides the configuration, so a response that is sent back as a body contains them too.
const ENDPOINT_KEYS: [&str; 3] = ["streamable_http_endpoint", "sse_endpoint", "sse_message_endpoint"];

/// The name of a tool group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct GroupName(String);

impl GroupName {
    /// Parses a name. The error is a sentence fragment that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.chars().count() > MAX_LENGTH {
            return Err(format!("must have at most {MAX_LENGTH} characters"));
        }
        let is_rest = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if !text.starts_with(|first: char| first.is_ascii_alphanumeric()) || !text.bytes().all(is_rest) {
            return Err("must begin with a letter or digit and have only letters, digits, '-' and '_'".into());
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for GroupName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The configuration of a tool group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    pub name: GroupName,
    pub description: String,
    pub included_tools: Vec<String>,
    pub included_servers: Vec<String>,
    /// Removed from the included tools.
    pub excluded_tools: Vec<String>,
    /// Full names, or `*` for all prompts of the included servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub included_prompts: Vec<String>,
    /// URIs, or `*` for all resources of the included servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub included_resources: Vec<String>,
}

impl Group {
    pub fn parse(object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let name = fields.required_text("name")?;
        let name = GroupName::parse(&name).map_err(|problem| FieldError::new("name", problem))?;
        Self::parse_configuration(name, fields)
    }

    /// Reads a complete new configuration for the group `name`; a name in the body is ignored.
    pub fn parse_replacement(name: GroupName, object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        fields.take("name");
        Self::parse_configuration(name, fields)
    }

    fn parse_configuration(name: GroupName, mut fields: Fields) -> Result<Self, FieldError> {
        let description = fields.text("description")?.unwrap_or_default();
        let mut names = |field| fields.texts(field).map(Option::unwrap_or_default);
        let group = Self {
            name,
            description,
            included_tools: names("included_tools")?,
            included_servers: names("included_servers")?,
            excluded_tools: names("excluded_tools")?,
            included_prompts: names("included_prompts")?,
            included_resources: names("included_resources")?,
        };
        for key in ENDPOINT_KEYS {
            fields.take(key);
        }
        fields.finish()?;
        if group.included_tools.is_empty() && group.included_servers.is_empty() {
            let problem = "must name at least one tool, or \"included_servers\" at least one server";
            return Err(FieldError::new("included_tools", problem));
        }
        Ok(group)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<Group, FieldError> {
        Group::parse(value.as_object().unwrap().clone())
    }

    #[test]
    fn every_mistake_names_its_field() {
        let field = |value| parse(value).unwrap_err().field;
        assert_eq!(field(json!({})), "name");
        for bad in ["", "-a", "_a", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(field(json!({"name": bad, "included_servers": ["s"]})), "name", "{bad}");
        }
        assert_eq!(field(json!({"name": "g", "included_tools": "s__t"})), "included_tools");
        assert_eq!(field(json!({"name": "g", "included_servers": [1]})), "included_servers[0]");
        assert_eq!(field(json!({"name": "g", "included_servers": ["s"], "colour": 1})), "colour");
        assert!(parse(json!({"name": "g"})).unwrap_err().to_string().contains("at least one tool"));
    }

    #[test]
    fn what_an_answer_shows_can_be_sent_back() {
        let group = parse(json!({"name": "g", "included_servers": ["s"]})).unwrap();
        let mut shown = serde_json::to_value(&group).unwrap();
        shown["sse_endpoint"] = json!("http://localhost/v0/groups/g/sse");
        assert_eq!(parse(shown).unwrap(), group);
    }
}
