//! Text for terminals: messages on standard error, and the escaping of characters that would steer a terminal.

use std::io::Write;

/// Prints a message on standard error. A failure to write it is ignored.
pub fn message(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(text));
}

/// Escapes every character that a terminal would obey instead of showing it.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for next in text.chars() {
        match steers(next) {
            true => shown.extend(next.escape_unicode()),
            false => shown.push(next),
        }
    }
    shown
}

/// Tells whether a terminal obeys a character: control characters other than line ends and tabs, and marks that change
/// the direction of the text.
pub fn steers(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped_and_the_rest_stays() {
        assert_eq!(
            printable("a\u{1b}[31mred\r\u{7}\u{9b}x\u{7f}"),
            "a\\u{1b}[31mred\\u{d}\\u{7}\\u{9b}x\\u{7f}"
        );
        assert_eq!(printable("\u{202e}gpj.exe\u{2066}\u{61c}"), "\\u{202e}gpj.exe\\u{2066}\\u{61c}");
        let plain = "línea 1\n\tzwei 日本 👩\u{200d}💻 \\u{1b}";
        assert_eq!(printable(plain), plain);
    }
}
