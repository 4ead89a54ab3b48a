//! Reads and changes the definitions of tools and prompts as text.

use memchr::memmem;

use model::Tool;
use wire::{HeaderParam, Patch, text, walk};

/// Replaces one member of a definition; every other byte stays as it was.
pub fn with_member(definition: &[u8], key: &str, value: &str) -> Vec<u8> {
    let Ok(object) = walk::whole(definition) else { return definition.to_vec() };
    let mut patch = Patch::new(definition);
    patch.set_member(&object, key, &text::quote(value));
    patch.apply().into()
}

/// The name and header parameters of a tool. Most tools have none, which a text search finds out fast. Annotations that
/// break the rules are ignored, as clients do.
pub(super) fn header_params(tool: &Tool) -> Option<(Box<str>, Vec<HeaderParam>)> {
    memmem::find(tool.definition.get().as_bytes(), b"x-mcp-header")?;
    let schema = tool.fields().input_schema?;
    let params = HeaderParam::from_schema(schema.get().as_bytes()).ok()?;
    Some((tool.name.as_str().into(), params))
}
