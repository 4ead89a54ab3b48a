//! What one server offers: its description of itself and its tools, prompts, resources and templates. Definitions are
//! kept as the bytes that the upstream sent; the fields that the gateway needs are parsed from them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

use foldhash::quality::RandomState;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{OwnMeta, first_member};

/// Everything that a server offers.
#[derive(Clone, Debug, Default)]
pub struct Offering {
    pub protocol_version: String,
    /// The `serverInfo` object.
    pub server_info: Option<Box<RawValue>>,
    /// The server's `capabilities` object.
    pub capabilities: Option<Box<RawValue>>,
    pub instructions: Option<String>,
    pub tools: Vec<Arc<Tool>>,
    pub prompts: Vec<Arc<Prompt>>,
    pub resources: Vec<Arc<Resource>>,
    pub templates: Vec<Arc<Template>>,
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
        let declared: HashMap<Cow<'_, str>, &RawValue> = serde_json::from_str(declared).unwrap_or_default();
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

impl Offering {
    /// Uses the definitions of `other` wherever they are the same, so that each is in memory once.
    pub fn share_with(&mut self, other: &Offering) {
        share(&mut self.tools, &other.tools, Tool::key);
        share(&mut self.prompts, &other.prompts, Prompt::key);
        share(&mut self.resources, &other.resources, Resource::key);
        share(&mut self.templates, &other.templates, Template::key);
    }

    /// Adds what only `other` lists: every name that either of them has is in the result once.
    pub fn extended_by(&self, other: &Offering) -> Self {
        let mut all = self.clone();
        extend(&mut all.tools, &other.tools, Tool::key);
        extend(&mut all.prompts, &other.prompts, Prompt::key);
        extend(&mut all.resources, &other.resources, Resource::key);
        extend(&mut all.templates, &other.templates, Template::key);
        all
    }
}

fn share<T: PartialEq>(items: &mut [Arc<T>], others: &[Arc<T>], key: fn(&T) -> &str) {
    let known: HashMap<_, _> = others.iter().map(|other| (key(other), other)).collect();
    for item in items {
        if let Some(same) = known.get(key(item)).filter(|other| ***other == *item) {
            *item = (*same).clone();
        }
    }
}

fn extend<T>(items: &mut Vec<Arc<T>>, others: &[Arc<T>], key: fn(&T) -> &str) {
    let known: HashSet<_> = items.iter().map(|item| key(item).to_owned()).collect();
    items.extend(others.iter().filter(|other| !known.contains(key(other))).cloned());
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
                // serde reads a struct from an array, too.
                if !definition.get().trim_start().starts_with('{') {
                    return Err("a definition that is not an object".to_owned());
                }
                match serde_json::from_str(definition.get()) {
                    Ok(Key { $key }) => Ok(Self::new($key, definition)),
                    Err(error) => Err(format!("a definition without a usable \"{}\": {error}", $wire_key)),
                }
            }

            /// Reads a stored definition, which was parsed when it was taken in: only as far as its key.
            pub fn read_stored(definition: Box<RawValue>) -> Result<Self, String> {
                match first_member::read(&definition, $wire_key) {
                    Some($key) => Ok(Self::new($key, definition)),
                    None => Self::parse(definition),
                }
            }

            fn new($key: String, definition: Box<RawValue>) -> Self {
                Self { $key, digest: digest(&definition), definition }
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

/// The same definition has the same digest only within one process: with a seed that servers do not know, none of them can
/// make two definitions with one digest.
fn digest(definition: &RawValue) -> u64 {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    SEED.hash_one(definition.get())
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
            properties: HashMap<Cow<'a, str>, &'a RawValue>,
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
