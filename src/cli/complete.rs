//! `toolgate __complete`: prints the names that can stand at the cursor of a command line, for the scripts that
//! `toolgate completions` makes. It never fails: without a gateway there are no names.

use std::time::Duration;

use clap::Args;

use super::invocation::Invocation;
use super::output;
use super::suggestion::{ListedNoun, names_of};

/// A shell must not wait for a gateway that does not answer.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct Complete {
    /// The words of the command line up to the cursor
    #[arg(last = true)]
    words: Vec<String>,
}

pub async fn run(invocation: &Invocation, complete: Complete) -> anyhow::Result<()> {
    let Some((current, before)) = complete.words.split_last() else { return Ok(()) };
    let before: Vec<&str> = before.iter().map(String::as_str).collect();
    let Some(noun) = noun_at(&before).filter(|_| !current.starts_with('-')) else { return Ok(()) };
    let names = tokio::time::timeout(LIMIT, names_of(invocation, noun)).await.unwrap_or_default();
    // Names come from servers: a shell gets only those that mean nothing else to it.
    let is_plain =
        |name: &str| name.chars().all(|next| next.is_ascii_alphanumeric() || "_-./".contains(next));
    for name in names.iter().filter(|name| name.starts_with(current.as_str()) && is_plain(name)) {
        output::line(name)?;
    }
    Ok(())
}

/// What stands after these words.
fn noun_at(before: &[&str]) -> Option<ListedNoun> {
    match before.last() {
        Some(&"--server") => return Some(ListedNoun::Server),
        Some(&"--group") => return Some(ListedNoun::Group),
        Some(&"--client") => return Some(ListedNoun::Client),
        Some(flag) if flag.starts_with("--") && !flag.contains('=') && takes_value(flag) => return None,
        Some(_) | None => {}
    }
    let mut words = Vec::new();
    let mut rest = before.iter();
    while let Some(word) = rest.next() {
        match word.starts_with('-') {
            true if takes_value(word) && !word.contains('=') => drop(rest.next()),
            true => {}
            false => words.push(*word),
        }
    }
    Some(match words.as_slice() {
        ["invoke" | "usage" | "why"] | ["enable" | "disable", "tool"] => ListedNoun::Tool,
        ["deregister" | "rm" | "refresh" | "authorize" | "logs"] => ListedNoun::Server,
        ["get" | "update" | "enable" | "disable", "server"] => ListedNoun::Server,
        ["get" | "enable" | "disable", "prompt"] => ListedNoun::Prompt,
        ["get" | "update" | "delete", "group"] => ListedNoun::Group,
        ["update" | "delete", "mcp-client"] => ListedNoun::Client,
        ["update" | "delete", "user"] => ListedNoun::User,
        ["update" | "delete", "idp-group"] => ListedNoun::IdpGroup,
        ["delete", "grant"] => ListedNoun::Grant,
        ["delete", "oauth-client"] => ListedNoun::OauthClient,
        _ => return None,
    })
}

/// Whether a flag has a value after it.
fn takes_value(flag: &str) -> bool {
    !matches!(
        flag,
        "--all"
            | "--ask"
            | "--follow"
            | "--force"
            | "--help"
            | "--keep"
            | "--no-browser"
            | "--no-input"
            | "--read"
            | "--templates"
            | "--yes"
            | "-f"
            | "-h"
            | "-v"
            | "-V"
            | "-y"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_before_the_cursor_decide() {
        for (before, expected) in [
            ("invoke", "Some(Tool)"),
            ("--registry http://h -o json usage", "Some(Tool)"),
            ("invoke a__b", "None"),
            ("rm", "Some(Server)"),
            ("get server", "Some(Server)"),
            ("list tools --server", "Some(Server)"),
            ("list tools --group", "Some(Group)"),
            ("why a__b --client", "Some(Client)"),
            ("invoke --input", "None"),
            ("invoke --no-input", "Some(Tool)"),
            ("delete user", "Some(User)"),
            ("list", "None"),
            ("", "None"),
        ] {
            let words: Vec<&str> = before.split_whitespace().collect();
            assert_eq!(format!("{:?}", noun_at(&words)), expected, "{before}");
        }
    }
}
