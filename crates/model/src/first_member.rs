//! Reads one member of a JSON object, and nothing after it.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The first member called `key`, if it is a string.
pub fn read(object: &RawValue, key: &str) -> Option<String> {
    let mut found = None;
    // Fails if members are left, which does not matter.
    let _ =
        serde_json::Deserializer::from_str(object.get()).deserialize_map(Finder { key, found: &mut found });
    found
}

struct Finder<'a> {
    key: &'a str,
    found: &'a mut Option<String>,
}

impl<'de> Visitor<'de> for Finder<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(key) = members.next_key::<String>()? {
            if key == self.key {
                *self.found = Some(members.next_value()?);
                return Ok(());
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_wherever_it_is() {
        for (object, name) in [
            (r#"{"name":"a","b":{"c":1}}"#, Some("a")),
            (r#"{"b":{"name":"no"},"c":[1],"n\u0061me":"a\n"}"#, Some("a\n")),
            (r#"{"name":"a"}"#, Some("a")),
            (r#"{"name":1}"#, None),
            (r#"{"names":"a"}"#, None),
            (r#"["name","a"]"#, None),
            ("{}", None),
        ] {
            let object = RawValue::from_string(object.to_owned()).unwrap();
            assert_eq!(read(&object, "name").as_deref(), name, "{object}");
        }
    }
}
