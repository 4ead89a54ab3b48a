//! How an OAuth client proves with its own key that it is the one that it says (`private_key_jwt`, RFC 7523).

use super::claims::{self, ClaimProblem, SKEW};
use super::key_set::KeySet;
use super::signed_jwt::SignedJwt;

/// The longest time that an assertion may count, in seconds.
const LONGEST_LIFE: u64 = 60 * 60;

/// What an assertion must say.
pub struct ProvenClient<'a> {
    pub client_id: &'a str,
    /// Our issuer and our token endpoint: one of them must be an audience.
    pub audiences: &'a [String],
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssertionProblem {
    #[error("the client assertion is not signed with a key of the client")]
    UnknownKey,
    #[error("the client assertion {0}")]
    Wrong(String),
    /// Its keys cannot be fetched.
    #[error("{0}")]
    Unavailable(String),
}

pub fn verify_client_assertion(
    assertion: &[u8],
    keys: &KeySet,
    client: &ProvenClient<'_>,
    now: u64,
) -> Result<(), AssertionProblem> {
    let wrong = |text: &str| AssertionProblem::Wrong(text.to_owned());
    let token = SignedJwt::parse(assertion).map_err(AssertionProblem::Wrong)?;
    let claims = &token.claims;
    let names = |claim: &str| claims.text(claim) == Some(client.client_id);
    if !names("iss") || !names("sub") {
        return Err(wrong("is about another client"));
    }
    if !keys.verifies(&token) {
        return Err(AssertionProblem::UnknownKey);
    }
    let expires_at = claims::check_times(claims, now)?;
    if expires_at > now.saturating_add(LONGEST_LIFE + SKEW) {
        return Err(wrong("counts for longer than an hour"));
    }
    Ok(claims::check_audience(claims, client.audiences)?)
}

impl From<ClaimProblem> for AssertionProblem {
    fn from(problem: ClaimProblem) -> Self {
        match problem {
            ClaimProblem::Expired => AssertionProblem::Wrong("has expired".to_owned()),
            ClaimProblem::Wrong(reason) => AssertionProblem::Wrong(reason),
        }
    }
}
