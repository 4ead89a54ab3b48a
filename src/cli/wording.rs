//! The words of the command line for what the gateway says in those of the REST API: flags and commands instead of
//! JSON keys, variables and routes.

/// Where the fields of a request come from, and so what a person calls them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    Flags,
    /// A file has the keys of the REST API, and so has what the person did not write.
    #[default]
    File,
}

impl Source {
    pub fn of<T>(conf: &Option<T>) -> Self {
        if conf.is_some() { Self::File } else { Self::Flags }
    }
}

/// Phrases of the gateway, and what they are called here.
const PHRASES: [(&str, &str); 6] = [
    ("use force=true to replace it", "use --force to replace it"),
    ("start the gateway with SERVER_MODE=enterprise", "start it with `toolgate start --enterprise`"),
    (
        "SERVER_MODE sets the mode when it starts",
        "`toolgate start --enterprise` starts it in enterprise mode",
    ),
    (
        "give a bearer_token, or an Authorization value in headers",
        "give --bearer-token TOKEN, or --header \"Authorization: VALUE\"",
    ),
    (
        "give an oauth_redirect_uri, or oauth_client_id and oauth_client_secret if",
        "give --oauth-redirect-uri, or --oauth-client-id and --oauth-client-secret if",
    ),
    ("; register the server under its new name", "; register it under its new name and remove this one"),
];
const DISABLED: (&str, &str) = ("server \"", "\" is disabled; enable it first");
const REAUTHORIZE: (&str, &str) = ("POST /api/v0/servers/", "/reauthorize");

/// Keys whose flag has another name, or that have none.
const NAMES: [(&str, &str); 9] = [
    ("name", "the name"),
    ("command", "the command"),
    ("args", "the command"),
    ("headers", "--header"),
    ("oauth_scopes", "--oauth-scope"),
    ("allow_list", "--allow"),
    ("rate_limit.calls_per_minute", "--rate-limit"),
    ("rate_limit.burst", "--rate-limit-burst"),
    ("keep_failed", "--keep"),
];
/// Other keys that a sentence may quote.
const QUOTED: [&str; 5] =
    ["included_tools", "included_servers", "excluded_tools", "included_prompts", "included_resources"];

/// Returns an error of the gateway in the words of the command line; `command` formats a command with these arguments.
pub fn translate(sentence: &str, source: Source, command: impl Fn(&str) -> String) -> String {
    let mut sentence = sentence.to_owned();
    if source == Source::Flags {
        if let Some((before, rest)) = sentence.split_once("field \"")
            && let Some((key, problem)) = rest.split_once('"')
        {
            sentence = format!("{before}{}{problem}", flag(key));
        }
        for key in QUOTED {
            sentence = sentence.replace(&format!("\"{key}\""), &flag(key));
        }
    }
    for (phrase, own) in PHRASES {
        sentence = sentence.replace(phrase, own);
    }
    if let Some((_, server, _)) = around(&sentence, DISABLED) {
        sentence = format!("{sentence} with `{}`", command(&format!("enable server {server}")));
    }
    if let Some((start, server, end)) = around(&sentence, REAUTHORIZE) {
        sentence = format!("{start}`{}`{end}", command(&format!("authorize {server}")));
    }
    sentence
}

/// Splits a sentence at two phrases; the name of a server is between them.
fn around<'a>(sentence: &'a str, (before, after): (&str, &str)) -> Option<(&'a str, &'a str, &'a str)> {
    let (start, rest) = sentence.split_once(before)?;
    let (server, end) = rest.split_once(after)?;
    Some((start, server, end))
}

/// The flag that sets a key, such as `included_tools[0]` or `env.PATH`.
fn flag(key: &str) -> String {
    if let Some((_, flag)) = NAMES.iter().find(|(name, _)| *name == key) {
        return (*flag).to_owned();
    }
    let (key, entry) = match key.split_once(['.', '[']) {
        Some((whole, entry)) => (whole, entry.strip_suffix(']').map_or(Some(entry), |_| None)),
        None => (key, None),
    };
    let flag = NAMES.iter().find(|(name, _)| *name == key).map(|(_, flag)| (*flag).to_owned());
    let flag = flag.unwrap_or_else(|| format!("--{}", key.replace('_', "-")));
    entry.map_or(flag.clone(), |entry| format!("{flag} {entry}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(sentence: &str, source: Source) -> String {
        super::translate(sentence, source, |arguments| format!("toolgate {arguments}"))
    }

    #[test]
    fn keys_variables_and_routes_become_flags_and_commands() {
        for (said, own) in [
            (
                "server \"a\" is already registered; use force=true to replace it",
                "server \"a\" is already registered; use --force to replace it",
            ),
            (
                "field \"included_tools\" must name at least one tool, or \"included_servers\" at least one server",
                "--included-tools must name at least one tool, or --included-servers at least one server",
            ),
            ("field \"included_tools[0]\" must be a string", "--included-tools must be a string"),
            (
                "field \"headers.X-A\" is set by the gateway itself",
                "--header X-A is set by the gateway itself",
            ),
            ("field \"allow_list\" is required", "--allow is required"),
            ("field \"name\" must not contain \"__\"", "the name must not contain \"__\""),
            ("field \"rate_limit.burst\" must be at least 1", "--rate-limit-burst must be at least 1"),
            (
                "authorization required: it ended; authorize it again with POST /api/v0/servers/gh/reauthorize",
                "authorization required: it ended; authorize it again with `toolgate authorize gh`",
            ),
            (
                "server \"x\" is disabled; enable it first",
                "server \"x\" is disabled; enable it first with `toolgate enable server x`",
            ),
            ("server \"x\" does not exist", "server \"x\" does not exist"),
        ] {
            assert_eq!(translate(said, Source::Flags), own);
        }
    }

    #[test]
    fn a_file_has_the_keys_of_the_api() {
        let said = "field \"included_tools\" must be an array";
        assert_eq!(translate(said, Source::File), said);
        assert!(translate("use force=true to replace it", Source::File).contains("--force"));
    }
}
