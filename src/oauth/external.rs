//! Access tokens of another issuer (`JWT_ISSUER`), which count at the MCP endpoints in place of our own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::http::Face;
use crate::http::error::ErrorResponse;
use gateway::ErrorKind;
use gateway::identification::Identity;
use gateway::principals::Principal;
use gateway::sign_in::PeopleRules;
use model::{By, PrincipalId, Reach};
use upstream::sign_in::{CheckStep, JwtIssuer, JwtProblem, JwtSubject, Person};

/// The most tokens that are remembered as verified.
const MOST_VERIFIED: usize = 10_000;
/// For how long a token is not verified again. After that, the key that signed it may have been withdrawn.
const CURRENT_MS: i64 = 5 * 60 * 1000;

/// What is needed to judge tokens of another issuer.
pub struct ExternalTokens {
    issuer: JwtIssuer,
    /// `JWT_AUDIENCE`; without it tokens must be for the endpoint or for the whole gateway.
    audience: Option<String>,
    url: Url,
    people: PeopleRules,
    verified: Mutex<HashMap<VerifiedKey, Verified>>,
    /// What the newest token of each person said that has groups.
    newest: Mutex<HashMap<String, NewestGroups>>,
}

/// What is known from the newest token with groups.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NewestGroups {
    /// In seconds since 1970.
    issued_at: u64,
    /// Whether one of the groups may use the gateway.
    are_admitted: bool,
}

/// The digest of a token, and the path that it was verified for.
type VerifiedKey = ([u8; 32], String);

#[derive(Clone)]
struct Verified {
    principal: PrincipalId,
    /// The subject of a person, and when the token was issued.
    person: Option<(String, u64)>,
    verified_at_ms: i64,
    ends_at_ms: i64,
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
        Self { issuer, audience, url, people, verified: Mutex::default(), newest: Mutex::default() }
    }

    /// Tries what verifying tokens needs.
    pub async fn check(&self) -> Vec<CheckStep> {
        self.issuer.check().await
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
        let known = self.find(&key, now_ms);
        if let Some(known) = known.as_ref().filter(|known| now_ms < known.verified_at_ms + CURRENT_MS) {
            return Ok(known.judged(face));
        }
        let subject = match (self.issuer.verify(token, &self.audiences(path)).await, &known) {
            (Ok(subject), _) => subject,
            // What is known counts while the issuer cannot be asked.
            (Err(JwtProblem::Unavailable(_)), Some(known)) => return Ok(known.judged(face)),
            (Err(JwtProblem::Unavailable(reason)), None) => {
                // Whoever sends a token need not know what the network of the gateway is like.
                tracing::debug!(reason, "a token of the external issuer cannot be verified");
                return Err(ErrorResponse::unavailable("tokens cannot be verified now; try again later"));
            }
            (Err(_), Some(_)) => {
                self.end(|(digest, _), _| *digest == key.0);
                return Ok(Judged::Refused);
            }
            (Err(JwtProblem::Foreign | JwtProblem::Forged), None) => return Ok(Judged::Foreign),
            (Err(JwtProblem::Expired), None) => return Ok(Judged::Refused),
            (Err(JwtProblem::Refused(reason)), None) => {
                tracing::debug!(reason, "a token of the external issuer was refused");
                return Ok(Judged::Refused);
            }
        };
        let ends_at_ms = i64::try_from(subject.counts_until).unwrap_or(i64::MAX / 1000).saturating_mul(1000);
        let person =
            (!subject.is_app).then(|| (subject.subject.clone(), subject.issued_at.unwrap_or_default()));
        let found = match subject.is_app {
            true => face.gateway.client_of_subject(&subject.subject),
            false => self.user_of(face, subject, address).await?,
        };
        let Some(found) = found.filter(|found| !found.is_disabled()) else { return Ok(Judged::Refused) };
        let ends = match known.filter(|known| known.principal == found.id()) {
            Some(known) => known.ends,
            None => face.gateway.until_expiry(&found, ends_at_ms),
        };
        let principal = found.id();
        let verified =
            Verified { principal, person: person.clone(), verified_at_ms: now_ms, ends_at_ms, ends };
        let ends = verified.ends.clone();
        self.remember(key, verified, now_ms);
        // A newer token may have been refused while this one was judged.
        if person.is_some_and(|(subject, issued_at)| self.is_refuted(&subject, issued_at)) {
            ends.cancel();
            return Ok(Judged::Refused);
        }
        Ok(Judged::of(found, ends))
    }

    async fn user_of(
        &self,
        face: &Face,
        subject: JwtSubject,
        address: Option<String>,
    ) -> Result<Option<Principal>, ErrorResponse> {
        let JwtSubject { subject, groups, username, issued_at, .. } = subject;
        let issuer = self.issuer.name().to_owned();
        let issued_at = issued_at.unwrap_or_default();
        // A token without groups says nothing about them, and neither does one that is older than what is known.
        let groups = groups.filter(|groups| self.is_newest(&subject, issued_at, groups));
        if groups.is_none() && self.is_kept_out(&subject) {
            return Ok(None);
        }
        let groups = groups.or_else(|| face.gateway.known_groups(&issuer, &subject)).unwrap_or_default();
        let person = Person { issuer, subject, username, groups, refresh_token: None };
        match face.gateway.take_over_person(person, &self.people, &By::anonymous(address)).await {
            Ok(user) => Ok(Some(user)),
            Err(error) if error.kind == ErrorKind::Forbidden => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes the groups of a token, unless those of a later one are known: groups that somebody has left must not come back
    /// with an old token. If none of them may use the gateway, what runs under older tokens of the person ends.
    fn is_newest(&self, subject: &str, issued_at: u64, groups: &[String]) -> bool {
        let found = NewestGroups { issued_at, are_admitted: self.people.admit(groups) };
        {
            let mut newest = self.newest();
            if newest.len() >= MOST_VERIFIED && !newest.contains_key(subject) {
                newest.clear();
            }
            match newest.get(subject) {
                Some(known) if known.issued_at > issued_at => return false,
                Some(known) if *known == found => return true,
                Some(_) | None => newest.insert(subject.to_owned(), found),
            };
        }
        if !found.are_admitted {
            self.end(|_, token| {
                let person = token.person.as_ref();
                person.is_some_and(|(of, at)| of == subject && *at <= issued_at)
            });
        }
        true
    }

    /// Whether the newest groups of a person are none that may use the gateway.
    fn is_kept_out(&self, subject: &str) -> bool {
        self.newest().get(subject).is_some_and(|known| !known.are_admitted)
    }

    /// Whether a token of the same time or later shows that its person may not use the gateway.
    fn is_refuted(&self, subject: &str, issued_at: u64) -> bool {
        let newest = self.newest();
        newest.get(subject).is_some_and(|known| !known.are_admitted && known.issued_at >= issued_at)
    }

    /// Forgets tokens, and ends what runs under them.
    fn end(&self, is_over: impl Fn(&VerifiedKey, &Verified) -> bool) {
        let mut ended = Vec::new();
        self.verified.lock().expect("no code panics while it holds the tokens").retain(|key, token| {
            let is_over = is_over(key, token);
            if is_over {
                ended.push(token.ends.clone());
            }
            !is_over
        });
        ended.iter().for_each(CancellationToken::cancel);
    }

    fn newest(&self) -> MutexGuard<'_, HashMap<String, NewestGroups>> {
        self.newest.lock().expect("no code panics while it holds the groups")
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
        verified.get(key).filter(|known| now_ms < known.ends_at_ms && !known.ends.is_cancelled()).cloned()
    }

    fn remember(&self, key: VerifiedKey, token: Verified, now_ms: i64) {
        let mut verified = self.verified.lock().expect("no code panics while it holds the tokens");
        if verified.len() >= MOST_VERIFIED {
            verified.retain(|_, known| now_ms < known.ends_at_ms && !known.ends.is_cancelled());
            if verified.len() >= MOST_VERIFIED {
                verified.clear();
            }
        }
        verified.insert(key, token);
    }
}

impl Verified {
    fn judged(&self, face: &Face) -> Judged {
        match face.gateway.enabled_principal(self.principal) {
            Some(principal) => Judged::of(principal, self.ends.clone()),
            None => Judged::Refused,
        }
    }
}

impl Judged {
    /// The audience was checked for the path of the request, and users may use agents' endpoints with such a token only.
    fn of(principal: Principal, ends: CancellationToken) -> Self {
        let reach = Some(Arc::new(Reach::Everything));
        Self::Identity(Box::new(Identity { principal, ends, reach, grant: None }))
    }
}
