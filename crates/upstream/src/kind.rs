//! The kind of a failure, in words that quote nothing: no address, no output, nothing that a server said. For callers
//! who may not see the whole reason.

/// A phrase of our own reasons, and the kind that it stands for; `#` is the number at the same place.
const PHRASES: [(&str, &str); 16] = [
    ("ended (exit status: #", "the process ended with status #"),
    ("ended (signal: #", "the process was ended by signal #"),
    ("answered with HTTP status #", "answered HTTP #"),
    ("no answer within # s", "timed out after # s"),
    ("did not finish ", "did not connect in time"),
    ("still connecting after # s", "is still connecting after # s"),
    ("no connection within # s", "cannot be reached"),
    ("cannot reach ", "cannot be reached"),
    ("cannot start ", "cannot be started"),
    ("command not found", "cannot be started"),
    ("is not running", "the process is not running"),
    ("no longer knows the session", "lost its session"),
    ("authorization required", "requires authorization"),
    ("was removed, replaced or disabled", "was removed, replaced or disabled"),
    ("a message larger than # MiB (MAX_MESSAGE_MB)", "sent a message larger than # MiB (MAX_MESSAGE_MB)"),
    (
        "the limit of server processes (#) is reached",
        "the limit of server processes (#) is reached; try again later",
    ),
];

/// The kind of the failure that a reason tells; `None` if it is none of these. The first phrase decides: what comes
/// after it may be a quotation.
pub fn kind_of(reason: &str) -> Option<String> {
    let found = PHRASES.iter().filter_map(|(phrase, kind)| Some((find(reason, phrase)?, *kind)));
    let ((_, number), kind) = found.min_by_key(|((at, _), _)| *at)?;
    Some(kind.replace('#', &number))
}

/// Where a phrase begins in a text, and its number.
fn find(text: &str, phrase: &str) -> Option<(usize, String)> {
    let (before, after) = phrase.split_once('#').unwrap_or((phrase, ""));
    text.match_indices(before).find_map(|(at, _)| {
        let rest = &text[at + before.len()..];
        let length = match phrase.contains('#') {
            true => rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count(),
            false => 0,
        };
        let is_whole = rest[length..].starts_with(after) && (length > 0 || !phrase.contains('#'));
        is_whole.then(|| (at, rest[..length].to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_quotes_nothing_of_the_reason() {
        for (reason, kind) in [
            (
                "npx ended (exit status: 1); last lines of stderr: --api-key=s3cret cannot reach http://x/secret",
                "the process ended with status 1",
            ),
            ("it keeps ending: npx ended (signal: 9 (SIGKILL))", "the process was ended by signal 9"),
            ("http://h/secret answered with HTTP status 500: stack", "answered HTTP 500"),
            ("cannot reach http://h/secret: Connection refused", "cannot be reached"),
            ("http://h/secret did not finish reading tools/list within 30 s", "did not connect in time"),
            ("still connecting after 1.5 s", "is still connecting after 1.5 s"),
            ("no answer within 30 s", "timed out after 30 s"),
            ("cannot start /secret/x: command not found", "cannot be started"),
            (
                "the limit of server processes (256) is reached; try again later",
                "the limit of server processes (256) is reached; try again later",
            ),
            (
                "the server sent a message larger than 64 MiB (MAX_MESSAGE_MB)",
                "sent a message larger than 64 MiB (MAX_MESSAGE_MB)",
            ),
            ("the limit of server processes (secret) is reached", ""),
            ("ended (exit status: secret)", ""),
            ("http://h/secret: connection closed", ""),
            ("", ""),
        ] {
            assert_eq!(kind_of(reason).unwrap_or_default(), kind, "{reason}");
        }
    }
}
