//! The standard definitions of the fake upstream, as text.
//! What the tools do is in `tools` and `control`.

use serde_json::value::RawValue;

/// Name, description and the properties of the input schema.
const PLAIN: [(&str, &str, &str); 31] = [
    ("echo", "Returns its arguments as text", r#"{"text":{"type":"string"}}"#),
    ("add", "Adds two numbers", r#"{"a":{"type":"number"},"b":{"type":"number"}}"#),
    ("image", "Returns a picture", "{}"),
    ("fail", "Reports an error as its result", "{}"),
    ("rpc_error", "Answers with a JSON-RPC error", "{}"),
    ("slow", "Waits", r#"{"ms":{"type":"integer"}}"#),
    ("progress", "Reports progress", r#"{"steps":{"type":"integer"},"ms":{"type":"integer"}}"#),
    ("echo_args", "Returns the exact text of its arguments", "{}"),
    ("counter", "Counts how often it ran", "{}"),
    ("env", "Reads an environment variable", r#"{"name":{"type":"string"}}"#),
    ("cwd", "Names the working directory", "{}"),
    ("pid", "Names the process", "{}"),
    ("spawn_grandchild", "Starts a process", r#"{"setsid":{"type":"boolean"},"inherit":{"type":"boolean"}}"#),
    ("headers", "Returns the HTTP headers of this call", "{}"),
    ("ask", "Asks the user for a colour", "{}"),
    ("log", "Sends a log message", r#"{"level":{"type":"string"},"data":{}}"#),
    ("cancelled", "Lists the ids cancelled so far", "{}"),
    ("garbage", "Writes what is not JSON before its answer", "{}"),
    ("huge", "Returns that many bytes", r#"{"bytes":{"type":"integer"}}"#),
    ("cut", "Ends its stream before the answer", r#"{"ms":{"type":"integer"}}"#),
    ("hang_up", "Closes the connection unanswered", "{}"),
    ("set_tools", "Replaces the visible tools", r#"{"names":{"type":"array","items":{"type":"string"}}}"#),
    ("add_tool", "Adds a tool", r#"{"name":{"type":"string"}}"#),
    ("remove_tool", "Removes a tool", r#"{"name":{"type":"string"}}"#),
    ("touch", "Announces a change of a resource", r#"{"uri":{"type":"string"}}"#),
    ("die", "Ends the server", r#"{"code":{"type":"integer"},"after_ms":{"type":"integer"}}"#),
    ("drop_session", "Forgets all sessions", "{}"),
    ("drop_connections", "Closes all connections", r#"{"after_ms":{"type":"integer"}}"#),
    ("set_behaviour", "Merges into the configuration", "{}"),
    ("seen", "Lists the methods received so far", "{}"),
    ("sessions", "Lists open and deleted sessions", "{}"),
];

const WHOLE: [&str; 6] = [
    concat!(
        r#"{"name":"structured","description":"Returns structured content","#,
        r#""inputSchema":{"type":"object","properties":{"city":{"type":"string"}}},"#,
        r#""outputSchema":{"type":"object","properties":{"city":{"type":"string"},"#,
        r#""degrees":{"type":"number"}},"required":["city","degrees"]}}"#,
    ),
    // What a typed model would drop or change: order, unknown keys, integers beyond 64 bits, `1.0`, escapes.
    concat!(
        r#"{"x-first":"before the name","name":"vendor","title":"Vendor \u00e9 tool","#,
        r#""description":"Keeps every key","inputSchema":{"#,
        r#""$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","#,
        r#""x-vendor-order":["b","a"],"properties":{"#,
        r#""zeta":{"type":"integer","maximum":98765432109876543210},"#,
        r#""alpha":{"type":"number","multipleOf":1.0,"x-unit":"m"}},"#,
        r#""patternProperties":{"^x-":{"type":"string"}},"if":{"required":["zeta"]},"#,
        r#""then":{"minProperties":1},"$defs":{"odd":{"not":{}}},"additionalProperties":false},"#,
        r#""outputSchema":{"type":"object","x-out":1e2},"#,
        r#""annotations":{"title":"Annotated","idempotentHint":true,"vendorHint":"kept"},"#,
        r#""icons":[{"src":"https://example.com/icon.png","mimeType":"image/png","#,
        r#""sizes":["48x48"],"theme":"dark"}],"execution":{"taskSupport":"forbidden","vendor":true},"#,
        r#""_meta":{"example.com/big":12345678901234567890123,"#,
        r#""example.com/nested":{"a":[1,2.50,null]}},"x-vendor":{"deep":{"er":true}}}"#,
    ),
    concat!(
        r#"{"name":"read_only","description":"Changes nothing","inputSchema":{"type":"object"},"#,
        r#""annotations":{"readOnlyHint":true}}"#,
    ),
    concat!(
        r#"{"name":"region","description":"Sends arguments as headers too","#,
        r#""inputSchema":{"type":"object","properties":{"#,
        r#""region":{"type":"string","x-mcp-header":"Region"},"#,
        r#""limit":{"type":"integer","x-mcp-header":"Limit"}}}}"#,
    ),
    concat!(
        r#"{"name":"bad_header","description":"Its header name is not valid","#,
        r#""inputSchema":{"type":"object","properties":{"#,
        r#""region":{"type":"string","x-mcp-header":"bad header"}}}}"#,
    ),
    concat!(
        r#"{"name":"named","description":"Has a property called name","#,
        r#""inputSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}"#,
    ),
];

pub fn tools() -> Vec<Box<RawValue>> {
    let plain = PLAIN.iter().map(|(name, description, properties)| tool(name, description, properties));
    plain.chain(WHOLE.iter().map(|text| raw((*text).to_owned()))).collect()
}

pub fn plain_tool(name: &str) -> Box<RawValue> {
    tool(name, "Returns its arguments as text", "{}")
}

pub fn prompts() -> Vec<Box<RawValue>> {
    [
        concat!(
            r#"{"name":"greet","title":"Greeting","description":"Greets somebody","#,
            r#""arguments":[{"name":"who","description":"Whom to greet","required":true},"#,
            r#"{"name":"tone","required":false}],"_meta":{"example.com/kept":1}}"#,
        ),
        r#"{"name":"plain","description":"Takes nothing"}"#,
        r#"{"name":"picture","description":"Has an image in its messages"}"#,
    ]
    .map(|text| raw(text.to_owned()))
    .into()
}

pub fn resources() -> Vec<Box<RawValue>> {
    [
        concat!(
            r#"{"uri":"fake://text","name":"text","title":"A text","description":"Plain text","#,
            r#""mimeType":"text/plain","annotations":{"audience":["user"],"priority":0.5}}"#,
        ),
        concat!(
            r#"{"uri":"fake://blob","name":"blob","description":"Four bytes","#,
            r#""mimeType":"application/octet-stream","size":4}"#,
        ),
        concat!(
            r#"{"uri":"file:///fake/notes.md","name":"notes","mimeType":"text/markdown","#,
            r#""_meta":{"example.com/kept":true}}"#,
        ),
    ]
    .map(|text| raw(text.to_owned()))
    .into()
}

pub fn templates() -> Vec<Box<RawValue>> {
    [
        concat!(
            r#"{"uriTemplate":"fake://item/{id}","name":"item","description":"One item","#,
            r#""mimeType":"text/plain"}"#,
        ),
        r#"{"uriTemplate":"fake://pair/{left}/{right}","name":"pair"}"#,
    ]
    .map(|text| raw(text.to_owned()))
    .into()
}

fn tool(name: &str, description: &str, properties: &str) -> Box<RawValue> {
    let name = serde_json::Value::from(name);
    let schema = format!(r#"{{"type":"object","properties":{properties}}}"#);
    raw(format!(r#"{{"name":{name},"description":"{description}","inputSchema":{schema}}}"#))
}

fn raw(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("the standard definitions are JSON")
}
