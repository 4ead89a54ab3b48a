//! Access tokens of another issuer (`JWT_ISSUER`), which count at the MCP endpoints in place of our own.

use std::collections::HashMap;
use std::sync::Mutex;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::http::Face;
use crate::http::error::ErrorResponse;
use gateway::ErrorKind;
use gateway::identification::Identity;
use gateway::sign_in::PeopleRules;
use model::{By, PrincipalId};
use upstream::sign_in::{JwtIssuer, JwtProblem, JwtSubject, Person};

/// The most tokens that are remembered as verified.
const MOST_VERIFIED: usize = 10_000;

/// What is needed to judge tokens of another issuer.
pub struct ExternalTokens {
    issuer: JwtIssuer,
    /// `JWT_AUDIENCE`; without it tokens must be for the endpoint or for the whole gateway.
    audience: Option<String>,
    url: Url,
    people: PeopleRules,
    verified: Mutex<HashMap<VerifiedKey, Verified>>,
}

/// The digest of a token, and the path that it was verified for.
type VerifiedKey = ([u8; 32], String);

#[derive(Clone)]
struct Verified {
    principal: PrincipalId,
    expires_at_ms: i64,
    ends: CancellationToken,
}

/// What came of a token.
pub enum Judged {
    Identity(Box<Identity>),
    /// The token is of the issuer, and does not count (any more).
    Refused,
    /// The token is not of the issuer, or nobody signed it.
    Foreign,
}

impl ExternalTokens {
    pub fn new(issuer: JwtIssuer, audience: Option<String>, url: Url, people: PeopleRules) -> Self {
        Self { issuer, audience, url, people, verified: Mutex::default() }
    }

    /// Finds the user or client of a token at an MCP endpoint.
    pub async fn judge(
        &self,
        face: &Face,
        token: &[u8],
        path: &str,
        address: Option<String>,
    ) -> Result<Judged, ErrorResponse> {
        let key = (Sha256::digest(token).into(), path.to_owned());
        let now_ms = face.gateway.clock_ms();
        if let Some(known) = self.find(&key, now_ms) {
            return Ok(match face.gateway.enabled_principal(known.principal) {
                Some(principal) => {
                    Judged::of(Identity { principal, ends: known.ends, reach: None, grant: None })
                }
                None => Judged::Refused,
            });
        }
        let subject = match self.issuer.verify(token, &self.audiences(path)).await {
            Ok(subject) => subject,
            Err(JwtProblem::Foreign) => return Ok(Judged::Foreign),
            Err(JwtProblem::Expired) => return Ok(Judged::Refused),
            Err(JwtProblem::Refused(reason)) => {
                tracing::debug!(reason, "a token of the external issuer was refused");
                return Ok(if self.issuer.looks_like_ours(token) {
                    Judged::Refused
                } else {
                    Judged::Foreign
                });
            }
            Err(JwtProblem::Unavailable(reason)) => {
                return Err(ErrorResponse::unavailable(format!("tokens cannot be verified now: {reason}")));
            }
        };
        let expires_at_ms = i64::try_from(subject.expires_at).unwrap_or(i64::MAX / 1000).saturating_mul(1000);
        let Some(principal) = self.principal_of(face, subject, address).await? else {
            return Ok(Judged::Refused);
        };
        let Some(found) = face.gateway.enabled_principal(principal) else { return Ok(Judged::Refused) };
        let ends = face.gateway.until_expiry(&found, expires_at_ms);
        self.remember(key, Verified { principal, expires_at_ms, ends: ends.clone() }, now_ms);
        Ok(Judged::of(Identity { principal: found, ends, reach: None, grant: None }))
    }

    async fn principal_of(
        &self,
        face: &Face,
        subject: JwtSubject,
        address: Option<String>,
    ) -> Result<Option<PrincipalId>, ErrorResponse> {
        if subject.is_app {
            return Ok(face.gateway.client_of_subject(&subject.subject));
        }
        let JwtSubject { subject, groups, username, .. } = subject;
        let issuer = self.issuer.name().to_owned();
        let by = By::anonymous(address);
        // A token without groups says nothing about them.
        let groups = groups.or_else(|| face.gateway.known_groups(&issuer, &subject)).unwrap_or_default();
        let person = Person { issuer, subject, username, groups, refresh_token: None };
        match face.gateway.take_over_person(person, &self.people, &by).await {
            Ok(user) => Ok(Some(user.id())),
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The audiences of which a token must name one.
    fn audiences(&self, path: &str) -> Vec<String> {
        match &self.audience {
            Some(audience) => vec![audience.clone()],
            None => {
                let root = self.url.as_str().trim_end_matches('/');
                let path = path
                    .strip_suffix("/message")
                    .map_or_else(|| path.to_owned(), |base| format!("{base}/sse"));
                vec![format!("{root}{path}"), root.to_owned(), format!("{root}/")]
            }
        }
    }

    fn find(&self, key: &VerifiedKey, now_ms: i64) -> Option<Verified> {
        let verified = self.verified.lock().expect("no code panics while it holds the tokens");
        verified.get(key).filter(|known| now_ms < known.expires_at_ms && !known.ends.is_cancelled()).cloned()
    }

    fn remember(&self, key: VerifiedKey, token: Verified, now_ms: i64) {
        let mut verified = self.verified.lock().expect("no code panics while it holds the tokens");
        if verified.len() >= MOST_VERIFIED {
            verified.retain(|_, known| now_ms < known.expires_at_ms && !known.ends.is_cancelled());
            if verified.len() >= MOST_VERIFIED {
                verified.clear();
            }
        }
        verified.insert(key, token);
    }
}

impl Judged {
    fn of(identity: Identity) -> Self {
        Self::Identity(Box::new(identity))
    }
}
