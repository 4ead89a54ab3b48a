//! `x-mcp-header` annotations in a tool's input schema: which arguments are sent as headers, and whether the schema
//! follows the revision's rules for them. A tool that breaks the rules must be hidden, with the reason given here.

use memchr::memmem;

use super::headers::{HeaderParam, PARAM_PREFIX};
use super::scan::Span;
use super::text;
use super::walk;

const ANNOTATION: &str = "x-mcp-header";
/// Deepest level of an annotation. Each level around one is read again for it, so this bounds the time and the stack.
const DEEPEST: usize = 100;

/// Keywords whose values are instances, not schemas: an annotation in them is plain data.
const DATA: &[&str] = &["default", "const", "enum", "examples"];
/// Keywords that map names to schemas, so that a name must not be taken for a keyword.
const MAPS: &[&str] = &["$defs", "definitions", "dependentSchemas", "patternProperties"];

impl HeaderParam {
    /// Reads the annotations of a schema. Each must be an HTTP token, unique ignoring case, on a string, integer or
    /// boolean that is reached from the root only through `properties`.
    pub fn from_schema(schema: &[u8]) -> Result<Vec<Self>, String> {
        let root = walk::whole(schema).map_err(|error| format!("the input schema is {error}"))?;
        let mut reader = Reader { schema, found: Vec::new() };
        reader.read(&root, &Position::Property(Vec::new()), DEEPEST)?;
        Ok(reader.found)
    }
}

struct Reader<'a> {
    schema: &'a [u8],
    found: Vec<HeaderParam>,
}

/// The position of a subschema: on a chain of `properties` (with the names so far, none at the root), or elsewhere.
#[derive(Clone)]
enum Position {
    Property(Vec<String>),
    Elsewhere,
}

impl Position {
    fn below(&self, name: &str) -> Self {
        match self {
            Self::Property(path) => Self::Property(path.iter().cloned().chain([name.to_owned()]).collect()),
            Self::Elsewhere => Self::Elsewhere,
        }
    }
}

impl Reader<'_> {
    /// Reads a subschema, which may have annotations on this many levels. Without any it is skipped, at any depth.
    fn read(&mut self, schema: &Span, position: &Position, levels: usize) -> Result<(), String> {
        if memmem::find(&self.schema[schema.clone()], ANNOTATION.as_bytes()).is_none() {
            return Ok(());
        }
        let Some(levels) = levels.checked_sub(1) else {
            return Err("x-mcp-header is nested too deep".to_owned());
        };
        for item in walk::elements(self.schema, schema) {
            self.read(&item, &Position::Elsewhere, levels)?;
        }
        for (key, _, value) in walk::members(self.schema, schema) {
            match key.as_ref() {
                ANNOTATION => self.annotate(schema, &value, position)?,
                "properties" => self.read_map(&value, position, levels)?,
                map if MAPS.contains(&map) => self.read_map(&value, &Position::Elsewhere, levels)?,
                data if DATA.contains(&data) => {}
                _ => self.read(&value, &Position::Elsewhere, levels)?,
            }
        }
        Ok(())
    }

    fn read_map(&mut self, map: &Span, position: &Position, levels: usize) -> Result<(), String> {
        for (name, _, schema) in walk::members(self.schema, map) {
            self.read(&schema, &position.below(&name), levels)?;
        }
        Ok(())
    }

    fn annotate(&mut self, schema: &Span, annotation: &Span, position: &Position) -> Result<(), String> {
        let path = match position {
            Position::Property(path) if !path.is_empty() => path.clone(),
            Position::Property(_) => return Err("x-mcp-header is at the root of the schema".to_owned()),
            Position::Elsewhere => {
                return Err("x-mcp-header must be reached only through `properties`".to_owned());
            }
        };
        let property = path.join(".");
        let Some(name) = text::unescape(&self.schema[annotation.clone()]) else {
            return Err(format!("x-mcp-header of property {property:?} is not a string"));
        };
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("x-mcp-header {name:?} of property {property:?} is not an HTTP token"));
        }
        let kind = walk::member(self.schema, schema, "type").map(|span| &self.schema[span]);
        let kind = kind.and_then(text::unescape);
        if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
            return Err(format!(
                "property {property:?} has an x-mcp-header but is not a string, integer or boolean"
            ));
        }
        let header = format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase());
        if self.found.iter().any(|other| other.header == header) {
            return Err(format!("x-mcp-header {name:?} of property {property:?} is used twice"));
        }
        self.found.push(HeaderParam { header, path });
        Ok(())
    }
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotated_properties_are_found_at_any_depth() {
        let schema = br#"{"type":"object","properties":{"items":{"type":"string","x-mcp-header":"Items"},
            "at":{"type":"object","default":{"x-mcp-header":1},
                  "properties":{"region":{"x-mcp-header":"Region","type":"integer"}}}}}"#;
        let found = HeaderParam::from_schema(schema).unwrap();
        assert_eq!(found[0], HeaderParam { header: "mcp-param-items".into(), path: vec!["items".into()] });
        assert_eq!(found[1].path, ["at", "region"]);
        assert_eq!(HeaderParam::from_schema(b"true"), Ok(vec![]));
    }

    #[test]
    fn schemas_may_be_deeper_than_annotations() {
        let nested = |depth: usize, inner: &str| {
            format!("{}{inner}{}", r#"{"properties":{"a":"#.repeat(depth), "}}".repeat(depth))
        };
        let annotated = r#"{"type":"string","x-mcp-header":"A"}"#;
        let read = |depth, inner| HeaderParam::from_schema(nested(depth, inner).as_bytes());
        assert_eq!(read(490, "{}"), Ok(vec![]));
        assert_eq!(read(90, annotated).unwrap()[0].path.len(), 90);
        assert!(read(490, annotated).unwrap_err().contains("too deep"));
    }

    #[test]
    fn invalid_annotations_are_refused_with_a_reason() {
        for (schema, reason) in [
            (r#"{"x-mcp-header":"A"}"#, "root"),
            (r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#, "not a string, integer"),
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#, "token"),
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":"a:b"}}}"#, "token"),
            (r#"{"properties":{"a":{"type":"string","x-mcp-header":5}}}"#, "not a string"),
            (r#"{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}"#, "only through"),
            (r#"{"properties":{"a":{"oneOf":[{"type":"string","x-mcp-header":"A"}]}}}"#, "only through"),
            (r#"{"$defs":{"default":{"type":"string","x-mcp-header":"A"}}}"#, "only through"),
            (r#"{"then":{"properties":{"x":{"type":"string","x-mcp-header":"A"}}}}"#, "only through"),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},
                    "b":{"properties":{"c":{"type":"string","x-mcp-header":"a"}}}}}"#,
                "twice",
            ),
            ("{", "not valid JSON"),
        ] {
            let error = HeaderParam::from_schema(schema.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{schema}: {error}");
        }
    }
}
