//! MCP clients: agents with a token and an allow list of servers.

use serde_json::{Map, Value};

use super::user::token;
use super::{AllowList, FieldError, Fields, HolderName, PrincipalId, RateLimit, Token};

const LONGEST_SUBJECT: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub id: PrincipalId,
    pub name: HolderName,
    pub description: String,
    pub allow_list: AllowList,
    pub token: Token,
    /// Whether the token was supplied by a person instead of generated here.
    pub is_custom_token: bool,
    pub rate_limit: Option<RateLimit>,
    /// The subject of tokens that another issuer gives to this client.
    pub jwt_subject: Option<String>,
}

impl Client {
    /// Reads a new client; a token is generated unless one is given. Without an allow list the client may use no
    /// server.
    pub fn parse(object: Map<String, Value>) -> Result<Self, FieldError> {
        let mut fields = Fields::new(object);
        let name = fields.required_text("name")?;
        let name = HolderName::parse(&name).map_err(|problem| FieldError::new("name", problem))?;
        let given = ClientFields::take(fields)?;
        Ok(Self {
            id: PrincipalId::random(),
            name,
            description: given.description,
            allow_list: given.allow_list.unwrap_or_default(),
            is_custom_token: given.token.is_some(),
            token: given.token.unwrap_or_else(Token::generate),
            rate_limit: given.rate_limit,
            jwt_subject: given.jwt_subject,
        })
    }

    /// Returns the client with all fields overwritten. A field that the body omits becomes empty; only an omitted
    /// token, and an allow list that is explicitly `null`, stay as they are. A name in the body is ignored.
    pub fn replaced(&self, mut object: Map<String, Value>) -> Result<Self, FieldError> {
        let keeps_allow_list = object.get("allow_list").is_some_and(Value::is_null);
        object.remove("name");
        let given = ClientFields::take(Fields::new(object))?;
        let kept = if keeps_allow_list { self.allow_list.clone() } else { AllowList::default() };
        // The same text again is not a new token.
        let new = given.token.filter(|token| token.secret() != self.token.secret());
        Ok(Self {
            id: self.id,
            name: self.name.clone(),
            description: given.description,
            allow_list: given.allow_list.unwrap_or(kept),
            is_custom_token: self.is_custom_token || new.is_some(),
            token: new.unwrap_or_else(|| self.token.clone()),
            rate_limit: given.rate_limit,
            jwt_subject: given.jwt_subject,
        })
    }
}

/// The fields of a request body other than the name.
struct ClientFields {
    description: String,
    allow_list: Option<AllowList>,
    token: Option<Token>,
    rate_limit: Option<RateLimit>,
    jwt_subject: Option<String>,
}

impl ClientFields {
    fn take(mut fields: Fields) -> Result<Self, FieldError> {
        let given = Self {
            description: fields.text("description")?.unwrap_or_default(),
            allow_list: AllowList::take(&mut fields, "allow_list")?,
            token: token(&mut fields)?,
            rate_limit: RateLimit::take(&mut fields, "rate_limit")?,
            jwt_subject: jwt_subject(&mut fields)?,
        };
        // Responses contain it, so a response that is sent back as a body contains it too.
        fields.take("is_custom_access_token");
        fields.finish()?;
        Ok(given)
    }
}

fn jwt_subject(fields: &mut Fields) -> Result<Option<String>, FieldError> {
    let wrong = |problem: String| FieldError::new("jwt_subject", problem);
    let Some(subject) = fields.text("jwt_subject")? else { return Ok(None) };
    if subject.is_empty() || subject.contains(char::is_control) {
        return Err(wrong("must not be empty or contain control characters".into()));
    }
    if subject.chars().count() > LONGEST_SUBJECT {
        return Err(wrong(format!("must have at most {LONGEST_SUBJECT} characters")));
    }
    Ok(Some(subject))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn every_mistake_names_its_field() {
        let field = |value: Value| Client::parse(object(value)).unwrap_err().field;
        assert_eq!(field(json!({})), "name");
        assert_eq!(field(json!({"name": "a/b"})), "name");
        assert_eq!(field(json!({"name": "a", "allow_list": "*"})), "allow_list");
        assert_eq!(field(json!({"name": "a", "allow_list": ["s", 1]})), "allow_list[1]");
        assert_eq!(field(json!({"name": "a", "allowed_servers": []})), "allowed_servers");
        assert_eq!(field(json!({"name": "a", "access_token": "1234 5678"})), "access_token");
        assert_eq!(field(json!({"name": "a", "description": 1})), "description");
        assert_eq!(field(json!({"name": "a", "allow_list": ["s", "t*"]})), "allow_list[1]");
        assert_eq!(field(json!({"name": "a", "jwt_subject": ""})), "jwt_subject");
        assert_eq!(field(json!({"name": "a", "rate_limit": {"burst": 1}})), "rate_limit.calls_per_minute");
    }

    #[test]
    fn replacing_overwrites_all_but_the_token_and_what_is_null() {
        let body = json!({"name": "a", "description": "d", "allow_list": ["s"]});
        let client = Client::parse(object(body)).unwrap();
        let kept = client.replaced(object(json!({"name": "b", "allow_list": null}))).unwrap();
        assert_eq!((kept.name.as_str(), kept.description.as_str()), ("a", ""));
        assert_eq!(kept.allow_list.entries(), ["s"]);
        assert_eq!((kept.token.id(), kept.is_custom_token), (client.token.id(), false));
        let same = client.token.secret().expose();
        let same = client.replaced(object(json!({"access_token": same}))).unwrap();
        assert_eq!((same.token.id(), same.is_custom_token), (client.token.id(), false));
        assert!(same.allow_list.entries().is_empty());
        let other = client.replaced(object(json!({"access_token": "12345678"}))).unwrap();
        assert_ne!(other.token.id(), client.token.id());
        assert!(other.is_custom_token);
        let limited = client.replaced(object(json!({"rate_limit": {"calls_per_minute": 1}}))).unwrap();
        assert_eq!(limited.rate_limit, Some(RateLimit { calls_per_minute: 1, burst: None }));
        assert_eq!(limited.replaced(object(json!({}))).unwrap().rate_limit, None);
    }
}
