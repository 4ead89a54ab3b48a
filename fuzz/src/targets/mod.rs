//! One file for each target, named after what it reads.

pub mod authorize;
pub mod body;
pub mod head;
pub mod import;
pub mod input;
pub mod jwt;
pub mod patch;
pub mod request;
pub mod response;
pub mod session;
pub mod sse;
pub mod state;
pub mod template;

/// Messages of HTTP that are nearly the same: with another number, and with a line twice or not at all.
fn neighbours(input: &[u8]) -> Vec<Vec<u8>> {
    let find = |text: &[u8], wanted: &[u8]| {
        text.windows(wanted.len()).position(|part| part.eq_ignore_ascii_case(wanted))
    };
    let head = &input[..find(input, b"\r\n\r\n").unwrap_or(input.len())];
    let length = find(head, b"content-length: ").map_or(0, |at| at + b"content-length: ".len());
    let last_digit = head.iter().rposition(u8::is_ascii_digit).unwrap_or(0);
    let mut similar = Vec::new();
    for at in [length, last_digit] {
        let (before, after) = input.split_at(at);
        let rest = after.get(1..).unwrap_or_default();
        for (digits, rest) in [(&b"7"[..], rest), (b"42", rest), (b"", rest), (b"0", after), (b"+", after)] {
            similar.push([before, digits, rest].concat());
        }
    }
    let line = find(input, b"\r\n").map_or(0, |at| at + 2);
    let next = line + find(&input[line..], b"\r\n").map_or(0, |at| at + 2);
    similar.push([&input[..line], &input[next..]].concat());
    similar.push([&input[..next], &input[line..]].concat());
    similar
}
