//! What a verified token must say: who issued it, for whom, and that it counts now.

use serde_json::Value;

use super::signed_jwt::Members;

/// How far the clock of an issuer may differ from ours, in seconds.
pub const SKEW: u64 = 60;
/// The longest `sub`, as OpenID Connect has it.
const LONGEST_SUBJECT: usize = 255;

/// What is wrong with the claims of a token.
#[derive(Debug, PartialEq, Eq)]
pub enum ClaimProblem {
    Expired,
    /// A sentence fragment, such as `is for another audience`.
    Wrong(String),
}

/// Checks `exp`, `nbf` and `iat`, and returns `exp`.
pub fn check_times(claims: &Members, now: u64) -> Result<u64, ClaimProblem> {
    let expires = time(claims, "exp")?.ok_or_else(|| wrong("has no expiry"))?;
    if expires.saturating_add(SKEW) <= now {
        return Err(ClaimProblem::Expired);
    }
    for name in ["nbf", "iat"] {
        if time(claims, name)?.is_some_and(|from| from > now.saturating_add(SKEW)) {
            return Err(wrong("is not valid yet: is the clock of this machine right?"));
        }
    }
    Ok(expires)
}

/// When a token says that it was issued.
pub fn issued_at(claims: &Members) -> Result<Option<u64>, ClaimProblem> {
    time(claims, "iat")
}

pub fn check_issuer(claims: &Members, issuer: &str) -> Result<(), ClaimProblem> {
    match claims.text("iss") == Some(issuer) {
        true => Ok(()),
        false => Err(wrong("is from another issuer")),
    }
}

/// Checks that one of these is an audience of the token.
pub fn check_audience(claims: &Members, wanted: &[String]) -> Result<(), ClaimProblem> {
    let is_wanted = audiences(claims)?.iter().any(|found| wanted.iter().any(|wanted| wanted == found));
    if is_wanted { Ok(()) } else { Err(wrong("is for another audience")) }
}

/// Checks that an ID token is for this client: alone, or as the one that it was issued to.
pub fn check_client(claims: &Members, client_id: &str) -> Result<(), ClaimProblem> {
    let audiences = audiences(claims)?;
    let is_party = match claims.get("azp") {
        Some(party) => party == client_id,
        None => audiences.len() == 1,
    };
    if is_party && audiences.contains(&client_id) {
        return Ok(());
    }
    Err(wrong("is for another client"))
}

/// The subject, which is never empty.
pub fn subject(claims: &Members) -> Result<String, ClaimProblem> {
    let subject = claims.text("sub").unwrap_or_default();
    let is_valid =
        !subject.is_empty() && subject.len() <= LONGEST_SUBJECT && !subject.contains(char::is_control);
    if is_valid { Ok(subject.to_owned()) } else { Err(wrong("has no usable sub")) }
}

fn audiences(claims: &Members) -> Result<Vec<&str>, ClaimProblem> {
    match claims.get("aud") {
        Some(Value::String(audience)) => Ok(vec![audience]),
        Some(Value::Array(list)) => {
            let texts = list.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
            texts.ok_or_else(|| wrong("has audiences that are not texts"))
        }
        _ => Err(wrong("has no audience")),
    }
}

/// A time in seconds since 1970; fractions are allowed.
fn time(claims: &Members, name: &str) -> Result<Option<u64>, ClaimProblem> {
    let Some(value) = claims.get(name) else { return Ok(None) };
    let seconds = value.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    match seconds {
        Some(seconds) => Ok(Some(seconds as u64)),
        None => Err(wrong(&format!("has no valid time in {name}"))),
    }
}

fn wrong(text: &str) -> ClaimProblem {
    ClaimProblem::Wrong(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Members {
        Members::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn times_count_with_a_minute_of_skew() {
        let check = |value| check_times(&claims(value), 1_000);
        assert_eq!(check(json!({"exp": 941})), Ok(941));
        assert_eq!(check(json!({"exp": 941.9, "nbf": 1060, "iat": 1060.5})), Ok(941));
        assert_eq!(check(json!({"exp": 940})), Err(ClaimProblem::Expired));
        assert_eq!(check(json!({"exp": 0})), Err(ClaimProblem::Expired));
        for wrong in [
            json!({}),
            json!({"exp": "2000"}),
            json!({"exp": -1}),
            json!({"exp": null}),
            json!({"exp": 2000, "nbf": 1061}),
            json!({"exp": 2000, "iat": 1061}),
            json!({"exp": 2000, "nbf": "0"}),
            json!({"exp": 2000, "iat": []}),
        ] {
            let text = wrong.to_string();
            assert!(matches!(check(wrong), Err(ClaimProblem::Wrong(_))), "{text}");
        }
        assert!(check(json!({"exp": 1e300})).is_ok());
    }

    #[test]
    fn an_id_token_for_several_clients_must_have_been_issued_to_this_one() {
        let check = |value| check_client(&claims(value), "gate").is_ok();
        assert!(check(json!({"aud": "gate"})));
        assert!(check(json!({"aud": ["gate"]})));
        assert!(check(json!({"aud": ["gate", "other"], "azp": "gate"})));
        assert!(!check(json!({"aud": ["gate", "other"]})));
        assert!(!check(json!({"aud": ["gate", "other"], "azp": "other"})));
        assert!(!check(json!({"aud": "gate", "azp": "other"})));
        assert!(!check(json!({"aud": ["gate", 1], "azp": "gate"})));
        assert!(!check(json!({"aud": []})));
        assert!(!check(json!({"aud": "other", "azp": "gate"})));
        assert!(!check(json!({"aud": {"gate": 1}})));
        assert!(!check(json!({"azp": "gate"})));
    }

    #[test]
    fn one_of_the_audiences_must_be_wanted() {
        let wanted = ["https://gate/mcp".to_owned(), "api://gate".to_owned()];
        let check = |value| check_audience(&claims(value), &wanted).is_ok();
        assert!(check(json!({"aud": "api://gate"})));
        assert!(check(json!({"aud": ["x", "https://gate/mcp"]})));
        assert!(!check(json!({"aud": "https://gate"})));
        assert!(!check(json!({})));
        assert!(check_audience(&claims(json!({"aud": ""})), &[]).is_err());
    }

    #[test]
    fn a_subject_is_short_and_printable() {
        for wrong in [json!({}), json!({"sub": ""}), json!({"sub": 7}), json!({"sub": "a\nb"})] {
            assert!(subject(&claims(wrong)).is_err());
        }
        assert!(subject(&claims(json!({"sub": "x".repeat(256)}))).is_err());
        assert_eq!(subject(&claims(json!({"sub": "x".repeat(255)}))).unwrap().len(), 255);
    }
}
