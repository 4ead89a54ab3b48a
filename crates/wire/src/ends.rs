//! The two ends of a message that is too large to be kept: enough to tell which request it answers.

use super::id::find_answer_id_at_ends;

/// How much of each end is kept.
const KEPT: usize = 1024;

/// The first and the last bytes of a text that is read in parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends {
    beginning: Vec<u8>,
    end: Vec<u8>,
}

impl Ends {
    /// Adds the next part of the text.
    pub fn add(&mut self, part: &[u8]) {
        let missing = KEPT - self.beginning.len();
        self.beginning.extend_from_slice(&part[..missing.min(part.len())]);
        let kept = KEPT.saturating_sub(part.len()).min(self.end.len());
        self.end.drain(..self.end.len() - kept);
        self.end.extend_from_slice(&part[part.len().saturating_sub(KEPT)..]);
    }

    /// The id of the response that this text is, as far as the ends show it. Before the text `is_over`, only an id
    /// that stands before the result is found.
    pub fn answer_id(&self, is_over: bool) -> Option<Vec<u8>> {
        // A line of an event stream begins with the name of its field.
        let beginning = self.beginning.strip_prefix(b"data:").unwrap_or(&self.beginning);
        find_answer_id_at_ends(beginning, if is_over { &self.end } else { b"" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str, size: usize) -> Ends {
        let mut ends = Ends::default();
        text.as_bytes().chunks(size).for_each(|part| ends.add(part));
        ends
    }

    #[test]
    fn the_id_is_found_at_either_end() {
        let filling = r#"{"id":9,"x":"y"},"#.repeat(500);
        let first = format!(r#"{{"jsonrpc":"2.0","id":7,"result":[{filling}1]}}"#);
        let last = format!(r#"data: {{"result":[{filling}1],"jsonrpc":"2.0","id":"8"}}"#);
        for size in [1, 7, 1000, 1 << 20] {
            assert_eq!(ends(&first, size), ends(&first, 1));
            assert_eq!(ends(&first, size).answer_id(false).as_deref(), Some(&b"7"[..]));
            assert_eq!(ends(&last, size).answer_id(false), None);
            assert_eq!(ends(&last, size).answer_id(true).as_deref(), Some(&b"\"8\""[..]));
        }
        assert!(ends(&last, 1000).beginning.len() + ends(&last, 1000).end.len() <= 2 * KEPT);
    }

    #[test]
    fn a_request_and_a_nested_id_answer_nothing() {
        let filling = "x".repeat(3000);
        let request = format!(r#"{{"id":7,"method":"a","params":["{filling}"],"id":7}}"#);
        assert_eq!(ends(&request, 100).answer_id(true), None);
        let nested = format!(r#"{{"result":{{"x":"{filling}","id":7}}}}"#);
        assert_eq!(ends(&nested, 100).answer_id(true), None);
    }
}
