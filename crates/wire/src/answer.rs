//! The quick way to an answer's result: most of it is passed on unparsed, so only its beginning is looked for.

use super::head::Head;
use super::scan::Scan;

/// Where the result of an answer begins; `None` for an error and for any other message. What follows is not checked.
pub fn find_result(body: &[u8]) -> Option<usize> {
    let mut scan = Scan::unchecked(body);
    scan.enter().ok()?;
    while let Some(key) = scan.key().ok()? {
        match &body[key] {
            br#""result""# => return scan.next_start(),
            br#""jsonrpc""# | br#""id""# => {
                scan.value().ok()?;
            }
            br#""error""# | br#""method""# | br#""params""# => return None,
            _ => return Head::parse(body).ok()?.result.map(|result| result.start),
        }
    }
    None
}

/// Whether the object that begins at `start` has this member. Reads no further than needed.
pub fn has_member(body: &[u8], start: usize, key: &str) -> bool {
    let object = start..body.len();
    super::scan::members(body, &object).any(|(found, ..)| found == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_found_wherever_it_stands() {
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#,
            r#"{"result": {"a":1},"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","x":{"result":5},"result":{"a":1},"id":1}"#,
        ] {
            let start = find_result(body.as_bytes()).unwrap();
            assert!(body[start..].starts_with(r#"{"a":1}"#), "{body}");
            assert!(has_member(body.as_bytes(), start, "a"));
            assert!(!has_member(body.as_bytes(), start, "id"));
        }
    }

    #[test]
    fn what_has_no_result_has_none() {
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"data":{"result":{}}}}"#,
            r#"{"jsonrpc":"2.0","method":"result"}"#,
            r#"{"jsonrpc":"2.0"}"#,
            "[]",
        ] {
            assert_eq!(find_result(body.as_bytes()), None, "{body}");
        }
    }
}
