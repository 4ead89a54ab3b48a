//! A person as the identity provider describes them: found by issuer and subject, never by the name.

use serde_json::Value;

use super::signed_jwt::Members;
use model::Secret;

/// The most groups of a person, and the longest name of one.
const MOST_GROUPS: usize = 2_000;
const LONGEST_GROUP: usize = 1_024;
/// The longest name that is taken over. A user's name may be longer, so there is room for `-2`.
const LONGEST_NAME: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub issuer: String,
    pub subject: String,
    /// The name to use unless another user has it: never empty, without `/` and control characters.
    pub username: String,
    pub groups: Vec<String>,
    /// The refresh token of the identity provider. After `check_again`, `None` means that the one before still counts.
    pub refresh_token: Option<Secret>,
}

/// The claims that say what a person is called and which groups they are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonClaims {
    /// `None` for `preferred_username`, else `email`, else `sub`.
    pub username: Option<String>,
    pub groups: String,
}

impl Default for PersonClaims {
    fn default() -> Self {
        Self { username: None, groups: "groups".to_owned() }
    }
}

impl PersonClaims {
    /// The name of the person, from the first of these objects that has one. The error is a sentence.
    pub fn username(&self, from: &[&Members]) -> Result<String, String> {
        let name = |claim: &str| {
            let mut found = from.iter().filter_map(|claims| claims.text(claim)).map(clean);
            found.find(|name| !name.is_empty())
        };
        match &self.username {
            Some(claim) => name(claim).ok_or_else(|| {
                format!("the identity provider sends no claim {claim:?}, which OIDC_USERNAME_CLAIM asks for")
            }),
            None => {
                let found = ["preferred_username", "email", "sub"].into_iter().find_map(name);
                found.ok_or_else(|| "the identity provider sends no name".to_owned())
            }
        }
    }

    /// The groups; `None` if the object does not have the claim. The error is a sentence.
    pub fn groups(&self, claims: &Members) -> Result<Option<Vec<String>>, String> {
        let claim = &self.groups;
        let unusable = || {
            format!(
                "the claim {claim:?} of the identity provider is neither a text nor a list of texts; choose another \
                 one with OIDC_GROUPS_CLAIM"
            )
        };
        let mut groups: Vec<String> = match claims.get(claim) {
            None | Some(Value::Null) if self.are_left_out(claims) => return Err(left_out()),
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(group)) => vec![group.clone()],
            Some(Value::Array(list)) => {
                let texts = list.iter().map(|group| group.as_str().map(str::to_owned));
                texts.collect::<Option<_>>().ok_or_else(unusable)?
            }
            Some(_) => return Err(unusable()),
        };
        // None is dropped silently: a group may forbid something.
        if groups.len() > MOST_GROUPS || groups.iter().any(|group| group.len() > LONGEST_GROUP) {
            return Err(format!(
                "the identity provider sends more than {MOST_GROUPS} groups, or one with more than {LONGEST_GROUP} \
                 characters; let it send only those that matter"
            ));
        }
        groups.retain(|group| !group.is_empty());
        groups.sort();
        groups.dedup();
        Ok(Some(groups))
    }

    /// Whether Microsoft Entra ID left the groups out because they are too many.
    fn are_left_out(&self, claims: &Members) -> bool {
        let says_so = |value: &Value| *value == Value::Bool(true) || *value == "true";
        claims.get("hasgroups").is_some_and(says_so)
            || claims.get("_claim_names").is_some_and(|names| names.get(&self.groups).is_some())
    }
}

fn left_out() -> String {
    "the identity provider left out the groups of this person because they are too many (Microsoft Entra ID does so \
     beyond 200); let it send only the groups that are assigned to the application, or app roles with \
     OIDC_GROUPS_CLAIM=roles"
        .to_owned()
}

fn clean(name: &str) -> String {
    let name: String = name.trim().chars().take(LONGEST_NAME).collect();
    name.replace(|c: char| c.is_control() || c == '/', "-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn members(value: Value) -> Members {
        Members::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_name_is_the_first_claim_that_has_one() {
        let claims = PersonClaims::default();
        let name = |value| claims.username(&[&members(value)]);
        assert_eq!(name(json!({"preferred_username": "ann", "email": "a@x", "sub": "1"})).unwrap(), "ann");
        assert_eq!(name(json!({"preferred_username": " ", "email": "a@x", "sub": "1"})).unwrap(), "a@x");
        assert_eq!(name(json!({"preferred_username": 7, "sub": "1"})).unwrap(), "1");
        assert_eq!(name(json!({"preferred_username": "corp/ann\u{7}"})).unwrap(), "corp-ann-");
        assert_eq!(name(json!({"email": "x".repeat(500)})).unwrap().len(), LONGEST_NAME);
        assert!(name(json!({})).is_err());
        let userinfo = members(json!({"preferred_username": "ann"}));
        assert_eq!(claims.username(&[&members(json!({"sub": "1"})), &userinfo]).unwrap(), "ann");
        let chosen = PersonClaims { username: Some("upn".into()), ..claims };
        assert_eq!(chosen.username(&[&members(json!({"upn": "ann@x", "sub": "1"}))]).unwrap(), "ann@x");
        let error = chosen.username(&[&members(json!({"preferred_username": "ann"}))]).unwrap_err();
        assert!(error.contains("OIDC_USERNAME_CLAIM"), "{error}");
    }

    #[test]
    fn groups_are_a_list_or_one() {
        let groups = |value| PersonClaims::default().groups(&members(value));
        assert_eq!(groups(json!({})).unwrap(), None);
        assert_eq!(groups(json!({"groups": null})).unwrap(), None);
        assert_eq!(groups(json!({"groups": []})).unwrap(), Some(vec![]));
        assert_eq!(groups(json!({"groups": "eng"})).unwrap(), Some(vec!["eng".to_owned()]));
        let several = groups(json!({"groups": ["ops", "/eng", "ops", ""]})).unwrap().unwrap();
        assert_eq!(several, ["/eng", "ops"]);
        for wrong in [json!({"groups": {"eng": 1}}), json!({"groups": ["a", 1]}), json!({"groups": true})] {
            assert!(groups(wrong).unwrap_err().contains("OIDC_GROUPS_CLAIM"));
        }
        assert!(groups(json!({"groups": vec!["g"; 2001]})).is_err());
        assert!(groups(json!({"groups": ["g".repeat(1025)]})).is_err());
    }

    #[test]
    fn groups_that_were_left_out_are_not_no_groups() {
        let groups = |value| PersonClaims::default().groups(&members(value));
        for left_out in [
            json!({"hasgroups": true}),
            json!({"hasgroups": "true"}),
            json!({"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}}),
        ] {
            assert!(groups(left_out).unwrap_err().contains("too many"));
        }
        assert_eq!(groups(json!({"_claim_names": {"roles": "src1"}})).unwrap(), None);
        assert_eq!(groups(json!({"hasgroups": false})).unwrap(), None);
        assert!(groups(json!({"hasgroups": true, "groups": ["a"]})).unwrap().is_some());
    }
}
