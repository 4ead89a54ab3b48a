//! The error for an unknown resource, which the eras write differently.

use wire::error::code;
use wire::{Patch, text, walk};

/// Whether an error says that there is no resource with this URI. Legacy servers have a code for it; modern ones send
/// `INVALID_PARAMS`, as for any other wrong parameter, and name the URI.
pub fn says_not_found(code: i64, data: Option<&[u8]>, uri: &str) -> bool {
    let names_uri = || {
        let data = data?;
        let named = walk::member(data, &walk::whole(data).ok()?, "uri")?;
        Some(text::unescape(&data[named])? == uri)
    };
    code == i64::from(code::RESOURCE_NOT_FOUND)
        || code == i64::from(code::INVALID_PARAMS) && names_uri() == Some(true)
}

/// Adds the URI to the data of an error.
pub fn with_uri(data: &[u8], uri: &str) -> Vec<u8> {
    let uri = text::quote(uri);
    match walk::whole(data) {
        Ok(object) if data[object.start] == b'{' => {
            let mut patch = Patch::new(data);
            patch.set_member(&object, "uri", &uri);
            patch.apply().into()
        }
        Ok(_) | Err(_) => [br#"{"uri":"#.as_slice(), &uri, b"}"].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_parameter_is_no_unknown_resource() {
        let says = |code, data: &str| says_not_found(code, Some(data.as_bytes()), "x://1");
        assert!(says(-32002, "null") && says(-32602, r#"{"uri":"x:\/\/1"}"#));
        for data in ["null", r#""x://1""#, r#"{"uri":"x://2"}"#, r#"{"uri":["x://1"]}"#, "{"] {
            assert!(!says(-32602, data), "{data}");
        }
        assert!(!says(-32603, r#"{"uri":"x://1"}"#));
    }
}
