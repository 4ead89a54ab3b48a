//! Requests to the token endpoint of the identity provider. Codes and tokens never become a part of an error.

use super::idp_metadata::IdpMetadata;
use super::problem::{IdpProblem, excerpt};
use super::signed_jwt::Members;
use super::web::{Proof, Web};
use model::Secret;

/// The longest token that is kept.
const LONGEST_TOKEN: usize = 16 * 1024;

/// The gateway's registration at the identity provider.
pub struct RelyingParty<'a> {
    pub client_id: &'a str,
    pub client_secret: Option<&'a Secret>,
}

pub struct TokenAnswer {
    pub access_token: Option<Secret>,
    pub id_token: Option<Secret>,
    pub refresh_token: Option<Secret>,
}

/// Why there is no answer.
pub enum TokenFailure {
    /// The code or refresh token does not count, or no longer.
    InvalidGrant(String),
    /// It refuses the gateway or this kind of request.
    Refused(String),
    Down(String),
}

impl From<TokenFailure> for IdpProblem {
    fn from(failure: TokenFailure) -> Self {
        match failure {
            TokenFailure::InvalidGrant(text) | TokenFailure::Refused(text) => IdpProblem::Refused(text),
            TokenFailure::Down(text) => IdpProblem::Down(text),
        }
    }
}

impl RelyingParty<'_> {
    /// Sends a grant. `secrets` are the values in the form that must not be repeated in an error.
    pub async fn send(
        &self,
        web: &Web,
        metadata: &IdpMetadata,
        grant: &[(&str, &str)],
        secrets: &[&str],
    ) -> Result<TokenAnswer, TokenFailure> {
        let endpoint = metadata.token_endpoint.as_ref();
        let endpoint = endpoint
            .ok_or_else(|| TokenFailure::Down("the identity provider has no token endpoint".into()))?;
        let mut form = grant.to_vec();
        let proof = self.prove(metadata, &mut form)?;
        let response = web.post(endpoint, &form, &proof).await;
        let response = response.map_err(|reason| {
            TokenFailure::Down(format!("the identity provider cannot be used: {endpoint}: {reason}"))
        })?;
        let answer = response.object();
        match (response.status, answer) {
            (200, Ok(answer)) => Ok(TokenAnswer::of(&answer)),
            (400..=499, Ok(answer)) if answer.text("error").is_some() => Err(self.failure(&answer, secrets)),
            (200, Err(reason)) => {
                Err(TokenFailure::Down(format!("the identity provider does not work: {endpoint}: {reason}")))
            }
            (status, _) => Err(TokenFailure::Down(format!(
                "the identity provider does not work: {endpoint} answered with HTTP status {status}"
            ))),
        }
    }

    /// Adds who we are to the form, or returns it for the header, whichever the identity provider supports.
    fn prove<'f>(
        &'f self,
        metadata: &IdpMetadata,
        form: &mut Vec<(&'f str, &'f str)>,
    ) -> Result<Proof, TokenFailure> {
        let Some(secret) = self.client_secret else {
            form.push(("client_id", self.client_id));
            return Ok(Proof::Nothing);
        };
        // OpenID Connect: without the list it is client_secret_basic.
        let supports = |method: &str| match &metadata.client_proofs {
            Some(list) => list.iter().any(|listed| listed == method),
            None => method == "client_secret_basic",
        };
        if supports("client_secret_basic") {
            return Ok(Proof::Basic(self.client_id.to_owned(), secret.clone()));
        }
        if supports("client_secret_post") {
            form.extend([("client_id", self.client_id), ("client_secret", secret.expose())]);
            return Ok(Proof::Nothing);
        }
        Err(TokenFailure::Refused(
            "the identity provider accepts no client secrets at its token endpoint; allow client_secret_basic there".into(),
        ))
    }

    fn failure(&self, answer: &Members, secrets: &[&str]) -> TokenFailure {
        let error = excerpt(answer.text("error").unwrap_or_default(), 60);
        let mut said = answer.text("error_description").unwrap_or_default().to_owned();
        let own = self.client_secret.map(Secret::expose);
        for secret in secrets.iter().copied().chain(own).filter(|secret| !secret.is_empty()) {
            said = said.replace(secret, "***");
        }
        let said = match said.is_empty() {
            true => String::new(),
            false => format!(": {}", excerpt(&said, 300)),
        };
        match error.as_str() {
            "invalid_grant" => TokenFailure::InvalidGrant(format!(
                "the identity provider refuses this sign-in ({error}{said})"
            )),
            "invalid_client" | "unauthorized_client" => TokenFailure::Refused(format!(
                "the identity provider refuses the gateway ({error}{said}); check OIDC_CLIENT_ID and \
                 OIDC_CLIENT_SECRET"
            )),
            "temporarily_unavailable" | "server_error" | "slow_down" => {
                TokenFailure::Down(format!("the identity provider does not work ({error}{said})"))
            }
            _ => TokenFailure::Refused(format!("the identity provider refuses the request ({error}{said})")),
        }
    }
}

impl TokenAnswer {
    fn of(answer: &Members) -> Self {
        let token = |name: &str| {
            let token = answer.text(name).filter(|token| !token.is_empty() && token.len() <= LONGEST_TOKEN);
            token.map(Secret::new)
        };
        Self {
            access_token: token("access_token"),
            id_token: token("id_token"),
            refresh_token: token("refresh_token"),
        }
    }
}
