//! Log lines for programs: each event is one JSON object on one line, its fields beside `at`, `level`, `target` and
//! `message`, and `call` if it belongs to one.

use std::fmt::Debug;
use std::io::Write;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, Layer};

use crate::{CallId, Unfailing};

/// The keys that every line has.
const OWN: [&str; 5] = ["at", "level", "target", "message", "call"];

/// Writes each event as JSON to standard error.
pub struct JsonLines;

impl<S: Subscriber> Layer<S> for JsonLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let line = line_of(event);
        // In one piece, so that lines of other threads and processes do not get into it.
        let _ = Unfailing(std::io::stderr().lock()).write_all(line.as_bytes());
    }
}

fn line_of(event: &Event<'_>) -> String {
    let mut at = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut at));
    let mut fields = JsonFields::default();
    event.record(&mut fields);
    let metadata = event.metadata();
    let level = metadata.level().as_str().to_ascii_lowercase();
    let mut line = String::from("{");
    for (key, value) in OWN.into_iter().zip([at.as_str(), &level, metadata.target(), fields.message.as_str()])
    {
        add(&mut line, key, &Value::from(value));
    }
    line.push_str(&fields.others);
    if let Some(call) = CallId::current() {
        add(&mut line, "call", &Value::from(call.to_string()));
    }
    line.push_str("}\n");
    line
}

/// Adds a member to an object that is being written.
fn add(object: &mut String, key: &str, value: &Value) {
    if object != "{" {
        object.push(',');
    }
    object.push_str(&format!("{}:{value}", Value::from(key)));
}

#[derive(Default)]
struct JsonFields {
    message: String,
    /// All other fields, as members that follow others.
    others: String,
}

impl JsonFields {
    fn take(&mut self, field: &Field, value: Value) {
        let name = field.name();
        match (name, value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => {
                let name = if OWN.contains(&name) { format!("{name}_") } else { name.to_owned() };
                self.others.push_str(&format!(",{}:{value}", Value::from(name)));
            }
        }
    }
}

impl Visit for JsonFields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.take(field, value.to_string().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    struct Kept(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(line_of(event));
        }
    }

    #[test]
    fn each_event_is_one_object_on_one_line() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let subscriber = tracing_subscriber::registry().with(Kept(lines.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let (count, error) = (3, std::fmt::Error);
            tracing::info!(server = %"a\n\"b\"", count, is_new = true, ?error, level = 1.5, "two\nlines");
            tracing::debug!(nothing = f64::NAN);
        });
        let lines = lines.lock().unwrap();
        assert!(lines.iter().all(|line| line.ends_with("}\n") && line.matches('\n').count() == 1));
        let mut first: Value = serde_json::from_str(&lines[0]).unwrap();
        let at = first["at"].take();
        assert!(at.as_str().is_some_and(|at| at.starts_with("20") && at.ends_with('Z')), "{at}");
        assert_eq!(
            first,
            json!({"at": null, "level": "info", "target": "telemetry::json_lines::tests", "message": "two\nlines",
                "server": "a\n\"b\"", "count": 3, "is_new": true, "error": "Error", "level_": 1.5})
        );
        assert!(lines[0].starts_with("{\"at\":\"20"), "{}", lines[0]);
        let second: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!((&second["message"], &second["nothing"]), (&json!(""), &Value::Null));
    }
}
