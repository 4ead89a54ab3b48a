//! What may reach a terminal: messages on standard error, and text without control characters.

use std::io::Write;

/// A remark for the person in front of it; what cannot be said is not worth an error.
pub fn message(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(text));
}

/// The text without what a terminal would obey; line ends and tabs stay.
pub fn printable(text: &str) -> String {
    let text = console::strip_ansi_codes(text);
    text.chars().filter(|next| !next.is_control() || matches!(next, '\n' | '\t')).collect()
}
