//! The head of an HTTP message that its sender repeats with each message, and in which only the Content-Length differs: it
//! need not be parsed again. Knows nothing else of what is in a head.

use std::ops::Range;

/// More digits could exceed a `u64`.
const MOST_DIGITS: usize = 19;

/// A head that is the same as an earlier one, apart from its Content-Length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Length of the head, in bytes.
    pub length: usize,
    pub content_length: u64,
}

/// Compares the beginning of `bytes` with a head that was parsed. `digits` are the value of its only Content-Length. Returns
/// `None` if it is another head, or not complete.
pub fn find(head: &[u8], digits: &Range<usize>, bytes: &[u8]) -> Option<Repeated> {
    let (before, after) = (head.get(..digits.start)?, head.get(digits.end..)?);
    let (beginning, rest) = bytes.split_at_checked(before.len())?;
    let mut content_length: u64 = 0;
    let mut count = 0;
    while let Some(digit @ b'0'..=b'9') = rest.get(count).filter(|_| count < MOST_DIGITS) {
        content_length = content_length * 10 + u64::from(digit - b'0');
        count += 1;
    }
    let end = rest.get(count..count + after.len())?;
    let is_repeated = count > 0 && is_same(before, beginning) && is_same(after, end);
    let length = head.len() - digits.len() + count;
    is_repeated.then_some(Repeated { length, content_length })
}

/// Compares parts of the same length, in a time that does not depend on where the two differ: there may be a token in them, and
/// a proxy may send requests of several clients on one connection.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\ncontent-length: 12\r\nhost: a\r\n\r\n";
    const DIGITS: Range<usize> = 33..35;

    fn found(bytes: &[u8]) -> Option<Repeated> {
        find(HEAD.as_bytes(), &DIGITS, bytes)
    }

    fn with(number: &str) -> String {
        HEAD.replace("12", number)
    }

    #[test]
    fn another_number_makes_no_other_head() {
        assert_eq!(&HEAD[DIGITS], "12");
        for (number, content_length) in
            [("12", 12), ("0", 0), ("007", 7), ("9999999999999999999", 9_999_999_999_999_999_999)]
        {
            let head = with(number);
            let repeated = Repeated { length: head.len(), content_length };
            assert_eq!(found(head.as_bytes()), Some(repeated));
            assert_eq!(found(format!("{head}{{}}").as_bytes()), Some(repeated));
            for end in 0..head.len() {
                assert_eq!(found(&head.as_bytes()[..end]), None, "{end}");
            }
        }
    }

    #[test]
    fn everything_else_does() {
        let long = "1".repeat(20);
        for number in ["", "+1", "-1", "1 2", "1,2", " 1", "0x1", "12\r\ncontent-length: 1", &long] {
            assert_eq!(found(with(number).as_bytes()), None, "{number}");
        }
        for at in (0..HEAD.len()).filter(|at| !DIGITS.contains(at)) {
            let mut other = HEAD.as_bytes().to_vec();
            other[at] ^= 1;
            assert_eq!(found(&other), None, "{at}");
        }
    }
}
