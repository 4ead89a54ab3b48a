//! Client capabilities: what a server may request from a client during a call, and what else the client declares. A link
//! to a server declares one such set, so that no server requests something that the caller cannot provide.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::deep_json;

/// A set of capabilities. Two clients that declare the same have equal sets, in whatever order they wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// The known ones.
    bits: u8,
    /// The whole declaration, if it has more than the known ones: extensions, settings, unknown capabilities.
    declared: Option<Arc<str>>,
}

/// The longest declaration that is kept as it is; of a longer one only the known capabilities are.
pub const LONGEST_DECLARATION: usize = 4 * 1024;

/// The bit of each capability, its path in the JSON, and its value there.
const KNOWN: [(u8, &[&str], Setting); 8] = [
    (ROOTS, &["roots"], Setting::Object),
    (SAMPLING, &["sampling"], Setting::Object),
    (SAMPLING_TOOLS, &["sampling", "tools"], Setting::Object),
    (8, &["sampling", "context"], Setting::Object),
    (ELICITATION, &["elicitation"], Setting::Object),
    (ELICITATION_URL, &["elicitation", "url"], Setting::Object),
    (ELICITATION_FORM, &["elicitation", "form"], Setting::Object),
    (128, &["roots", "listChanged"], Setting::True),
];
const ROOTS: u8 = 1;
const SAMPLING: u8 = 2;
const SAMPLING_TOOLS: u8 = 4;
const ELICITATION: u8 = 16;
const ELICITATION_URL: u8 = 32;
const ELICITATION_FORM: u8 = 64;

/// How a capability is declared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    Object,
    True,
}

impl Setting {
    fn is_in(self, value: &Value) -> bool {
        match self {
            Setting::Object => value.is_object(),
            Setting::True => *value == Value::Bool(true),
        }
    }

    fn value(self) -> Value {
        match self {
            Setting::Object => json!({}),
            Setting::True => Value::Bool(true),
        }
    }
}

impl Capabilities {
    pub const NONE: Self = Self { bits: 0, declared: None };

    /// Reads the `capabilities` that a client declares.
    pub fn of(declared: &Value) -> Self {
        let has = |path: &[&str], setting: Setting| {
            path.iter().try_fold(declared, |at, key| at.get(key)).is_some_and(|value| setting.is_in(value))
        };
        let known = KNOWN.iter().filter(|(_, path, setting)| has(path, *setting));
        let known = Self::from_bits(known.fold(0, |bits, (bit, ..)| bits | bit));
        let is_more = declared.as_object().is_some_and(|object| *object != known.known_json());
        match is_more.then(|| declared.to_string()).filter(|text| text.len() <= LONGEST_DECLARATION) {
            Some(text) => Self { declared: Some(text.into()), ..known },
            None => known,
        }
    }

    pub fn from_bits(bits: u8) -> Self {
        Self { bits, declared: None }
    }

    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// The whole declaration, if it has more than the known capabilities.
    pub fn declaration(&self) -> Option<&Arc<str>> {
        self.declared.as_ref()
    }

    pub fn has_roots(&self) -> bool {
        self.bits & ROOTS != 0
    }

    pub fn has_sampling(&self) -> bool {
        self.bits & SAMPLING != 0
    }

    pub fn has_sampling_tools(&self) -> bool {
        self.bits & SAMPLING_TOOLS != 0
    }

    pub fn has_elicitation(&self) -> bool {
        self.bits & ELICITATION != 0
    }

    /// Whether a person can be asked to fill in a form. A client that names no mode has this one.
    pub fn has_form_elicitation(&self) -> bool {
        self.has_elicitation() && (self.bits & ELICITATION_FORM != 0 || !self.has_url_elicitation())
    }

    /// Whether a person can be asked to open a page.
    pub fn has_url_elicitation(&self) -> bool {
        self.bits & ELICITATION_URL != 0
    }

    /// Whether the client declares this extension.
    pub fn has_extension(&self, name: &str) -> bool {
        let declared = self.declared.as_deref().and_then(|declared| deep_json::parse(declared).ok());
        declared.is_some_and(|declared| declared["extensions"].get(name).is_some_and(Value::is_object))
    }

    /// Whether a client with the capabilities `other` can serve every request that these allow.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        let has_declared = self.declared.is_none() || self.declared == other.declared;
        self.bits & !other.bits == 0 && has_declared
    }

    /// The number of known capabilities in the set.
    pub fn len(&self) -> u32 {
        self.bits.count_ones()
    }

    pub fn is_empty(&self) -> bool {
        self.bits == 0 && self.declared.is_none()
    }

    /// The declaration that is sent to a server.
    pub fn to_json(&self) -> Vec<u8> {
        match &self.declared {
            Some(declared) => declared.as_bytes().to_vec(),
            None => Value::Object(self.known_json()).to_string().into_bytes(),
        }
    }

    fn known_json(&self) -> Map<String, Value> {
        let mut declared = Map::new();
        for (_, path, setting) in KNOWN.iter().filter(|(bit, ..)| self.bits & bit != 0) {
            let first = declared.entry(path[0]).or_insert_with(|| json!({}));
            if let Some(part) = path.get(1) {
                first[*part] = setting.value();
            }
        }
        declared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_reads_back() {
        for declared in [
            json!({}),
            json!({"roots": {}}),
            json!({"roots": {"listChanged": true}}),
            json!({"elicitation": {}}),
            json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}),
        ] {
            let capabilities = Capabilities::of(&declared);
            assert_eq!(serde_json::from_slice::<Value>(&capabilities.to_json()).unwrap(), declared);
            assert_eq!(Capabilities::from_bits(capabilities.bits()), capabilities);
        }
    }

    #[test]
    fn what_is_unknown_is_part_of_the_set() {
        let vendor = json!({
            "roots": {"listChanged": false},
            "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}},
            "x-vendor": {"depth": 3},
        });
        let capabilities = Capabilities::of(&vendor);
        assert_eq!(serde_json::from_slice::<Value>(&capabilities.to_json()).unwrap(), vendor);
        let roots = Capabilities::of(&json!({"roots": {}}));
        assert_ne!(capabilities, roots);
        assert!(roots.is_subset_of(&capabilities) && !capabilities.is_subset_of(&roots));
        assert!(!Capabilities::of(&json!({"extensions": {"a": {}}})).is_empty());
        assert!(capabilities.has_extension("io.modelcontextprotocol/ui"));
        assert!(!capabilities.has_extension("x-vendor") && !roots.has_extension("roots"));
    }

    #[test]
    fn of_a_declaration_that_is_too_long_only_the_known_part_is_kept() {
        let long = json!({"sampling": {}, "extensions": {"x": "y".repeat(LONGEST_DECLARATION)}});
        assert_eq!(Capabilities::of(&long), Capabilities::of(&json!({"sampling": {}})));
    }

    #[test]
    fn a_client_that_names_no_mode_of_elicitation_has_forms() {
        let modes = |elicitation: Value| {
            let declared = Capabilities::of(&json!({"elicitation": elicitation}));
            (declared.has_form_elicitation(), declared.has_url_elicitation())
        };
        assert_eq!(modes(json!({})), (true, false));
        assert_eq!(modes(json!({"form": {}})), (true, false));
        assert_eq!(modes(json!({"url": {}})), (false, true));
        assert_eq!(modes(json!({"form": {}, "url": {}})), (true, true));
        assert!(!Capabilities::NONE.has_form_elicitation());
    }

    #[test]
    fn what_is_no_declaration_declares_nothing() {
        for odd in [json!(null), json!([]), json!("roots")] {
            assert!(Capabilities::of(&odd).is_empty());
        }
        assert!(!Capabilities::of(&json!({"sampling": null})).has_sampling());
    }
}
