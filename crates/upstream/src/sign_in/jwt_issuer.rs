//! An external issuer of access tokens (`JWT_ISSUER`): which bearer JWTs of it count, and whom they are about.

use super::check::CheckStep;
use super::claims::{self, ClaimProblem};
use super::issuer::{Issuer, MetadataSource};
use super::person::PersonClaims;
use super::signed_jwt::{Members, SignedJwt};
use crate::Tls;
use model::WallClock;

pub struct JwtIssuer {
    issuer: Issuer,
    claims: PersonClaims,
    clock: WallClock,
}

/// Whom a token is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSubject {
    pub subject: String,
    /// `None` if the token does not have the claim: the groups are then unknown.
    pub groups: Option<Vec<String>>,
    pub username: String,
    /// Whether an application has the token for itself, not for a person.
    pub is_app: bool,
    /// When it was issued, in seconds since 1970, if it says so.
    pub issued_at: Option<u64>,
    /// Until when it counts, with the skew that clocks may have; in seconds since 1970.
    pub counts_until: u64,
}

/// Why a token does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtProblem {
    /// It is no JWT, or names another issuer.
    #[error("the token is not a JWT of the issuer")]
    Foreign,
    /// The issuer signed it, and it has expired.
    #[error("the token has expired")]
    Expired,
    /// It names the issuer, which did not sign it: anybody could have written it.
    #[error("the token is not signed with a key of its issuer")]
    Forged,
    /// The issuer signed it, and it is not for this gateway.
    #[error("the token {0}")]
    Refused(String),
    /// The keys of the issuer are not known, so nothing can be said about the token.
    #[error("{0}")]
    Unavailable(String),
}

impl JwtIssuer {
    pub fn new(issuer: &str, claims: PersonClaims, tls: Tls, clock: WallClock) -> Self {
        let issuer = Issuer::new(issuer, MetadataSource::AnyServer, tls, &clock);
        Self { issuer, claims, clock }
    }

    pub fn name(&self) -> &str {
        &self.issuer.name
    }

    /// Whether a token claims to be of this issuer. That is cheap to find out and proves nothing.
    pub fn looks_like_ours(&self, token: &[u8]) -> bool {
        SignedJwt::parse(token).is_ok_and(|token| claims::check_issuer(&token.claims, self.name()).is_ok())
    }

    /// Tries what verifying tokens needs, whatever is cached: the steps `discovery`, `keys` and `clock`.
    pub async fn check(&self) -> Vec<CheckStep> {
        self.issuer.check(self.clock.now_seconds()).await
    }

    /// Verifies an access token that must be for one of these audiences.
    pub async fn verify(&self, token: &[u8], audiences: &[String]) -> Result<JwtSubject, JwtProblem> {
        let token = SignedJwt::parse(token).map_err(|_| JwtProblem::Foreign)?;
        claims::check_issuer(&token.claims, self.name()).map_err(|_| JwtProblem::Foreign)?;
        let signed = self.issuer.signed(&token).await;
        if !signed.map_err(|problem| JwtProblem::Unavailable(problem.to_string()))? {
            return Err(JwtProblem::Forged);
        }
        let claims = &token.claims;
        let expires_at = claims::check_times(claims, self.clock.now_seconds())?;
        let (issued_at, counts_until) = (claims::issued_at(claims)?, expires_at.saturating_add(claims::SKEW));
        if let Some(kind) = other_kind(&token) {
            return Err(JwtProblem::Refused(format!("is {kind}, not an access token")));
        }
        // It counts only together with the proof of a key, which a bearer token does not have.
        if claims.has("cnf") {
            return Err(JwtProblem::Refused("is bound to a key".into()));
        }
        claims::check_audience(claims, audiences)?;
        let subject = claims::subject(claims)?;
        let is_app = is_app(claims, &subject);
        // An application has no groups and is found by its subject.
        let (groups, username) = match is_app {
            true => (None, subject.clone()),
            false => {
                let groups = self.claims.groups(claims);
                let username = self.claims.username(&[claims]);
                let unusable = |reason| JwtProblem::Refused(format!("cannot be used: {reason}"));
                (groups.map_err(unusable)?, username.map_err(unusable)?)
            }
        };
        Ok(JwtSubject { subject, groups, username, is_app, issued_at, counts_until })
    }
}

impl From<ClaimProblem> for JwtProblem {
    fn from(problem: ClaimProblem) -> Self {
        match problem {
            ClaimProblem::Expired => JwtProblem::Expired,
            ClaimProblem::Wrong(reason) => JwtProblem::Refused(reason),
        }
    }
}

/// Which other kind of token it is, if it is not an access token.
fn other_kind(token: &SignedJwt<'_>) -> Option<&'static str> {
    let claims = &token.claims;
    if ["nonce", "at_hash", "c_hash"].iter().any(|name| claims.has(name)) {
        return Some("an ID token");
    }
    let media_type = token.media_type.as_deref().unwrap_or("jwt");
    if !["jwt", "at+jwt"].contains(&media_type) {
        return Some("a token of another kind");
    }
    // Keycloak says it in a claim: ID, Refresh, Offline, Logout.
    match claims.get("typ") {
        None => None,
        Some(kind) if kind == "ID" => Some("an ID token"),
        Some(kind) => {
            let kind = kind.as_str().unwrap_or_default().to_ascii_lowercase();
            let is_access = ["bearer", "jwt", "at+jwt", "access", "access_token"].contains(&kind.as_str());
            (!is_access).then_some("a token of another kind")
        }
    }
}

fn is_app(claims: &Members, subject: &str) -> bool {
    claims.text("idtyp") == Some("app")
        || claims.text("gty") == Some("client-credentials")
        || ["client_id", "azp"].iter().any(|name| claims.text(name) == Some(subject))
}
