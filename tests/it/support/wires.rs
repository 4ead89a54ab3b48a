//! Wires: one fake upstream for each transport and era, with a journal of its calls that is read in the same way for all
//! of them and survives a process.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::fake::recorded;
use super::{Behaviour, Fake, TestApp, stdio_command};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Streamable HTTP with plain JSON responses.
    HttpJson,
    /// Streamable HTTP with event streams as responses.
    HttpEvents,
    /// Streamable HTTP of revision 2026-07-28.
    HttpModern,
    Stdio,
    /// HTTP+SSE.
    Sse,
}

impl Wire {
    pub const ALL: [Self; 5] = [Self::HttpJson, Self::HttpEvents, Self::HttpModern, Self::Stdio, Self::Sse];

    /// Whether each call has its own stream, so that every message on it belongs to that call.
    pub fn is_streamable(self) -> bool {
        !matches!(self, Wire::Stdio | Wire::Sse)
    }

    fn behaviour(self) -> Value {
        match self {
            Wire::HttpEvents => json!({"era": "legacy", "answer": "sse"}),
            Wire::HttpModern => json!({"era": "modern"}),
            Wire::HttpJson | Wire::Stdio | Wire::Sse => json!({"era": "legacy"}),
        }
    }
}

/// A registered server.
pub struct Server {
    pub name: String,
    journal: PathBuf,
    /// `None` if the server is a process.
    pub fake: Option<Fake>,
}

impl Server {
    /// `settings` are added to the registration.
    pub async fn register(app: &TestApp, wire: Wire, name: &str, settings: Value) -> Self {
        Self::register_with(app, wire, name, json!({}), settings).await
    }

    /// `behaviour` is added to that of the wire.
    pub async fn register_with(
        app: &TestApp,
        wire: Wire,
        name: &str,
        behaviour: Value,
        settings: Value,
    ) -> Self {
        let journal = app.folder.path().join(format!("{name}.journal"));
        let mut whole = wire.behaviour();
        whole["journal"] = json!(journal);
        extend(&mut whole, behaviour);
        let mut behaviour = Behaviour::of(whole);
        let mut tools = behaviour.tool_names();
        tools.push("verbatim".to_owned());
        behaviour.show_tools(&tools);
        let fake = match wire {
            Wire::Stdio => None,
            _ => Some(Fake::start(behaviour.clone()).await),
        };
        let mut input = match (wire, &fake) {
            (Wire::Sse, Some(fake)) => json!({"transport": "sse", "url": fake.sse_url()}),
            (_, Some(fake)) => json!({"transport": "streamable_http", "url": fake.url()}),
            (_, None) => {
                let (command, args) = stdio_command(&behaviour);
                json!({"transport": "stdio", "command": command, "args": args})
            }
        };
        input["name"] = json!(name);
        extend(&mut input, settings);
        app.register(input).await;
        Self { name: name.to_owned(), journal, fake }
    }

    /// The full name of a tool.
    pub fn tool(&self, tool: &str) -> String {
        format!("{}__{tool}", self.name)
    }

    /// How often a call with this mark ran.
    pub fn ran(&self, mark: &str) -> usize {
        recorded(&self.journal, "ran", mark)
    }

    /// How many calls with this mark were cancelled.
    pub fn cancelled(&self, mark: &str) -> usize {
        recorded(&self.journal, "cancelled", mark)
    }
}

fn extend(whole: &mut Value, more: Value) {
    let (Some(whole), Value::Object(more)) = (whole.as_object_mut(), more) else {
        panic!("settings are an object");
    };
    whole.extend(more);
}
