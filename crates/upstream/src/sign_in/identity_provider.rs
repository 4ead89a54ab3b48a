//! The operator's identity provider, to which the gateway sends people to sign in (OpenID Connect, code flow with PKCE). One
//! per gateway. It is asked for nothing before somebody signs in, and one that is down heals by itself.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;
use ring::digest::{SHA256, digest};

use super::check::CheckStep;
use super::claims::{self, ClaimProblem};
use super::idp_metadata::IdpMetadata;
use super::issuer::{Issuer, MetadataSource};
use super::person::{Person, PersonClaims};
use super::problem::{IdpProblem, excerpt};
use super::signed_jwt::{Members, SignedJwt};
use super::token_endpoint::{RelyingParty, TokenAnswer, TokenFailure};
use super::web::Proof;
use crate::Tls;
use model::{Secret, WallClock};

const OFFLINE_ACCESS: &str = "offline_access";
const DEFAULT_SCOPES: [&str; 3] = ["openid", "profile", "email"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdpSettings {
    /// Exactly as its metadata and tokens name it.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Option<Secret>,
    /// What the operator wants to ask for; `None` for the default.
    pub scopes: Option<Vec<String>>,
    pub claims: PersonClaims,
    /// Our `/login/callback`.
    pub redirect_uri: String,
}

pub struct IdentityProvider {
    settings: IdpSettings,
    issuer: Issuer,
    clock: WallClock,
}

pub struct BegunSignIn {
    /// Where to send the browser.
    pub url: String,
    pub attempt: SignInAttempt,
}

/// What must be kept, bound to the browser, until the person comes back.
pub struct SignInAttempt {
    pub state: String,
    pub nonce: String,
    pub verifier: Secret,
}

/// What the browser brings back.
#[derive(Default)]
pub struct CallbackQuery {
    pub code: Option<Secret>,
    pub state: Option<String>,
    pub iss: Option<String>,
    pub error: Option<String>,
    pub error_description: Option<String>,
}

/// Why a person was not checked again.
#[derive(Debug)]
pub enum Recheck {
    /// The refresh token no longer counts: the person may not go on. Nothing else means that.
    Refused(String),
    /// Another attempt may work, with this refresh token if there is one: it replaces the one before.
    NotNow { reason: String, refresh_token: Option<Secret> },
}

impl IdentityProvider {
    pub fn new(settings: IdpSettings, tls: Tls, clock: WallClock) -> Self {
        let issuer = Issuer::new(&settings.issuer, MetadataSource::OpenId, tls, &clock);
        Self { settings, issuer, clock }
    }

    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    pub async fn begin(&self) -> Result<BegunSignIn, IdpProblem> {
        let metadata = self.issuer.metadata().await?;
        let missing = || IdpProblem::Down("the identity provider has no authorization endpoint".into());
        let mut url = metadata.authorization_endpoint.clone().ok_or_else(missing)?;
        let attempt = SignInAttempt { state: random(), nonce: random(), verifier: Secret::new(random()) };
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, attempt.verifier.expose().as_bytes()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &self.settings.redirect_uri)
            .append_pair("scope", &self.scopes(&metadata))
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(BegunSignIn { url: url.into(), attempt })
    }

    /// Finds out who came back.
    pub async fn finish(&self, attempt: &SignInAttempt, query: CallbackQuery) -> Result<Person, IdpProblem> {
        let lies = |text: &str| IdpProblem::Lies(text.to_owned());
        if !query.state.is_some_and(|state| is_same(&state, &attempt.state)) {
            return Err(lies("this answer belongs to another attempt to sign in; try again"));
        }
        let metadata = self.issuer.metadata().await?;
        match query.iss {
            Some(issuer) if issuer != self.settings.issuer => {
                return Err(lies("this answer is from another identity provider; try again"));
            }
            None if metadata.names_itself => {
                return Err(lies("this answer does not say which identity provider it is from; try again"));
            }
            Some(_) | None => {}
        }
        if let Some(error) = query.error {
            return Err(refusal(&error, query.error_description.as_deref()));
        }
        let code = query.code.filter(|code| !code.expose().is_empty());
        let code = code.ok_or_else(|| lies("this answer has no code; try again"))?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", self.settings.redirect_uri.as_str()),
            ("code_verifier", attempt.verifier.expose()),
        ];
        let secrets = [code.expose(), attempt.verifier.expose()];
        let answer = self.party().send(&self.issuer.web, &metadata, &form, &secrets).await?;
        let id_token = answer.id_token.as_ref();
        let id_token = id_token.ok_or_else(|| {
            IdpProblem::Refused("the identity provider sent no ID token; OIDC_SCOPES must have openid".into())
        })?;
        let claims = self.verify(id_token).await?;
        if !claims.text("nonce").is_some_and(|nonce| is_same(nonce, &attempt.nonce)) {
            return Err(lies("the ID token belongs to another attempt to sign in; try again"));
        }
        self.person(&metadata, Some(claims), &answer).await
    }

    /// Asks with the refresh token of a person whether they may go on, and which groups they are in now.
    pub async fn check_again(&self, refresh: &Secret, subject: &str) -> Result<Person, Recheck> {
        let not_now = |problem: IdpProblem| not_now(&problem, None);
        let metadata = self.issuer.metadata().await.map_err(not_now)?;
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
        let answer = self.party().send(&self.issuer.web, &metadata, &form, &[refresh.expose()]).await;
        let answer = answer.map_err(|failure| match failure {
            TokenFailure::InvalidGrant(text) => Recheck::Refused(text),
            failure @ (TokenFailure::Refused(_) | TokenFailure::Down(_)) => not_now(failure.into()),
        })?;
        // From here on, the refresh token may be another one, which must not be lost.
        let checked = async {
            let claims = match &answer.id_token {
                Some(id_token) => Some(self.verify(id_token).await?),
                None => None,
            };
            let person = self.person(&metadata, claims, &answer).await?;
            match person.subject == subject {
                true => Ok(person),
                false => Err(IdpProblem::Lies("the refresh token belongs to another person".into())),
            }
        };
        let checked: Result<Person, IdpProblem> = checked.await;
        checked.map_err(|problem| self::not_now(&problem, answer.refresh_token.clone()))
    }

    /// Tries what signing in needs, whatever is cached: the steps `discovery`, `keys` and `clock`.
    pub async fn check(&self) -> Vec<CheckStep> {
        self.issuer.check(self.clock.now_seconds()).await
    }

    fn scopes(&self, metadata: &IdpMetadata) -> String {
        if let Some(scopes) = &self.settings.scopes {
            return scopes.join(" ");
        }
        let offered = metadata.scopes.iter().any(|scope| scope == OFFLINE_ACCESS);
        let offline = offered.then_some(OFFLINE_ACCESS);
        DEFAULT_SCOPES.into_iter().chain(offline).collect::<Vec<_>>().join(" ")
    }

    fn party(&self) -> RelyingParty<'_> {
        RelyingParty {
            client_id: &self.settings.client_id,
            client_secret: self.settings.client_secret.as_ref(),
        }
    }

    /// Verifies an ID token, except for its nonce.
    async fn verify(&self, id_token: &Secret) -> Result<Members, IdpProblem> {
        let lies = |text: &str| IdpProblem::Lies(format!("the ID token of the identity provider {text}"));
        let token = SignedJwt::parse(id_token.expose().as_bytes()).map_err(|reason| lies(&reason))?;
        if token.media_type.as_deref().is_some_and(|name| name != "jwt") {
            return Err(lies("is a token of another kind"));
        }
        if !self.issuer.signed(&token).await? {
            return Err(lies("is not signed with one of its keys"));
        }
        let claims = token.claims;
        let checked = claims::check_issuer(&claims, &self.settings.issuer)
            .and_then(|()| claims::check_client(&claims, &self.settings.client_id))
            .and_then(|()| claims::check_times(&claims, self.clock.now_seconds()));
        match checked {
            Ok(_) => Ok(claims),
            Err(ClaimProblem::Expired) => Err(lies("has expired: is the clock of this machine right?")),
            Err(ClaimProblem::Wrong(reason)) => Err(lies(&reason)),
        }
    }

    /// The person of an ID token and, where it does not have the groups, of the userinfo endpoint.
    async fn person(
        &self,
        metadata: &IdpMetadata,
        id_token: Option<Members>,
        answer: &TokenAnswer,
    ) -> Result<Person, IdpProblem> {
        let wanted = &self.settings.claims;
        let unusable = |problem: ClaimProblem| match problem {
            ClaimProblem::Expired => {
                IdpProblem::Lies("the answer of the identity provider has expired".into())
            }
            ClaimProblem::Wrong(reason) => {
                IdpProblem::Lies(format!("the answer of the identity provider {reason}"))
            }
        };
        let mut groups = match &id_token {
            Some(claims) => wanted.groups(claims).map_err(IdpProblem::Refused)?,
            None => None,
        };
        let userinfo = match (&groups, &metadata.userinfo_endpoint, &answer.access_token) {
            (None, Some(_), Some(token)) => Some(self.userinfo(metadata, token).await?),
            (Some(_), _, _) | (None, None, _) | (None, _, None) => None,
        };
        let subjects = [&id_token, &userinfo].into_iter().flatten().map(claims::subject);
        let mut subjects = subjects.collect::<Result<Vec<_>, _>>().map_err(unusable)?;
        subjects.dedup();
        let [subject] = subjects.as_slice() else {
            return Err(match subjects.is_empty() {
                true => IdpProblem::Down("the identity provider does not say who the person is".into()),
                false => {
                    IdpProblem::Lies("the userinfo of the identity provider is about somebody else".into())
                }
            });
        };
        if let Some(userinfo) = &userinfo {
            groups = wanted.groups(userinfo).map_err(IdpProblem::Refused)?;
        }
        // In an ID token, no claim means no groups. Without one they are unknown, and nobody must lose rights for that.
        if id_token.is_none() && groups.is_none() {
            let text = "the identity provider does not say which groups the person is in now";
            return Err(IdpProblem::Down(text.into()));
        }
        let sources: Vec<&Members> = [&id_token, &userinfo].into_iter().flatten().collect();
        Ok(Person {
            issuer: self.settings.issuer.clone(),
            subject: subject.clone(),
            username: wanted.username(&sources).map_err(IdpProblem::Refused)?,
            groups: groups.unwrap_or_default(),
            refresh_token: answer.refresh_token.clone(),
        })
    }

    async fn userinfo(&self, metadata: &IdpMetadata, token: &Secret) -> Result<Members, IdpProblem> {
        let down = |reason: &str| {
            IdpProblem::Down(format!(
                "the userinfo endpoint of the identity provider cannot be used: {reason}"
            ))
        };
        let endpoint = metadata.userinfo_endpoint.as_ref().ok_or_else(|| down("there is none"))?;
        let response = self.issuer.web.get(endpoint, &Proof::Bearer(token.clone())).await;
        let response = response.map_err(|reason| down(&reason))?;
        match response.status {
            200 => response.object().map_err(|reason| down(&reason)),
            status => Err(down(&format!("HTTP status {status}"))),
        }
    }
}

impl SignInAttempt {
    /// Everything as one text, which must be sealed.
    pub fn to_secret(&self) -> Secret {
        Secret::new(format!("{}.{}.{}", self.state, self.nonce, self.verifier.expose()))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let [state, nonce, verifier] = parts[..] else { return None };
        (!state.is_empty() && !nonce.is_empty() && !verifier.is_empty()).then(|| Self {
            state: state.to_owned(),
            nonce: nonce.to_owned(),
            verifier: Secret::new(verifier),
        })
    }
}

/// The problem of an error that the browser brought back. Its texts may be from anybody.
fn refusal(error: &str, description: Option<&str>) -> IdpProblem {
    let said = match description.map(|text| excerpt(text, 300)).filter(|text| !text.is_empty()) {
        Some(text) => format!("{}: {text}", excerpt(error, 60)),
        None => excerpt(error, 60),
    };
    match error {
        "server_error" | "temporarily_unavailable" => {
            IdpProblem::Down(format!("the identity provider does not work ({said}); try again later"))
        }
        _ => IdpProblem::Refused(format!("the identity provider did not let you in ({said})")),
    }
}

fn not_now(problem: &IdpProblem, refresh_token: Option<Secret>) -> Recheck {
    Recheck::NotNow { reason: problem.to_string(), refresh_token }
}

/// Compares hashes, so that the time does not tell how much of a guess was right.
fn is_same(one: &str, other: &str) -> bool {
    digest(&SHA256, one.as_bytes()).as_ref() == digest(&SHA256, other.as_bytes()).as_ref()
}

/// 43 random characters of base64url, which also suits a PKCE verifier.
fn random() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system always has random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}
