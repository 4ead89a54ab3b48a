//! Users: people who may use the gateway, their roles, and changes to them.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{FieldError, Fields, PrincipalId, RateLimit, Token};

const MAX_LENGTH: usize = 128;

/// The name of a user or an MCP client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct HolderName(String);

impl HolderName {
    /// Parses a name. The error is a sentence fragment that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must not be empty".into());
        }
        if text.chars().count() > MAX_LENGTH {
            return Err(format!("must have at most {MAX_LENGTH} characters"));
        }
        if text.contains(|c: char| c.is_control() || c == '/') {
            return Err("must not contain '/' or control characters".into());
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for HolderName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Admin,
    User,
}

impl Role {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "admin" => Some(Role::Admin),
            "user" => Some(Role::User),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::User => "user",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: PrincipalId,
    pub username: HolderName,
    pub role: Role,
    pub token: Token,
    pub rate_limit: Option<RateLimit>,
}

impl User {
    /// Reads a new user; a token is generated unless one is given.
    pub fn parse(object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let name = fields.required_text("username")?;
        let user = Self {
            id: PrincipalId::random(),
            username: username(&name)?,
            role: role(&mut fields)?.unwrap_or(Role::User),
            token: token(&mut fields)?.unwrap_or_else(Token::generate),
            rate_limit: RateLimit::take(&mut fields, "rate_limit")?,
        };
        fields.finish()?;
        Ok(user)
    }
}

/// A change to a user; absent fields stay as they are, except for the rate limit.
#[derive(Debug)]
pub struct UserChange {
    pub username: Option<HolderName>,
    pub role: Option<Role>,
    pub token: Option<Token>,
    /// The new limit; `None` removes it.
    pub rate_limit: Option<RateLimit>,
}

impl UserChange {
    pub fn parse(object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let name = fields.text("username")?;
        let change = Self {
            username: name.as_deref().map(username).transpose()?,
            role: role(&mut fields)?,
            token: token(&mut fields)?,
            rate_limit: RateLimit::take(&mut fields, "rate_limit")?,
        };
        fields.finish()?;
        Ok(change)
    }
}

fn username(text: &str) -> Result<HolderName, FieldError> {
    let wrong = |problem: String| FieldError::new("username", problem);
    if text == "whoami" {
        return Err(wrong("must not be \"whoami\", which is a path of the API".into()));
    }
    HolderName::parse(text).map_err(wrong)
}

fn role(fields: &mut Fields) -> Result<Option<Role>, FieldError> {
    let wrong = || FieldError::new("role", "must be \"admin\" or \"user\"");
    fields.text("role")?.map(|text| Role::parse(&text).ok_or_else(wrong)).transpose()
}

/// Reads the token that a body supplies, if any.
pub(super) fn token(fields: &mut Fields) -> Result<Option<Token>, FieldError> {
    let wrong = |problem| FieldError::new("access_token", problem);
    fields.text("access_token")?.map(|text| Token::parse(&text).map_err(wrong)).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_mistake_names_its_field() {
        let field = |value: Value| User::parse(value.as_object().unwrap().clone()).unwrap_err().field;
        assert_eq!(field(json!({})), "username");
        for bad in ["", "a/b", "a\nb", "\u{7f}", &"x".repeat(129), "whoami"] {
            assert_eq!(field(json!({"username": bad})), "username", "{bad:?}");
        }
        for bad in [json!("root"), json!("Admin"), json!(""), json!(1)] {
            assert_eq!(field(json!({"username": "a", "role": bad})), "role", "{bad}");
        }
        assert_eq!(field(json!({"username": "a", "access_token": "short"})), "access_token");
        assert_eq!(field(json!({"username": "a", "name": "b"})), "name");
        assert_eq!(field(json!({"username": "a", "rate_limit": []})), "rate_limit");
    }

    #[test]
    fn names_may_be_written_in_any_script() {
        for good in ["a", "Ada Lovelace", "münchen@example.com", "名前", "..", &"ä".repeat(128)] {
            assert!(HolderName::parse(good).is_ok(), "{good}");
        }
    }
}
