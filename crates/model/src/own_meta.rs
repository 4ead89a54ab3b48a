//! The `_meta` objects that a server sends with its description of itself and with its lists, as sent, without the
//! protocol's own keys.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The `_meta` of the handshake, and of the first page of each list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OwnMeta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub templates: Option<Box<RawValue>>,
}

impl OwnMeta {
    /// All of it as one object; `None` if the server sent none.
    pub fn to_json(&self) -> Option<String> {
        let is_empty = self.texts().iter().all(Option::is_none);
        (!is_empty).then(|| serde_json::to_string(self).expect("raw JSON always serializes to memory"))
    }

    fn texts(&self) -> [Option<&str>; 5] {
        [&self.handshake, &self.tools, &self.prompts, &self.resources, &self.templates]
            .map(|meta| meta.as_deref().map(RawValue::get))
    }
}

impl PartialEq for OwnMeta {
    fn eq(&self, other: &Self) -> bool {
        self.texts() == other.texts()
    }
}
