//! The arguments of a process that could be secrets, and the command line without them. Nobody says which arguments are
//! secrets, so the rule is generous.

use std::collections::HashSet;

use url::Url;

use super::FieldError;
use super::server::percent_decoded;

/// Parts of names that suggest a secret.
const SECRET_NAMES: [&str; 5] = ["key", "token", "secret", "passw", "auth"];
/// From this length on, text with letters and digits could be a generated secret.
const GENERATED: usize = 20;

/// The values among the arguments that could be secrets: after a flag or a `=` with such a name, user info and query of
/// URLs, and long text of letters and digits that is neither a path nor a package.
pub fn secrets_in(args: &[String]) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut after_flag = false;
    for arg in args {
        let (name, value) = arg.split_once('=').map_or(("", arg.as_str()), |(name, value)| (name, value));
        let is_flag = arg.starts_with("--");
        if suggests_secret(name) || (after_flag && !is_flag) {
            found.insert(value.to_owned());
        }
        if after_flag && !is_flag {
            found.insert(arg.clone());
        }
        // A header, such as `Authorization: Bearer x`.
        if let Some((_, value)) = arg.split_once(": ").filter(|(name, _)| suggests_secret(name)) {
            found.insert(value.trim().to_owned());
            found.extend(value.split_whitespace().last().map(str::to_owned));
        }
        for text in [arg.as_str(), value] {
            found.extend(secrets_in_url(text));
            found.extend(
                text.split_whitespace().chain([text]).filter(|text| looks_generated(text)).map(str::to_owned),
            );
        }
        after_flag = arg.starts_with('-') && name.is_empty() && suggests_secret(arg);
    }
    found.remove("");
    found
}

/// What stands for a secret in a command line that people see.
pub const HIDDEN: &str = "•••";
/// Shorter secrets are hidden only where they were found: elsewhere the same letters are usually something else.
const FOUND_ANYWHERE: usize = 4;

/// The arguments with [`HIDDEN`] in place of everything that could be a secret.
pub fn hidden(args: &[String]) -> Vec<String> {
    let mut secrets: Vec<_> = secrets_in(args).into_iter().collect();
    secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    args.iter().map(|arg| hide(arg, &secrets)).collect()
}

fn hide(arg: &str, secrets: &[String]) -> String {
    let is_secret = |text: &str| secrets.iter().any(|secret| secret == text);
    if is_secret(arg) {
        return HIDDEN.to_owned();
    }
    // A `=` inside a URL belongs to its query.
    let assigned = arg.split_once('=').filter(|(name, _)| !name.contains("://"));
    let mut shown = match assigned {
        Some((name, value)) if is_secret(value) => format!("{name}={HIDDEN}"),
        Some((name, value)) if value.contains("://") => format!("{name}={}", hide_in_url(value)),
        Some(_) | None if arg.contains("://") => hide_in_url(arg),
        Some(_) | None => match arg.split_once(": ").filter(|(name, _)| suggests_secret(name)) {
            Some((name, _)) => format!("{name}: {HIDDEN}"),
            None => arg.to_owned(),
        },
    };
    for secret in secrets.iter().filter(|secret| secret.len() >= FOUND_ANYWHERE) {
        shown = shown.replace(secret.as_str(), HIDDEN);
    }
    shown
}

/// The URL without its user info and the whole of its query.
fn hide_in_url(text: &str) -> String {
    let (text, query) = text.split_once('?').map_or((text, ""), |(text, _)| (text, "?"));
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let host = rest.find('/').unwrap_or(rest.len());
    let rest = match rest[..host].rfind('@') {
        Some(at) => format!("{HIDDEN}{}", &rest[at..]),
        None => rest.to_owned(),
    };
    let query = if query.is_empty() { String::new() } else { format!("?{HIDDEN}") };
    format!("{scheme}://{rest}{query}")
}

/// The arguments of an edited command line: each that hides a secret is the current argument that is shown like it, if
/// there are several, the one after the same flag.
pub fn revealed(edited: &[String], current: &[String]) -> Result<Vec<String>, FieldError> {
    let shown = hidden(current);
    let before = |args: &[String], at: usize| at.checked_sub(1).map(|at| args[at].clone());
    let mut kept: Vec<_> = (0..current.len()).collect();
    let mut reveal = |(at, arg): (usize, &String)| {
        if !arg.contains(HIDDEN) {
            return Ok(arg.clone());
        }
        let is_alike = |old: &usize| shown[*old] == *arg;
        let follows_same = |old: &usize| is_alike(old) && before(&shown, *old) == before(edited, at);
        let found = kept.iter().position(follows_same).or_else(|| kept.iter().position(is_alike));
        let missing = || {
            FieldError::new("args", format!("{arg:?} does not stand for a current argument; enter its value"))
        };
        found.map(|found| current[kept.remove(found)].clone()).ok_or_else(missing)
    };
    edited.iter().enumerate().map(&mut reveal).collect()
}

/// A command and its arguments as they are typed in a shell.
pub fn command_line(command: &str, args: &[String]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-•".contains(letter);
    let quoted = |word: &str| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let words = [command].into_iter().chain(args.iter().map(String::as_str));
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn suggests_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

fn secrets_in_url(text: &str) -> Vec<String> {
    let Some(url) = Url::parse(text).ok().filter(|_| text.contains("://")) else { return Vec::new() };
    let mut found = vec![url.username().to_owned(), percent_decoded(url.username())];
    found.extend(
        url.password().into_iter().flat_map(|password| [password.to_owned(), percent_decoded(password)]),
    );
    found.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
    let pairs = url.query().into_iter().flat_map(|query| query.split('&'));
    // A parameter without a value may be a key too.
    found.extend(pairs.map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value).to_owned()));
    found
}

fn looks_generated(text: &str) -> bool {
    let is_mixed = |text: &str| {
        text.len() >= GENERATED
            && text.bytes().any(|byte| byte.is_ascii_alphabetic())
            && text.bytes().any(|byte| byte.is_ascii_digit())
    };
    is_mixed(text) && !is_path(text, is_mixed) && !is_package(text) && !text.contains("://")
}

/// A path starts like one, or has no part that looks generated: a secret in Base64 may have a `/` too.
fn is_path(text: &str, is_mixed: impl Fn(&str) -> bool) -> bool {
    let is_rooted = ["/", "./", "../", "~/"].iter().any(|start| text.starts_with(start));
    is_rooted || (text.contains(['/', '\\']) && !text.split(['/', '\\']).any(is_mixed))
}

/// A package of npm or PyPI: `@scope/name`, `name@1.2.3`, `name==1.2.3`.
fn is_package(text: &str) -> bool {
    let is_name = |name: &str| {
        let is_usual =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_./@".contains(&byte);
        !name.is_empty() && name.bytes().all(is_usual)
    };
    let is_version = |version: &str| {
        version.len() < GENERATED
            && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-^~<>=*+".contains(&byte))
    };
    let (name, version) = match text.split_once("==").or_else(|| text.rsplit_once('@')) {
        Some((name, version)) if !name.is_empty() => (name, version),
        Some(_) | None => (text, ""),
    };
    is_name(name)
        && is_version(version)
        && (!version.is_empty() || (name.starts_with('@') && name.contains('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(args: &[&str]) -> HashSet<String> {
        secrets_in(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_could_be_a_secret_is_found() {
        for (args, secret) in [
            (&["--api-key", "hunter2"][..], "hunter2"),
            (&["-token", "-x-"], "-x-"),
            (&["--apiKey=a=b"], "a=b"),
            (&["-e", "GITHUB_TOKEN=ghp"], "ghp"),
            (&["--password", "k=v"], "k=v"),
            (&["--header", "Authorization: Bearer abcd"], "abcd"),
            (&["postgres://me:p%40ss@db/x"], "p@ss"),
            (&["--url=https://h/mcp?k=v1&bare"], "bare"),
            (&["serve", "sk-proj-0123456789abcdef"], "sk-proj-0123456789abcdef"),
            (
                &["--x=abcdefghij0123456789/ABCDEFGHIJ0123456789=="],
                "abcdefghij0123456789/ABCDEFGHIJ0123456789==",
            ),
        ] {
            assert!(found(args).contains(secret), "{args:?}: {:?}", found(args));
        }
    }

    #[test]
    fn ordinary_arguments_are_not() {
        let ordinary = [
            "-y",
            "@modelcontextprotocol/server-everything2",
            "mcp-server-postgres-15@1.2.3",
            "some-python-package==10.20.30",
            "/home/user1/projects/2024/server.js",
            "packages/server2024/dist/index.js",
            "--port=8080",
            "--verbose-output-of-everything",
        ];
        assert_eq!(found(&ordinary), HashSet::new());
    }

    fn owned(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn a_shown_command_line_hides_secrets_only() {
        for (args, shown) in [
            (&["-y", "pkg", "--api-key", "hunter2"][..], &["-y", "pkg", "--api-key", "•••"][..]),
            (&["--apiKey=a=b", "--port=80"], &["--apiKey=•••", "--port=80"]),
            (&["--header", "Authorization: Bearer ab"], &["--header", "Authorization: •••"]),
            (&["postgres://me:p%40ss@db/x"], &["postgres://•••@db/x"]),
            (&["--url=https://h/mcp?k=v&bare"], &["--url=https://h/mcp?•••"]),
            (&["https://me:pw@h/?k=v"], &["https://•••@h/?•••"]),
            (&["https://h/a@b/mcp"], &["https://h/a@b/mcp"]),
            (&["--token", "hunter2", "x-hunter2-y"], &["--token", "•••", "x-•••-y"]),
            (&["serve", "sk-proj-0123456789abcdef"], &["serve", "•••"]),
        ] {
            assert_eq!(hidden(&owned(args)), owned(shown));
        }
    }

    #[test]
    fn an_edited_command_line_keeps_the_hidden_arguments() {
        let current = owned(&["--token", "one1", "--key=two2", "--password", "three3"]);
        let edited = owned(&["-v", "--password", "•••", "--key=•••", "--token", "new4"]);
        assert_eq!(
            revealed(&edited, &current),
            Ok(owned(&["-v", "--password", "three3", "--key=two2", "--token", "new4"]))
        );
        let unknown = revealed(&owned(&["--secret=•••"]), &current);
        assert!(unknown.is_err_and(|error| error.to_string().contains("--secret")));
    }

    #[test]
    fn a_command_line_is_quoted_for_a_shell() {
        assert_eq!(command_line("npx", &owned(&["-y", "it's", "", "•••"])), r"npx -y 'it'\''s' '' •••");
    }
}
