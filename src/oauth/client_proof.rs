//! Authentication of software at `/token` and `/revoke`: with a secret in a header or in the form, with a signed assertion, or
//! not at all.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent::decode_form;

use super::{AuthorizationServer, token};
use crate::http::source_limit::source_of;
use model::Secret;
use model::oauth::problem::ProblemCode;
use model::oauth::{ClientKeys, OAuthProblem, Parameters, Proof, Software};
use upstream::sign_in::{AssertionProblem, ProvenClient};

/// The value of `client_assertion_type` (RFC 7523).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// What a request says about its sender.
pub struct ClientClaim {
    pub client_id: String,
    secret: Option<Secret>,
    assertion: Option<Secret>,
}

impl ClientClaim {
    /// Reads the claim of a request. There may be one way of authentication in it (RFC 6749, section 2.3).
    pub fn read(headers: &HeaderMap, form: &Parameters) -> Result<Self, OAuthProblem> {
        let basic = basic_credentials(headers)?;
        let in_form = form.get("client_secret").map(Secret::new);
        let assertion = form.get("client_assertion").map(Secret::new);
        let ways = [basic.is_some(), in_form.is_some(), assertion.is_some()];
        if ways.iter().filter(|is_used| **is_used).count() > 1 {
            return Err(OAuthProblem::invalid_request("the client uses several ways of authentication"));
        }
        if assertion.is_some() && form.get("client_assertion_type") != Some(ASSERTION_TYPE) {
            return Err(OAuthProblem::invalid_request(format!(
                "client_assertion_type must be {ASSERTION_TYPE}"
            )));
        }
        let named = form.get("client_id");
        let (client_id, secret) = match basic {
            Some((client_id, _)) if named.is_some_and(|named| named != client_id) => {
                return Err(OAuthProblem::invalid_request(
                    "the header and the form have different client ids",
                ));
            }
            Some((client_id, secret)) => (client_id, secret),
            None => {
                let subject = assertion.as_ref().and_then(|assertion| subject_of(assertion.expose()));
                let client_id = named.map(str::to_owned).or(subject);
                let missing = || OAuthProblem::invalid_client("the client_id is missing");
                (client_id.ok_or_else(missing)?, in_form)
            }
        };
        Ok(Self { client_id, secret, assertion })
    }
}

/// The client id and the secret of `Authorization: Basic`, both form-encoded. An empty secret is none: some public clients send
/// one.
fn basic_credentials(headers: &HeaderMap) -> Result<Option<(String, Option<Secret>)>, OAuthProblem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || OAuthProblem::invalid_client("the header Authorization is not a valid Basic header");
    let text = value.to_str().ok().filter(|_| values.next().is_none()).ok_or_else(wrong)?;
    let (scheme, encoded) = text.split_once(' ').ok_or_else(wrong)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(wrong());
    }
    let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or_else(wrong)?;
    let (client_id, secret) = decoded.split_once(':').ok_or_else(wrong)?;
    let (client_id, secret) = (decode_form(client_id), decode_form(secret));
    if client_id.is_empty() {
        return Err(wrong());
    }
    Ok(Some((client_id, Some(secret).filter(|secret| !secret.is_empty()).map(Secret::new))))
}

mod percent {
    //! Decoding of a single form-encoded value.

    pub fn decode_form(text: &str) -> String {
        // In a pair without a separator everything is the name.
        let text = text.replace('&', "%26").replace('=', "%3D");
        url::form_urlencoded::parse(text.as_bytes())
            .next()
            .map_or_else(String::new, |(name, _)| name.into_owned())
    }
}

/// The client that an assertion is about, before anything in it is proven.
fn subject_of(assertion: &str) -> Option<String> {
    let payload = assertion.split('.').nth(1)?;
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&payload).ok()?;
    claims.get("sub")?.as_str().map(str::to_owned)
}

impl AuthorizationServer {
    /// Checks that a request comes from the software that it claims to come from.
    pub async fn authenticate(
        &self,
        software: Option<&Software>,
        claim: &ClientClaim,
        source: IpAddr,
    ) -> Result<(), OAuthProblem> {
        // Nothing was granted to it, so there is nothing to protect.
        let Some(software) = software else { return Ok(()) };
        let wrong = |sentence: &str| Err(OAuthProblem::invalid_client(sentence));
        match (&software.proof, &claim.secret, &claim.assertion) {
            (Proof::None, None, None) => Ok(()),
            (Proof::None, _, _) => wrong("the client has no secret and no keys, but authenticates with one"),
            // Clients mix up the two ways to send a secret, and both prove the same.
            (Proof::ClientSecretBasic(hash) | Proof::ClientSecretPost(hash), Some(secret), None) => {
                match hash.is_of(secret.expose()) {
                    true => Ok(()),
                    false => wrong("the client_secret is wrong"),
                }
            }
            (Proof::ClientSecretBasic(_) | Proof::ClientSecretPost(_), _, _) => {
                wrong("the client must send its client_secret")
            }
            (Proof::PrivateKeyJwt(keys), None, Some(assertion)) => {
                self.verify_assertion(software, keys, assertion, source).await
            }
            (Proof::PrivateKeyJwt(_), _, _) => wrong("the client must send a client_assertion"),
        }
    }
}

impl AuthorizationServer {
    async fn verify_assertion(
        &self,
        software: &Software,
        keys: &ClientKeys,
        assertion: &Secret,
        source: IpAddr,
    ) -> Result<(), OAuthProblem> {
        let audiences = [self.issuer.clone(), format!("{}{}", self.issuer, token::PATH)];
        let client = ProvenClient { client_id: &software.client_id, audiences: &audiences };
        let assertion = assertion.expose().as_bytes();
        let verified = self.documents.verify_assertion(assertion, keys, &client, source_of(source)).await;
        verified.map_err(|problem| match problem {
            AssertionProblem::UnknownKey | AssertionProblem::Wrong(_) => {
                OAuthProblem::invalid_client(problem.to_string())
            }
            AssertionProblem::Unavailable(_) => {
                OAuthProblem::new(ProblemCode::TemporarilyUnavailable, problem.to_string())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(authorization: Option<&str>, form: &str) -> Result<(String, Option<String>), &'static str> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        let claim = ClientClaim::read(&headers, &Parameters::parse(form.as_bytes()).unwrap());
        let parts =
            claim.map(|claim| (claim.client_id, claim.secret.map(|secret| secret.expose().to_owned())));
        parts.map_err(|problem| problem.code.as_str())
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn a_request_authenticates_in_one_way() {
        let secret = |id: &str, secret: &str| Ok((id.to_owned(), Some(secret.to_owned())));
        assert_eq!(read(Some(&basic("a:b")), ""), secret("a", "b"));
        assert_eq!(read(Some(&basic("a%3Ab+c:x%26y:z")), ""), secret("a:b c", "x&y:z"));
        assert_eq!(read(Some(&basic("a:b==")), "client_id=a"), secret("a", "b=="));
        assert_eq!(read(Some(&basic("a:")), ""), Ok(("a".to_owned(), None)));
        assert_eq!(read(None, "client_id=a&client_secret=b"), secret("a", "b"));
        assert_eq!(read(None, "client_id=a"), Ok(("a".to_owned(), None)));
        for (header, form, code) in [
            (None, "", "invalid_client"),
            (Some(basic("a")), "", "invalid_client"),
            (Some(basic(":b")), "", "invalid_client"),
            (Some("Basic !".to_owned()), "client_id=a", "invalid_client"),
            (Some("Bearer x".to_owned()), "client_id=a", "invalid_client"),
            (Some(basic("a:b")), "client_id=c", "invalid_request"),
            (Some(basic("a:b")), "client_secret=b", "invalid_request"),
            (Some(basic("a:b")), "client_assertion=b", "invalid_request"),
            (None, "client_id=a&client_assertion=x", "invalid_request"),
            (None, "client_id=a&client_assertion=x&client_assertion_type=y", "invalid_request"),
        ] {
            assert_eq!(read(header.as_deref(), form), Err(code), "{header:?} {form}");
        }
    }
}
