//! Shows the content of results, prompts and resources: text on standard output, binary data in new files. Existing
//! files are never overwritten.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};

use anyhow::Context;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::output::{self, indented};
use model::deep_json;

/// File extensions by media type; anything else is `.bin`.
const ENDINGS: [(&str, &str); 17] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/svg+xml", "svg"),
    ("audio/mpeg", "mp3"),
    ("audio/mp3", "mp3"),
    ("audio/wav", "wav"),
    ("audio/x-wav", "wav"),
    ("audio/ogg", "ogg"),
    ("audio/flac", "flac"),
    ("audio/mp4", "m4a"),
    ("application/pdf", "pdf"),
    ("application/zip", "zip"),
    ("application/gzip", "gz"),
    ("application/json", "json"),
    ("text/plain", "txt"),
];

#[derive(Deserialize)]
struct CallResult<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    /// As raw JSON, which keeps the digits of numbers.
    #[serde(borrow, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
}

/// Shows the result of a call; files are named after `name`.
pub fn show_result(result: &str, name: &str) -> anyhow::Result<()> {
    let result: CallResult = serde_json::from_str(result)?;
    let content = result.content.iter().map(|block| deep_json::parse(block.get()));
    let content = content.collect::<Result<Vec<_>, _>>()?;
    for block in &content {
        show_block(block, name)?;
    }
    let Some(structured) = result.structured else { return Ok(()) };
    // Servers repeat structured content as text for older clients; it is shown once.
    let meaning: Option<Value> = serde_json::from_str(structured.get()).ok();
    let repeats = |block: &Value| {
        let text = block["text"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        text.is_some() && text == meaning
    };
    if !content.iter().any(repeats) {
        output::foreign(&indented(structured.get()))?;
    }
    Ok(())
}

/// Shows one block of content, of a result or of a prompt's message.
pub fn show_block(block: &Value, name: &str) -> anyhow::Result<()> {
    let kind = block["type"].as_str().unwrap_or_default();
    match (kind, block["text"].as_str(), block["data"].as_str()) {
        ("text", Some(text), _) => show_text(text),
        ("image" | "audio", _, Some(data)) => save(data, &block["mimeType"], name),
        ("resource", _, _) => show_resource(&block["resource"], name),
        ("resource_link", _, _) => {
            let title = block["title"].as_str().or(block["name"].as_str()).unwrap_or("resource");
            output::foreign(&format!("{title}: {}", block["uri"].as_str().unwrap_or_default()))
        }
        _ => output::foreign(&indented(&block.to_string())),
    }
}

/// Shows one part of a resource: its text, or the name of a file with its data.
pub fn show_resource(content: &Value, name: &str) -> anyhow::Result<()> {
    match (content["text"].as_str(), content["blob"].as_str()) {
        (Some(text), _) => show_text(text),
        (None, Some(blob)) => save(blob, &content["mimeType"], name),
        (None, None) => output::foreign(&indented(&content.to_string())),
    }
}

fn show_text(text: &str) -> anyhow::Result<()> {
    let is_json = text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<Value>(text).is_ok();
    if is_json { output::foreign(&indented(text)) } else { output::foreign(text) }
}

fn save(data: &str, media_type: &Value, name: &str) -> anyhow::Result<()> {
    let bytes = BASE64_STANDARD.decode(data.trim()).context("the data is not base64")?;
    let media_type = media_type.as_str().unwrap_or("application/octet-stream");
    let ending = ENDINGS.iter().find(|(known, _)| *known == media_type).map_or("bin", |(_, ending)| *ending);
    let path = write_new(&stem(name), ending, &bytes)?;
    output::line(&format!("{path} ({}, {} bytes)", output::printable(media_type), bytes.len()))
}

/// Makes a safe beginning of a file name.
fn stem(name: &str) -> String {
    let fits = |next: char| next.is_ascii_alphanumeric() || matches!(next, '_' | '-');
    let kept: String = name.chars().map(|next| if fits(next) { next } else { '-' }).take(80).collect();
    let kept = kept.trim_matches('-');
    if kept.is_empty() { "content".to_owned() } else { kept.to_owned() }
}

/// Writes a new file and returns its path.
fn write_new(stem: &str, ending: &str, bytes: &[u8]) -> anyhow::Result<String> {
    for number in 1u32.. {
        let path = format!("{stem}-{number}.{ending}");
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(bytes).with_context(|| format!("cannot write {path}"))?;
                return Ok(path);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot write {path}")),
        }
    }
    anyhow::bail!("there is no free name for a file {stem}.{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_file_names() {
        assert_eq!(stem("files__get image"), "files__get-image");
        assert_eq!(stem("../../etc/passwd"), "etc-passwd");
        assert_eq!(stem("…"), "content");
    }
}
