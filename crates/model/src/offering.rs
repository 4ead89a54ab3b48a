//! What one server offers: its description of itself and its tools, prompts, resources and templates. Definitions are
//! kept as the bytes that the upstream sent; the fields that the gateway needs are parsed from them.

use std::hash::{DefaultHasher, Hash, Hasher};

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::OwnMeta;

/// Everything that a server offers.
#[derive(Clone, Debug, Default)]
pub struct Offering {
    pub protocol_version: String,
    /// The `serverInfo` object.
    pub server_info: Option<Box<RawValue>>,
    /// The server's `capabilities` object.
    pub capabilities: Option<Box<RawValue>>,
    pub instructions: Option<String>,
    pub tools: Vec<Tool>,
    pub prompts: Vec<Prompt>,
    pub resources: Vec<Resource>,
    pub templates: Vec<Template>,
    /// How long the lists may be cached: the smallest `ttlMs` of the lists of a modern upstream.
    pub ttl_ms: Option<u64>,
    /// Whether a modern upstream marked at least one of its lists as private.
    pub is_private: bool,
    pub meta: OwnMeta,
}

impl Offering {
    /// Whether the server declares this capability.
    pub fn declares(&self, capability: &str) -> bool {
        let declared = self.capabilities.as_deref().map_or("{}", RawValue::get);
        let declared: std::collections::HashMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(declared).unwrap_or_default();
        declared.contains_key(capability)
    }

    /// Whether both would be stored and listed as the same bytes.
    pub fn same_as(&self, other: &Offering) -> bool {
        fn text(raw: &Option<Box<RawValue>>) -> Option<&str> {
            raw.as_deref().map(RawValue::get)
        }
        self.protocol_version == other.protocol_version
            && text(&self.server_info) == text(&other.server_info)
            && text(&self.capabilities) == text(&other.capabilities)
            && self.instructions == other.instructions
            && self.tools == other.tools
            && self.prompts == other.prompts
            && self.resources == other.resources
            && self.templates == other.templates
            && self.ttl_ms == other.ttl_ms
            && self.is_private == other.is_private
            && self.meta == other.meta
    }
}

/// Defines the type of a listed item: its key within its kind, and its definition as sent.
macro_rules! listed {
    ($(#[$doc:meta])* $kind:ident, $key:ident, $wire_key:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $kind {
            pub $key: String,
            pub definition: Box<RawValue>,
            /// A hash of the definition, for comparing lists quickly.
            pub digest: u64,
        }

        impl $kind {
            /// Parses a definition. The error says what it lacks.
            pub fn parse(definition: Box<RawValue>) -> Result<Self, String> {
                #[derive(Deserialize)]
                struct Key {
                    #[serde(rename = $wire_key)]
                    $key: String,
                }
                match serde_json::from_str::<Key>(definition.get()) {
                    Ok(Key { $key }) => Ok(Self { $key, digest: digest(&definition), definition }),
                    Err(error) => Err(format!("a definition without a usable \"{}\": {error}", $wire_key)),
                }
            }

            pub fn key(&self) -> &str {
                &self.$key
            }
        }

        impl PartialEq for $kind {
            fn eq(&self, other: &Self) -> bool {
                self.definition.get() == other.definition.get()
            }
        }
    };
}

fn digest(definition: &RawValue) -> u64 {
    let mut hasher = DefaultHasher::new();
    definition.get().hash(&mut hasher);
    hasher.finish()
}

listed!(Tool, name, "name");
listed!(Prompt, name, "name");
listed!(Resource, uri, "uri");
listed!(Template, uri_template, "uriTemplate");

/// The displayed fields of a tool definition, as the server sent them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolFields<'a> {
    #[serde(borrow)]
    pub title: Option<&'a RawValue>,
    #[serde(borrow)]
    pub description: Option<&'a RawValue>,
    #[serde(borrow)]
    pub input_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    pub output_schema: Option<&'a RawValue>,
    #[serde(borrow)]
    pub annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub icons: Option<&'a RawValue>,
    #[serde(borrow)]
    pub execution: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

impl Tool {
    pub fn fields(&self) -> ToolFields<'_> {
        serde_json::from_str(self.definition.get()).unwrap_or_default()
    }

    /// Whether the server declares that running the tool twice is safe.
    pub fn is_repeatable(&self) -> bool {
        #[derive(Deserialize)]
        struct Definition {
            #[serde(default)]
            annotations: Hints,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Hints {
            #[serde(default)]
            read_only_hint: bool,
            #[serde(default)]
            idempotent_hint: bool,
        }
        serde_json::from_str(self.definition.get()).is_ok_and(|definition: Definition| {
            definition.annotations.read_only_hint || definition.annotations.idempotent_hint
        })
    }

    /// Whether the input schema has a property `name` and none called `arguments`.
    pub fn takes_name_but_not_arguments(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Definition<'a> {
            #[serde(borrow)]
            input_schema: Schema<'a>,
        }
        #[derive(Deserialize)]
        struct Schema<'a> {
            #[serde(borrow)]
            properties: std::collections::HashMap<Cow<'a, str>, &'a RawValue>,
        }
        serde_json::from_str(self.definition.get()).is_ok_and(|definition: Definition<'_>| {
            let properties = &definition.input_schema.properties;
            properties.contains_key("name") && !properties.contains_key("arguments")
        })
    }
}

/// An argument of a prompt.
#[derive(Clone, Debug, Deserialize)]
pub struct PromptArgument {
    pub name: String,
    #[serde(default, deserialize_with = "null_or")]
    pub description: String,
    #[serde(default, deserialize_with = "null_or")]
    pub required: bool,
}

/// Reads `null` as the default value, since some servers write it instead of omitting the field.
fn null_or<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(value: D) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// The displayed fields of a prompt definition, as the server sent them.
#[derive(Default, Deserialize)]
pub struct PromptFields<'a> {
    #[serde(borrow)]
    pub title: Option<&'a RawValue>,
    #[serde(borrow)]
    pub description: Option<&'a RawValue>,
    #[serde(borrow)]
    pub icons: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

impl Prompt {
    pub fn fields(&self) -> PromptFields<'_> {
        serde_json::from_str(self.definition.get()).unwrap_or_default()
    }

    pub fn arguments(&self) -> Vec<PromptArgument> {
        #[derive(Deserialize)]
        struct Definition {
            #[serde(default, deserialize_with = "null_or")]
            arguments: Vec<PromptArgument>,
        }
        let definition = serde_json::from_str(self.definition.get());
        definition.map(|definition: Definition| definition.arguments).unwrap_or_default()
    }

    pub fn required_arguments(&self) -> Vec<String> {
        let arguments = self.arguments().into_iter();
        arguments.filter(|argument| argument.required).map(|argument| argument.name).collect()
    }
}

/// The displayed fields of a resource or template definition, as the server sent them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFields<'a> {
    #[serde(borrow)]
    pub name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub title: Option<&'a RawValue>,
    #[serde(borrow)]
    pub description: Option<&'a RawValue>,
    #[serde(borrow)]
    pub mime_type: Option<&'a RawValue>,
    #[serde(borrow)]
    pub annotations: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

impl Resource {
    pub fn fields(&self) -> ResourceFields<'_> {
        serde_json::from_str(self.definition.get()).unwrap_or_default()
    }
}

impl Template {
    pub fn fields(&self) -> ResourceFields<'_> {
        serde_json::from_str(self.definition.get()).unwrap_or_default()
    }
}
