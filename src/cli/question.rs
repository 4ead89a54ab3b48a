//! What a tool asks for while it runs, as the `input` events of its call have it. How a person is asked is in `answer`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::form_field::FormField;
use model::deep_json;

#[derive(serde::Deserialize)]
pub struct InputEvent {
    /// Names the call in the address for answers.
    pub call: String,
    requests: InOrder<SentRequest>,
}

#[derive(serde::Deserialize)]
struct SentRequest {
    method: String,
    params: Option<Box<RawValue>>,
}

/// A question with the key under which it is answered.
pub struct PendingQuestion {
    pub key: String,
    pub question: ToolQuestion,
}

pub enum ToolQuestion {
    Form {
        message: String,
        fields: Vec<FormField>,
    },
    /// A page that the person opens.
    Page {
        message: String,
        url: String,
    },
    Sampling {
        system_prompt: String,
        /// Roles and contents.
        messages: Vec<(String, Vec<Value>)>,
    },
    Roots,
    /// Something that this program cannot ask.
    Unknown {
        method: String,
    },
}

impl InputEvent {
    pub fn questions(self) -> impl Iterator<Item = PendingQuestion> {
        self.requests.0.into_iter().map(|(key, request)| {
            let params = request.params.as_ref().map_or("{}", |params| params.get());
            let question = ToolQuestion::read(&request.method, params)
                .unwrap_or(ToolQuestion::Unknown { method: request.method });
            PendingQuestion { key, question }
        })
    }
}

impl ToolQuestion {
    /// Reads a request. `None` if it is of an unknown kind, or not as the protocol has it.
    fn read(method: &str, params: &str) -> Option<Self> {
        let values = deep_json::parse(params).ok()?;
        let text = |key: &str| values[key].as_str().unwrap_or_default().to_owned();
        match (method, values["mode"].as_str().unwrap_or("form")) {
            ("elicitation/create", "form") => {
                let params: FormParams = serde_json::from_str(params).ok()?;
                let schema = params.schema;
                let field = |(name, property): (String, Value)| {
                    let required = schema.required.contains(&name);
                    FormField::new(&name, property, required)
                };
                let fields = schema.properties.0.into_iter().map(field).collect();
                Some(Self::Form { message: text("message"), fields })
            }
            ("elicitation/create", "url") => {
                Some(Self::Page { message: text("message"), url: values["url"].as_str()?.to_owned() })
            }
            ("sampling/createMessage", _) => {
                let message = |message: &Value| {
                    let content = match &message["content"] {
                        Value::Array(blocks) => blocks.clone(),
                        block => vec![block.clone()],
                    };
                    (message["role"].as_str().unwrap_or("unknown").to_owned(), content)
                };
                let messages = values["messages"].as_array()?.iter().map(message).collect();
                Some(Self::Sampling { system_prompt: text("systemPrompt"), messages })
            }
            ("roots/list", _) => Some(Self::Roots),
            _ => None,
        }
    }
}

#[derive(serde::Deserialize)]
struct FormParams {
    #[serde(rename = "requestedSchema")]
    schema: FormSchema,
}

#[derive(serde::Deserialize)]
struct FormSchema {
    #[serde(default)]
    properties: InOrder<Value>,
    #[serde(default)]
    required: Vec<String>,
}

/// The members of an object in the order of the text: a form is filled in as its author wrote it.
struct InOrder<T>(Vec<(String, T)>);

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for InOrder<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor(PhantomData))
    }
}

struct MembersVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for MembersVisitor<T> {
    type Value = InOrder<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(InOrder(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(event: &str) -> Vec<(String, ToolQuestion)> {
        let event: InputEvent = serde_json::from_str(event).unwrap();
        event.questions().map(|open| (open.key, open.question)).collect()
    }

    #[test]
    fn questions_and_fields_keep_their_order() {
        let event = r#"{"call":"c","requests":{
            "z":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object",
                "properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["age"]}}},
            "a":{"method":"roots/list"},
            "b":{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","url":"https://a.b/"}}
        }}"#;
        let found = read(event);
        let keys: Vec<_> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["z", "a", "b"]);
        let ToolQuestion::Form { message, fields } = &found[0].1 else { panic!("not a form") };
        let fields: Vec<_> = fields.iter().map(|field| (field.name.as_str(), field.required)).collect();
        assert_eq!((message.as_str(), fields), ("Who?", vec![("name", false), ("age", true)]));
        assert!(matches!(found[1].1, ToolQuestion::Roots));
        assert!(matches!(&found[2].1, ToolQuestion::Page { url, .. } if url == "https://a.b/"));
    }

    #[test]
    fn a_request_of_an_unknown_kind_or_form_is_not_asked() {
        for request in [
            r#"{"method":"elicitation/create","params":{"mode":"smoke","message":"m"}}"#,
            r#"{"method":"elicitation/create","params":{"message":"m","requestedSchema":7}}"#,
            r#"{"method":"elicitation/create","params":{"mode":"url","message":"m"}}"#,
            r#"{"method":"sampling/createMessage"}"#,
            r#"{"method":"future/ask","params":[1]}"#,
        ] {
            let found = read(&format!(r#"{{"call":"c","requests":{{"k":{request}}}}}"#));
            assert!(matches!(found[0].1, ToolQuestion::Unknown { .. }), "{request}");
        }
    }

    #[test]
    fn the_messages_of_a_sampling_request_may_have_one_block_or_several() {
        let found = read(
            r#"{"call":"c","requests":{"k":{"method":"sampling/createMessage","params":{"systemPrompt":"Be brief","maxTokens":9,
            "messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"assistant","content":[{"type":"text"},{"type":"image"}]}]}}}}"#,
        );
        let ToolQuestion::Sampling { system_prompt, messages } = &found[0].1 else { panic!("no sampling") };
        let counts: Vec<_> = messages.iter().map(|(role, blocks)| (role.as_str(), blocks.len())).collect();
        assert_eq!((system_prompt.as_str(), counts), ("Be brief", vec![("user", 1), ("assistant", 2)]));
    }
}
