//! Groups of the identity provider (IdP): what people may do because they are in one of them.

use serde_json::{Map, Value};

use super::user::role;
use super::{AllowList, FieldError, Fields, RateLimit, Role};

/// The group of everybody whom the IdP knows.
pub const EVERYBODY: &str = "*";
const MAX_LENGTH: usize = 256;

/// What people in a group of the IdP may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdpGroup {
    /// As the IdP writes it.
    pub name: String,
    pub role: Role,
    pub allow_list: AllowList,
    pub rate_limit: Option<RateLimit>,
}

impl IdpGroup {
    /// Reads a group from a request body. A field that is omitted is empty.
    pub fn parse(name: &str, object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let group = Self {
            name: check_name(name)?.to_owned(),
            role: role(&mut fields)?.unwrap_or(Role::User),
            allow_list: AllowList::take(&mut fields, "allow_list")?.unwrap_or_default(),
            rate_limit: RateLimit::take(&mut fields, "rate_limit")?,
        };
        // The name is in the path; a response that is sent back as a body has it too.
        fields.take("name");
        fields.finish()?;
        Ok(group)
    }
}

fn check_name(name: &str) -> Result<&str, FieldError> {
    let wrong = |problem: String| Err(FieldError::new("name", problem));
    if name.is_empty() {
        return wrong("must not be empty".into());
    }
    if name.chars().count() > MAX_LENGTH {
        return wrong(format!("must have at most {MAX_LENGTH} characters"));
    }
    if name.contains(char::is_control) {
        return wrong("must not contain control characters".into());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(name: &str, value: Value) -> Result<IdpGroup, FieldError> {
        IdpGroup::parse(name, value.as_object().unwrap().clone())
    }

    #[test]
    fn every_mistake_names_its_field() {
        let field = |name: &str, value: Value| parse(name, value).unwrap_err().field;
        for name in ["", "a\nb", &"x".repeat(257)] {
            assert_eq!(field(name, json!({})), "name", "{name:?}");
        }
        assert_eq!(field("a", json!({"role": "root"})), "role");
        assert_eq!(field("a", json!({"allow_list": ["a b"]})), "allow_list[0]");
        assert_eq!(field("a", json!({"rate_limit": 1})), "rate_limit");
        assert_eq!(field("a", json!({"members": []})), "members");
    }

    #[test]
    fn what_is_omitted_is_empty() {
        let group = parse("/teams/eng ineering", json!({"name": "other", "role": null})).unwrap();
        assert_eq!((group.name.as_str(), group.role), ("/teams/eng ineering", Role::User));
        assert!(group.allow_list.entries().is_empty() && group.rate_limit.is_none());
    }
}
