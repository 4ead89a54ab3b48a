//! Adds up the results of the test binaries as `cargo test` prints them, one line for each binary.

use std::fmt;

#[derive(Default, Debug, PartialEq, Eq)]
pub struct Tally {
    passed: u32,
    failed: u32,
}

impl Tally {
    /// Counts a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; ...`; any other line is ignored.
    pub fn read(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split(';') {
            match count.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_are_added_up() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.01s",
            "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally.to_string(), "15 passed, 2 failed");
    }

    #[test]
    fn other_lines_count_nothing() {
        let mut tally = Tally::default();
        for line in ["", "5 passed; 1 failed", "test result: ", "test result: ok. many passed"] {
            tally.read(line);
        }
        assert_eq!(tally, Tally::default());
    }
}
