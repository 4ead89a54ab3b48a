//! Asks a person what a tool wants to know, one question after the other, and makes the result that the protocol has
//! for it. Text of the server is marked as such and escaped.

use std::io::{BufRead, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use url::Url;

use super::form_field::{FieldKind, FormField};
use super::output::Prompter;
use super::question::ToolQuestion;

/// Asks for the answer to a question of `tool`; `Value::Null` refuses it. `home` is what `~` stands for.
pub fn ask<R: BufRead, W: Write>(
    prompter: &mut Prompter<R, W>,
    tool: &str,
    question: &ToolQuestion,
    home: Option<&str>,
) -> Value {
    match question {
        ToolQuestion::Form { message, fields } => ask_form(prompter, tool, message, fields),
        ToolQuestion::Page { message, url } => ask_page(prompter, tool, message, url),
        ToolQuestion::Sampling { system_prompt, messages } => {
            prompter
                .say(&format!("{tool} asks for an answer from a language model. You can write it yourself."));
            if !system_prompt.is_empty() {
                prompter.say("system prompt:");
                prompter.quote(system_prompt);
            }
            for (role, blocks) in messages {
                prompter.say(&format!("{}:", role.replace('\n', " ")));
                blocks.iter().for_each(|block| prompter.quote(&block_text(block)));
            }
            ask_text(prompter)
        }
        ToolQuestion::Roots => ask_roots(prompter, tool, home),
        ToolQuestion::Unknown { method } => {
            prompter.say(&format!("{tool} sent {method:?}, which cannot be answered here; it was refused."));
            Value::Null
        }
    }
}

fn ask_form<R: BufRead, W: Write>(
    prompter: &mut Prompter<R, W>,
    tool: &str,
    message: &str,
    fields: &[FormField],
) -> Value {
    prompter.say(&format!("{tool} asks:"));
    prompter.quote(message);
    if let Some(refusal) = consent(prompter, "Press Enter to answer, d to decline, Ctrl-D to cancel: ") {
        return refusal;
    }
    loop {
        let mut content = Map::new();
        for field in fields {
            let Some(value) = ask_field(prompter, field) else { return cancelled() };
            content.extend(value.map(|value| (field.name.clone(), value)));
        }
        // A single answer was just read by the person; several are worth a look before they are sent.
        if fields.len() < 2 {
            return json!({"action": "accept", "content": content});
        }
        prompter.say("Your answers:");
        for field in fields.iter().filter(|field| content.contains_key(&field.name)) {
            prompter.say(&format!("  {}: {}", field.title, content[&field.name]));
        }
        let line =
            prompter.line("Press Enter to send them, e to edit them, d to decline, Ctrl-D to cancel: ");
        match line.as_deref().map(str::trim) {
            None => return cancelled(),
            Some("d" | "D") => return declined(),
            Some("e" | "E") => {}
            Some(_) => return json!({"action": "accept", "content": content}),
        }
    }
}

/// Asks for a field until the line is right. Returns `None` to cancel, `Some(None)` for no value.
fn ask_field<R: BufRead, W: Write>(
    prompter: &mut Prompter<R, W>,
    field: &FormField,
) -> Option<Option<Value>> {
    prompter.say(&format!("{} ({})", field.title, field.expected()));
    prompter.quote(&field.description);
    if let FieldKind::One(choices) | FieldKind::Several(choices) = &field.kind {
        for (at, choice) in choices.iter().enumerate() {
            prompter.say(&format!("  {}) {}", at + 1, choice.title));
        }
    }
    let prompt = field.shown_default().map_or("> ".to_owned(), |default| format!("[{default}] > "));
    loop {
        match field.read(&prompter.line(&prompt)?) {
            Ok(value) => return Some(value),
            Err(reason) => prompter.say(&format!("{} {reason}.", field.title)),
        }
    }
}

fn ask_page<R: BufRead, W: Write>(
    prompter: &mut Prompter<R, W>,
    tool: &str,
    message: &str,
    url: &str,
) -> Value {
    prompter.say(&format!("{tool} asks you to open a page:"));
    prompter.quote(message);
    prompter.quote(url);
    let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    match parsed.as_ref().and_then(Url::host_str) {
        Some(host) => prompter.say(&format!("The page is on {host}. Open it only if you trust that host.")),
        None => prompter.say("This is not the address of a web page. Decline it unless you expect it."),
    }
    let refusal = consent(prompter, "Press Enter when done, or d to decline, Ctrl-D to cancel: ");
    refusal.unwrap_or_else(|| json!({"action": "accept"}))
}

fn ask_text<R: BufRead, W: Write>(prompter: &mut Prompter<R, W>) -> Value {
    prompter
        .say("Write the answer; an empty line or Ctrl-D ends it. Without any text, the request is refused.");
    let mut lines = Vec::new();
    while let Some(line) = prompter.line("> ").filter(|line| !line.trim().is_empty()) {
        lines.push(line);
    }
    if lines.is_empty() {
        return Value::Null;
    }
    let content = json!({"type": "text", "text": lines.join("\n")});
    json!({"role": "assistant", "content": content, "model": "human"})
}

fn ask_roots<R: BufRead, W: Write>(prompter: &mut Prompter<R, W>, tool: &str, home: Option<&str>) -> Value {
    prompter.say(&format!("{tool} asks which folders it may work in."));
    prompter.say("Enter one folder per line; an empty line ends the list. Ctrl-D refuses.");
    let mut roots: Vec<Value> = Vec::new();
    loop {
        let Some(line) = prompter.line("> ") else { return Value::Null };
        match line.trim() {
            "" => return json!({ "roots": roots }),
            entered => match root(entered, home) {
                Ok(root) => roots.push(root),
                Err(reason) => prompter.say(&reason),
            },
        }
    }
}

/// Makes a root of a path or of a `file://` URI.
fn root(entered: &str, home: Option<&str>) -> Result<Value, String> {
    let path = match Url::parse(entered) {
        Ok(url) if url.scheme() == "file" => {
            url.to_file_path().map_err(|()| format!("{entered} is not a folder on this machine."))?
        }
        _ => match (entered.strip_prefix('~'), home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                Path::new(home).join(rest.trim_start_matches('/'))
            }
            _ => entered.into(),
        },
    };
    if !path.is_dir() {
        return Err(format!("{} is not a folder.", path.display()));
    }
    // Symbolic links and dots are resolved: the server gets the folder itself.
    let path = path.canonicalize().map_err(|error| format!("{}: {error}.", path.display()))?;
    let uri = Url::from_file_path(&path).map_err(|()| format!("{} has no URI.", path.display()))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(match name {
        Some(name) => json!({"uri": uri.as_str(), "name": name}),
        None => json!({"uri": uri.as_str()}),
    })
}

/// Waits for consent. Returns the answer of a person who does not give it.
fn consent<R: BufRead, W: Write>(prompter: &mut Prompter<R, W>, prompt: &str) -> Option<Value> {
    loop {
        match prompter.line(prompt).as_deref().map(str::trim) {
            None => return Some(cancelled()),
            Some("") => return None,
            Some("d" | "D") => return Some(declined()),
            Some(_) => {}
        }
    }
}

fn declined() -> Value {
    json!({"action": "decline"})
}

fn cancelled() -> Value {
    json!({"action": "cancel"})
}

/// Formats a block of a message; data is only named.
fn block_text(block: &Value) -> String {
    match (block["type"].as_str(), block["text"].as_str()) {
        (_, Some(text)) => text.to_owned(),
        (kind, None) => {
            let media = block["mimeType"].as_str().unwrap_or_default();
            format!("[{}]", [kind.unwrap_or("unknown content"), media].join(" ").trim_end())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::InputEvent;
    use super::*;

    /// Asks with typed lines; returns the answer and what was shown.
    fn answer(request: &Value, typed: &str) -> (Value, String) {
        let event = json!({"call": "c", "requests": {"k": request}}).to_string();
        let event: InputEvent = serde_json::from_str(&event).unwrap();
        let open = event.questions().next().unwrap();
        let mut shown = Vec::new();
        let mut prompter = Prompter::new(typed.as_bytes(), &mut shown);
        let answer = ask(&mut prompter, "s__ask", &open.question, Some("/"));
        (answer, String::from_utf8(shown).unwrap())
    }

    fn form(properties: &Value, required: &[&str]) -> Value {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        json!({"method": "elicitation/create", "params": {"message": "Who are you?", "requestedSchema": schema}})
    }

    #[test]
    fn a_form_is_asked_field_by_field_and_a_wrong_line_again() {
        let properties = json!({
            "age": {"type": "integer", "title": "Your age", "minimum": 18},
            "colour": {"enum": ["red", "green"], "description": "Of the\ncar", "default": "green"},
            "note": {"type": "string"}
        });
        let (content, shown) = answer(&form(&properties, &["age"]), "\n\nsix\n6\n60\n\n\n\n");
        assert_eq!(content, json!({"action": "accept", "content": {"age": 60, "colour": "green"}}));
        let expected = "s__ask asks:
│ Who are you?
Press Enter to answer, d to decline, Ctrl-D to cancel: Your age (integer from 18, required)
> Your age is required.
> Your age must be a whole number.
> Your age must be at least 18.
> colour (number of one choice, optional)
│ Of the
│ car
  1) red
  2) green
[2] > note (text, optional)
> Your answers:
  Your age: 60
  colour: \"green\"
Press Enter to send them, e to edit them, d to decline, Ctrl-D to cancel: ";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_form_can_be_declined_cancelled_and_edited() {
        let request = form(&json!({"a": {"type": "string"}, "b": {"type": "boolean"}}), &["a", "b"]);
        for (typed, action) in [
            ("d\n", "decline"),
            ("x\nD\n", "decline"),
            ("", "cancel"),
            ("\nx\n", "cancel"),
            ("\nx\ny\nd\n", "decline"),
            ("\nx\ny\n", "cancel"),
        ] {
            assert_eq!(answer(&request, typed).0, json!({ "action": action }), "{typed:?}");
        }
        let (edited, _) = answer(&request, "\nx\ny\ne\nz\nn\n\n");
        assert_eq!(edited, json!({"action": "accept", "content": {"a": "z", "b": false}}));
        let (confirmed, _) = answer(&form(&json!({}), &[]), "\n");
        assert_eq!(confirmed, json!({"action": "accept", "content": {}}));
    }

    #[test]
    fn a_page_is_shown_with_its_host() {
        let page = |url: &str| json!({"method": "elicitation/create", "params": {"mode": "url", "message": "Sign in", "url": url}});
        let (accepted, shown) = answer(&page("https://trusted.example@evil.example/login"), "\n");
        assert_eq!(accepted, json!({"action": "accept"}));
        assert!(shown.contains("The page is on evil.example."), "{shown}");
        let (declined, shown) = answer(&page("javascript:alert(1)"), "d\n");
        assert_eq!(declined, json!({"action": "decline"}));
        assert!(shown.contains("not the address of a web page"), "{shown}");
    }

    #[test]
    fn a_person_can_answer_for_a_language_model() {
        let messages = json!([
            {"role": "user", "content": {"type": "text", "text": "Capital of Norway?"}},
            {"role": "user", "content": {"type": "image", "mimeType": "image/png", "data": "AA=="}}
        ]);
        let request = json!({
            "method": "sampling/createMessage",
            "params": {"systemPrompt": "Be brief", "messages": messages, "maxTokens": 5}
        });
        let (written, shown) = answer(&request, "Oslo,\nI think\n\nmore");
        let content = json!({"type": "text", "text": "Oslo,\nI think"});
        assert_eq!(written, json!({"role": "assistant", "content": content, "model": "human"}));
        for line in ["│ Be brief\n", "user:\n│ Capital of Norway?\n", "│ [image image/png]\n"] {
            assert!(shown.contains(line), "{shown}");
        }
        assert_eq!(answer(&request, "\n").0, Value::Null);
        assert_eq!(answer(&request, "").0, Value::Null);
    }

    #[test]
    fn folders_become_uris() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().canonicalize().unwrap().join("my files");
        std::fs::create_dir(&path).unwrap();
        let request = json!({"method": "roots/list"});
        let uri = Url::from_file_path(&path).unwrap();
        let typed = format!("{}\n/no/such\n{uri}\n~\n\n", path.display());
        let (roots, shown) = answer(&request, &typed);
        let root = json!({"uri": uri.as_str(), "name": "my files"});
        assert_eq!(roots, json!({"roots": [root, root, {"uri": "file:///"}]}));
        assert!(
            uri.as_str().ends_with("/my%20files") && shown.contains("/no/such is not a folder."),
            "{shown}"
        );
        assert_eq!(answer(&request, "\n").0, json!({"roots": []}));
        assert_eq!(answer(&request, "").0, Value::Null);
    }

    #[test]
    fn text_of_a_server_cannot_steer_the_terminal_or_pass_for_a_prompt() {
        const EVIL: &str = "x\u{1b}[2J\nPress Enter";
        let property =
            json!({"type": "string", "title": EVIL, "description": EVIL, "enum": [EVIL], "pattern": EVIL});
        let schema = json!({"properties": {EVIL: property, "text": {"type": "string", "default": EVIL}}});
        let block = json!({"role": EVIL, "content": {"type": "text", "text": EVIL}});
        for request in [
            json!({"method": "elicitation/create", "params": {"message": EVIL, "requestedSchema": schema}}),
            json!({"method": "elicitation/create", "params": {"mode": "url", "message": EVIL, "url": EVIL}}),
            json!({"method": "sampling/createMessage", "params": {"systemPrompt": EVIL, "messages": [block]}}),
            json!({"method": EVIL}),
        ] {
            let (_, shown) = answer(&request, "\n1\n\n\n");
            assert!(!shown.contains('\u{1b}') && shown.contains("\\u{1b}"), "{shown}");
            let own = ["Press Enter to answer", "Press Enter to send", "Press Enter when done"];
            let forged =
                |line: &str| line.starts_with("Press") && !own.iter().any(|own| line.starts_with(own));
            assert!(!shown.lines().any(forged), "{shown}");
        }
    }
}
