//! Questions on a terminal: everything is written to standard error, so that standard output has only the result.

use std::io::{BufRead, IsTerminal, Stderr, StdinLock, Write};

use super::terminal::printable;

/// Begins each line that somebody else wrote, so that it cannot pass for a line of this program.
const FOREIGN: &str = "│ ";

/// Tells whether a person can be asked: standard input and standard error are terminals.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

pub struct Prompter<R, W> {
    input: R,
    output: W,
}

impl Prompter<StdinLock<'static>, Stderr> {
    /// Standard error is locked only for each line, since others write to it while a person thinks. What was typed
    /// before is discarded: an Enter that was pressed too early must not answer a question that nobody has read.
    pub fn of_terminal() -> Self {
        // SAFETY: a plain system call without memory.
        #[allow(unsafe_code)]
        unsafe {
            libc::tcflush(libc::STDIN_FILENO, libc::TCIFLUSH);
        }
        Self::new(std::io::stdin().lock(), std::io::stderr())
    }
}

impl<R: BufRead, W: Write> Prompter<R, W> {
    pub fn new(input: R, output: W) -> Self {
        Self { input, output }
    }

    /// Writes a line. Failures to write are ignored: what is not seen is not answered.
    pub fn say(&mut self, text: &str) {
        let _ = writeln!(self.output, "{}", printable(text));
    }

    /// Writes text of somebody else, with a mark before each line.
    pub fn quote(&mut self, text: &str) {
        for line in text.trim_end().lines() {
            self.say(&format!("{FOREIGN}{line}"));
        }
    }

    /// Reads a line, without its end. Returns `None` at the end of the input (Ctrl-D).
    pub fn line(&mut self, prompt: &str) -> Option<String> {
        loop {
            let _ = write!(self.output, "{}", printable(prompt)).and_then(|()| self.output.flush());
            let mut line = Vec::new();
            let count = self.input.read_until(b'\n', &mut line).unwrap_or_default();
            if count == 0 {
                // Ctrl-D does not move the cursor.
                let _ = writeln!(self.output);
                return None;
            }
            match String::from_utf8(line) {
                Ok(line) => return Some(line.trim_end_matches(['\n', '\r']).to_owned()),
                Err(_) => self.say("That is not UTF-8 text."),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_marked_and_cannot_steer_the_terminal() {
        let mut shown = Vec::new();
        let mut prompter = Prompter::new(&b""[..], &mut shown);
        prompter.quote("Hello\n\u{1b}[2JPress\rEnter: \n");
        assert_eq!(prompter.line("> "), None);
        assert_eq!(String::from_utf8(shown).unwrap(), "│ Hello\n│ \\u{1b}[2JPress\\u{d}Enter:\n> \n");
    }

    #[test]
    fn a_line_that_is_not_text_is_asked_for_again() {
        let mut shown = Vec::new();
        let mut prompter = Prompter::new(&b"\xff\n word \r\nlast"[..], &mut shown);
        let lines = [prompter.line("> "), prompter.line("> "), prompter.line("> ")];
        assert_eq!(lines, [Some(" word ".to_owned()), Some("last".to_owned()), None]);
        assert_eq!(String::from_utf8(shown).unwrap(), "> That is not UTF-8 text.\n> > > \n");
    }
}
