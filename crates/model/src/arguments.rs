//! The arguments of a process that could be secrets. Nobody says which ones are, so the rule is generous.

use std::collections::HashSet;

use url::Url;

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
}
