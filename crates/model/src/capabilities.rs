//! Client capabilities: what a server may request from a client during a call. A link to a server declares one such
//! set, so that no server requests something that the caller cannot provide.

use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(u8);

/// The bit of each capability, and its path in the JSON.
const KNOWN: [(u8, &[&str]); 6] = [
    (1, &["roots"]),
    (2, &["sampling"]),
    (4, &["sampling", "tools"]),
    (8, &["sampling", "context"]),
    (16, &["elicitation"]),
    (32, &["elicitation", "url"]),
];
const ROOTS: u8 = 1;
const SAMPLING: u8 = 2;
const ELICITATION: u8 = 16;
const FORM: (u8, &[&str]) = (64, &["elicitation", "form"]);

impl Capabilities {
    pub const NONE: Self = Self(0);

    /// Reads the `capabilities` that a client declares. Unknown ones are dropped, since they cannot be passed on.
    pub fn of(declared: &Value) -> Self {
        let has = |path: &[&str]| {
            path.iter().try_fold(declared, |at, key| at.get(key)).is_some_and(Value::is_object)
        };
        let known = KNOWN.iter().chain([&FORM]).filter(|(_, path)| has(path));
        Self(known.fold(0, |bits, (bit, _)| bits | bit))
    }

    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn has_roots(self) -> bool {
        self.0 & ROOTS != 0
    }

    pub fn has_sampling(self) -> bool {
        self.0 & SAMPLING != 0
    }

    pub fn has_elicitation(self) -> bool {
        self.0 & ELICITATION != 0
    }

    pub fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The declaration that is sent to a server.
    pub fn to_json(self) -> Vec<u8> {
        let mut declared = Map::new();
        for (_, path) in KNOWN.iter().chain([&FORM]).filter(|(bit, _)| self.0 & bit != 0) {
            let first = declared.entry(path[0]).or_insert_with(|| json!({}));
            if let Some(part) = path.get(1) {
                first[*part] = json!({});
            }
        }
        Value::Object(declared).to_string().into_bytes()
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
            json!({"elicitation": {}}),
            json!({"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}),
        ] {
            let capabilities = Capabilities::of(&declared);
            assert_eq!(serde_json::from_slice::<Value>(&capabilities.to_json()).unwrap(), declared);
            assert_eq!(Capabilities::from_bits(capabilities.bits()), capabilities);
        }
        let vendor = json!({"roots": {"listChanged": true}, "experimental": {"x": {}}, "sampling": null});
        assert_eq!(Capabilities::of(&vendor).to_json(), br#"{"roots":{}}"#);
    }
}
