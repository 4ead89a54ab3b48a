//! Reads any bytes as every kind of REST request body. Promises: an accepted body is the same after storing and
//! exporting, a change is idempotent, and a call keeps its arguments.

use bytes::Bytes;
use model::{Client, FieldError, Fields, Group, GroupName, Registration, User, UserChange};
use serde_json::{Map, Value, json};
use toolgate::http::api::tools::InvokeRequest;
use toolgate::http::extract::json_object;
use wire::walk::{members, whole};

pub const DICTIONARY: &[&str] = &[
    "\"name\":",
    "\"name\":\"a\"",
    "\"transport\":\"stdio\"",
    "\"transport\":\"sse\"",
    "\"transport\":\"streamable_http\"",
    "\"url\":\"http://u:p@h:1/x?k=v#f\"",
    "\"url\":\"https://[::1]/\"",
    "\"command\":\"npx\"",
    "\"args\":[\"-y\"]",
    "\"env\":{\"A\":\"b\"}",
    "\"env\":{\"A\":null}",
    "\"headers\":{\"X-A\":\"b\"}",
    "\"headers\":{\"x-a\":null}",
    "\"bearer_token\":\"t\"",
    "\"cwd\":\"/\"",
    "\"session_mode\":\"stateful\"",
    "\"timeout_ms\":0",
    "\"max_concurrency\":3",
    "\"enabled\":false",
    "\"disabled_tools\":[\"x\"]",
    "\"oauth_redirect_uri\":\"http://l/cb\"",
    "\"oauth_client_id\":\"c\"",
    "\"oauth_client_secret\":\"s\"",
    "\"oauth_scopes\":[\"o\"]",
    "\"included_tools\":[\"a__b\"]",
    "\"included_servers\":[\"a\"]",
    "\"excluded_tools\":[]",
    "\"allow_list\":[\"a\"]",
    "\"allow_list\":\"*\"",
    "\"username\":\"u\"",
    "\"role\":\"admin\"",
    "\"access_token\":\"0123456789012345678901234567890123456789\"",
    "\"arguments\":{",
    "\"uri\":\"x://y\"",
    "null",
    "{}",
    "[]",
    "\"\"",
    "\\u0000",
    "__",
    "1e400",
    ",",
];

pub fn run(input: &[u8]) {
    let body = Bytes::copy_from_slice(input);
    call(&body);
    let Ok(object) = json_object(&body) else { return };
    if let Ok(registration) = Registration::parse(object.clone()) {
        let exported = registration.to_json();
        assert_eq!(Registration::parse(exported).as_ref(), Ok(&registration), "an export is another server");
        assert_eq!(registration.amended(Map::new()).as_ref(), Ok(&registration));
    }
    for base in bases() {
        if let Ok(amended) = base.amended(object.clone()) {
            assert_eq!(amended.amended(object.clone()).as_ref(), Ok(&amended), "a change counts once");
        }
    }
    let _ = Group::parse(object.clone()).map(|group| group.name.as_str().len());
    let name = GroupName::parse("dev").expect("a name");
    let _ = Group::parse_replacement(name, object.clone());
    if let Ok(client) = Client::parse(object.clone()) {
        let _ = client.replaced(object.clone());
    }
    let _ = User::parse(object.clone());
    let _ = UserChange::parse(object.clone());
    let _ = rendering(object);
}

fn call(body: &Bytes) {
    for nests in [false, true] {
        let Ok(call) = InvokeRequest::parse(body, |_| nests) else { continue };
        let arguments = whole(&call.arguments).expect("arguments are JSON");
        assert_eq!(call.arguments[arguments.start], b'{');
        let theirs: Value = match serde_json::from_slice(body) {
            Ok(theirs) => theirs,
            // Nested deeper, or with larger numbers, than serde_json accepts.
            Err(_) => continue,
        };
        assert_eq!(theirs["name"], call.name.as_str());
        if !nests {
            let keys = || members(&call.arguments, &arguments).map(|(key, ..)| key);
            assert!(keys().all(|key| key != "name"));
            let mut object = theirs.as_object().cloned().unwrap_or_default();
            object.remove("name");
            let ours: Value = serde_json::from_slice(&call.arguments).expect("JSON, as a part of JSON");
            assert_eq!(ours, Value::Object(object), "an argument was changed");
        }
    }
}

/// Servers to which a change is applied.
fn bases() -> Vec<Registration> {
    let http = json!({"name": "a", "transport": "sse", "url": "http://h/", "headers": {"X-A": "1", "x-b": "2"}, "bearer_token": "t"});
    let stdio = json!({"name": "a", "transport": "stdio", "command": "npx", "env": {"A": "1", "B": "2"}});
    let parse = |value: Value| value.as_object().cloned().and_then(|object| Registration::parse(object).ok());
    [http, stdio].into_iter().filter_map(parse).collect()
}

/// Reads the body like the route that renders prompts.
fn rendering(object: Map<String, Value>) -> Result<(), FieldError> {
    let mut fields = Fields::new(object);
    fields.required_text("name")?;
    fields.text_map("arguments")?;
    fields.finish()
}
