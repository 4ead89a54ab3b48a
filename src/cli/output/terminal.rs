//! Text for terminals: messages on standard error, and the removal of control characters.

use std::io::Write;

/// Prints a message on standard error. A failure to write it is ignored.
pub fn message(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(text));
}

/// Removes escape sequences and control characters other than line ends and tabs.
pub fn printable(text: &str) -> String {
    let text = console::strip_ansi_codes(text);
    text.chars().filter(|next| !next.is_control() || matches!(next, '\n' | '\t')).collect()
}
