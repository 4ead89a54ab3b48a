//! Signing in at the identity provider: the way there, and the way back. What belongs to one attempt is sealed in a cookie, so
//! that nobody can finish it in another browser.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::AuthorizationServer;
use super::authorize::failure_page;
use super::cookies::{Cookie, SIGN_IN_SECONDS, kept_address};
use super::login::{self, begin_session, is_safe};
use super::page;
use super::server::SigningIn;
use super::visitor::Visitor;
use crate::http::Face;
use crate::http::access::{SIGN_IN, Source};
use crate::http::error::{ErrorResponse, HandlerResult};
use crate::http::extract::Query;
use gateway::principals::Principal;
use gateway::{Error, ErrorKind, now_ms};
use model::{By, Secret};
use upstream::sign_in::{CallbackQuery, IdentityProvider, IdpProblem, Person, SignInAttempt};

pub const PATH: &str = "/login/callback";

/// What the browser keeps while the person is at the identity provider.
#[derive(Serialize, Deserialize)]
struct KeptAttempt {
    attempt: String,
    /// In seconds since 1970.
    ends_at: i64,
}

/// Sends the browser to the identity provider.
pub async fn begin(
    server: &AuthorizationServer,
    provider: &IdentityProvider,
    next: Option<&str>,
) -> Response {
    let begun = match provider.begin().await {
        Ok(begun) => begun,
        Err(problem) => return problem_page(&problem, next),
    };
    let kept = KeptAttempt {
        attempt: begun.attempt.to_secret().expose().to_owned(),
        ends_at: now_ms() / 1000 + SIGN_IN_SECONDS,
    };
    let kept = serde_json::to_vec(&kept).expect("it has string keys");
    let kept = URL_SAFE_NO_PAD.encode(server.sign_ins.seal(&kept));
    let kept_next = next.and_then(kept_address);
    if next.is_some() && kept_next.is_none() {
        let sentence = "The request of the program that sent you here is too long.";
        return page::problem(StatusCode::BAD_REQUEST, sentence, None).into_response();
    }
    let mut response = Redirect::to(&begun.url).into_response();
    let headers = response.headers_mut();
    headers.append(header::SET_COOKIE, server.set_cookie(Cookie::SignIn, &kept));
    headers.append(
        header::SET_COOKIE,
        match kept_next {
            Some(next) => server.set_cookie(Cookie::Next, &next),
            None => server.remove_cookie(Cookie::Next),
        },
    );
    response
}

/// Signs the person in who comes back from the identity provider.
#[utoipa::path(get, path = PATH, tag = "sign-in",
    params(
        ("state" = Option<String>, Query), ("code" = Option<String>, Query), ("iss" = Option<String>, Query),
        ("error" = Option<String>, Query), ("error_description" = Option<String>, Query),
    ),
    responses((status = 303)))]
pub async fn finish(
    State(face): State<Face>,
    SigningIn(server): SigningIn,
    Source(source): Source,
    visitor: Visitor,
    headers: HeaderMap,
    query: Query,
) -> HandlerResult<Response> {
    let Some(provider) = &server.provider else {
        return Err(ErrorResponse::not_here(
            "there is no identity provider; start the gateway with OIDC_ISSUER",
        ));
    };
    let kept = server.kept_attempt(&headers);
    let next = server.cookie(Cookie::Next, &headers).filter(|next| is_safe(next));
    let mut response = match kept {
        Some(attempt) => {
            let text = |key: &str| query.text(key).map(str::to_owned);
            let answer = CallbackQuery {
                code: text("code").map(Secret::new),
                state: text("state"),
                iss: text("iss"),
                error: text("error"),
                error_description: text("error_description"),
            };
            match provider.finish(&attempt, answer).await {
                Ok(person) => match server.admit(&face, person, &visitor.by).await {
                    Ok(user) => {
                        let before = server.cookie(Cookie::Session, &headers);
                        let user = (user.id(), user.name().to_string());
                        begin_session(&face, &server, user, before, next, &visitor.by).await
                    }
                    Err(error) if error.kind == ErrorKind::Forbidden => {
                        try_again(StatusCode::FORBIDDEN, &error.to_string(), next)
                    }
                    Err(error) => failure_page(&error),
                },
                Err(problem) => problem_page(&problem, next),
            }
        }
        None => {
            let sentence = "This sign-in took too long, or began in another browser.";
            try_again(StatusCode::BAD_REQUEST, sentence, next)
        }
    };
    if response.status().is_client_error() {
        face.note_refused(source, SIGN_IN, "");
    }
    // An attempt counts once.
    for cookie in [Cookie::SignIn, Cookie::Next] {
        response.headers_mut().append(header::SET_COOKIE, server.remove_cookie(cookie));
    }
    Ok(response)
}

impl AuthorizationServer {
    async fn admit(&self, face: &Face, person: Person, by: &By) -> Result<Principal, Error> {
        face.gateway.sign_in_person(person, &self.people, by).await
    }

    /// The attempt that this browser began.
    fn kept_attempt(&self, headers: &HeaderMap) -> Option<SignInAttempt> {
        let cookie = URL_SAFE_NO_PAD.decode(self.cookie(Cookie::SignIn, headers)?).ok()?;
        let kept: KeptAttempt = serde_json::from_slice(&self.sign_ins.open(&cookie).ok()?).ok()?;
        let attempt = SignInAttempt::parse(&kept.attempt)?;
        (kept.ends_at > now_ms() / 1000).then_some(attempt)
    }
}

/// The page for a failed attempt. The addresses and errors of the operator's network are only in the log.
fn problem_page(problem: &IdpProblem, next: Option<&str>) -> Response {
    match problem {
        IdpProblem::Down(reason) => {
            tracing::warn!(reason, "somebody cannot sign in");
            let sentence = "The identity provider cannot be used at the moment. Try again in a minute, and ask the admin \
                            of this gateway if that does not help.";
            try_again(StatusCode::SERVICE_UNAVAILABLE, sentence, next)
        }
        IdpProblem::Refused(reason) => try_again(StatusCode::FORBIDDEN, reason, next),
        IdpProblem::Lies(reason) => try_again(StatusCode::BAD_REQUEST, reason, next),
    }
}

/// The page from which another attempt begins, for the same agent.
fn try_again(status: StatusCode, sentence: &str, next: Option<&str>) -> Response {
    page::sign_in_failed(status, sentence, next.unwrap_or(login::PATH)).into_response()
}
