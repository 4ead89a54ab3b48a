//! Users: people who may use the gateway, their roles, and changes to them.

use std::borrow::Borrow;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{AllowList, FieldError, Fields, PrincipalId, RateLimit, Token};

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

    /// The name, or with `-2`, `-3` and so on behind it the first that is not taken.
    pub fn numbered(text: &str, is_taken: impl Fn(&str) -> bool) -> Result<Self, String> {
        let mut name = Self::parse(text)?;
        let mut number = 1;
        while is_taken(&name.0) {
            number += 1;
            let ending = format!("-{number}");
            let room = MAX_LENGTH - ending.len();
            name = Self(text.chars().take(room).chain(ending.chars()).collect());
        }
        Ok(name)
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

/// Somebody's account at the identity provider (IdP).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdpAccount {
    pub issuer: String,
    /// The id there, which never changes, unlike names and addresses.
    pub subject: String,
    /// The groups there, as of the last answer of the IdP.
    pub groups: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub id: PrincipalId,
    pub username: HolderName,
    /// The user's own role; a group of the IdP may give another one.
    pub role: Role,
    /// People of the IdP have none.
    pub token: Option<Token>,
    /// The user's own limit; a group of the IdP may give another one.
    pub rate_limit: Option<RateLimit>,
    /// The user's own list; those of groups of the IdP are added to it.
    pub allow_list: AllowList,
    /// Whether the user is kept out.
    pub is_disabled: bool,
    /// The account at the IdP; `None` for a user that an admin created.
    pub idp: Option<IdpAccount>,
}

impl User {
    /// A user that an admin creates, who may use everything.
    pub fn local(username: HolderName, role: Role, token: Token) -> Self {
        Self {
            id: PrincipalId::random(),
            username,
            role,
            token: Some(token),
            rate_limit: None,
            allow_list: AllowList::everything(),
            is_disabled: false,
            idp: None,
        }
    }

    /// Reads a new user; a token is generated unless one is given.
    pub fn parse(object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let name = fields.required_text("username")?;
        let role = role(&mut fields)?.unwrap_or(Role::User);
        let token = token(&mut fields)?.unwrap_or_else(Token::generate);
        let mut user = Self::local(username(&name)?, role, token);
        user.rate_limit = RateLimit::take(&mut fields, "rate_limit")?;
        if let Some(allow_list) = AllowList::take(&mut fields, "allow_list")? {
            user.allow_list = allow_list;
        }
        fields.finish()?;
        Ok(user)
    }

    pub fn source(&self) -> &'static str {
        if self.idp.is_some() { "oidc" } else { "local" }
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
    pub allow_list: Option<AllowList>,
    pub is_disabled: Option<bool>,
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
            allow_list: AllowList::take(&mut fields, "allow_list")?,
            is_disabled: fields.flag("disabled")?,
        };
        // Responses contain them, so a response that is sent back as a body contains them too.
        fields.take("source");
        fields.take("last_seen_at");
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

pub(super) fn role(fields: &mut Fields) -> Result<Option<Role>, FieldError> {
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
        assert_eq!(field(json!({"username": "a", "allow_list": ["git*"]})), "allow_list[0]");
        let field = |value: Value| UserChange::parse(value.as_object().unwrap().clone()).unwrap_err().field;
        assert_eq!(field(json!({"disabled": "yes"})), "disabled");
        assert_eq!(field(json!({"allow_list": "*"})), "allow_list");
        assert_eq!(field(json!({"is_disabled": true})), "is_disabled");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let numbered = |text: &str, taken: &[&str]| {
            HolderName::numbered(text, |name| taken.contains(&name)).map(|name| name.to_string())
        };
        assert_eq!(numbered("ann", &["bob"]).unwrap(), "ann");
        assert_eq!(numbered("ann", &["ann", "ann-2"]).unwrap(), "ann-3");
        let long = "ä".repeat(MAX_LENGTH);
        assert_eq!(numbered(&long, &[&long]).unwrap(), format!("{}-2", "ä".repeat(MAX_LENGTH - 2)));
        assert!(numbered("a/b", &[]).is_err());
    }

    #[test]
    fn names_may_be_written_in_any_script() {
        for good in ["a", "Ada Lovelace", "münchen@example.com", "名前", "..", &"ä".repeat(128)] {
            assert!(HolderName::parse(good).is_ok(), "{good}");
        }
    }
}
