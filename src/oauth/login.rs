//! The pages for signing in and out. Without an identity provider people sign in with their access token; see `provider_login`
//! for the other way.

use std::net::IpAddr;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use url::Url;

use super::AuthorizationServer;
use super::authorize::{self, failure_page};
use super::cookies::Cookie;
use super::html::Page;
use super::page::{self, AskingAgent, SignInWay};
use super::provider_login;
use super::server::SigningIn;
use super::visitor::Visitor;
use crate::http::Face;
use crate::http::access::{Peer, Source};
use crate::http::error::GUESS_PAUSE;
use crate::http::extract::Query;
use gateway::identification::Identity;
use gateway::principals::Principal;
use model::oauth::Parameters;
use model::{By, PrincipalId};

pub const PATH: &str = "/login";
pub const LOGOUT: &str = "/logout";

/// The longest address to go to after signing in.
const LONGEST_NEXT: usize = 16 * 1024;

/// Shows the page for signing in.
#[utoipa::path(get, path = PATH, tag = "sign-in", params(("next" = Option<String>, Query)),
    responses((status = 200, content_type = "text/html", body = String), (status = 303)))]
pub async fn ask(SigningIn(server): SigningIn, visitor: Visitor, query: Query) -> Response {
    let next = query.text("next").filter(|next| is_safe(next));
    match (&visitor.session, next) {
        (Some(_), Some(next)) => Redirect::to(next).into_response(),
        (Some(session), None) => page::signed_in(session.user.name().as_str()).into_response(),
        // It shows the page for signing in, too, and names the agent there.
        (None, Some(next)) if next.starts_with(authorize::PATH) && server.issues_tokens() => {
            Redirect::to(next).into_response()
        }
        (None, next) => page::sign_in(&server.way(), None, next, None).into_response(),
    }
}

/// Signs a person in with their access token, or sends them to the identity provider.
#[utoipa::path(post, path = PATH, tag = "sign-in",
    request_body(content = HashMap<String, String>, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303)))]
pub async fn sign_in(
    State(face): State<Face>,
    SigningIn(server): SigningIn,
    Source(source): Source,
    Extension(peer): Extension<Peer>,
    visitor: Visitor,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if visitor.comes_from_elsewhere() {
        return foreign_page();
    }
    let Ok(form) = Parameters::parse(&body) else {
        return page::problem(StatusCode::BAD_REQUEST, "The form is too large.", None).into_response();
    };
    let next = form.get("next").filter(|next| is_safe(next));
    if let Some(provider) = &server.provider {
        return provider_login::begin(&server, provider, next).await;
    }
    let refused = match form.get("token") {
        None => Err((StatusCode::BAD_REQUEST, "Enter your access token.")),
        Some(token) => identify(&face, &headers, peer, token.trim()).await,
    };
    match refused {
        Ok(user) => {
            let before = server.cookie(Cookie::Session, &headers);
            begin_session(&face, &server, user, before, next, &visitor.by).await
        }
        Err((status, problem)) => {
            let mut page = sign_in_again(&face, &server, source, next, problem).await;
            page.status = status;
            let mut response = page.into_response();
            if status == StatusCode::TOO_MANY_REQUESTS {
                response.headers_mut().insert(header::RETRY_AFTER, GUESS_PAUSE);
            }
            response
        }
    }
}

/// Finds the user with a token. The error is a status and a sentence for the page.
async fn identify(
    face: &Face,
    headers: &HeaderMap,
    peer: Peer,
    token: &str,
) -> Result<(PrincipalId, String), (StatusCode, &'static str)> {
    match face.identify_user(token.as_bytes(), headers, peer).await {
        // An agent must not become the person for whom it acts.
        Ok(Identity { reach: Some(_), .. }) => {
            Err((StatusCode::UNAUTHORIZED, "This is the token of an agent."))
        }
        Ok(Identity { principal: Principal::User(user), .. }) => {
            Ok((user.holder.id, user.holder.username.to_string()))
        }
        Ok(Identity { principal: Principal::Client(_), .. }) => {
            Err((StatusCode::UNAUTHORIZED, "This is the token of an MCP client. Enter that of a user."))
        }
        Err(error) => Err(match error.status() {
            StatusCode::TOO_MANY_REQUESTS => {
                (StatusCode::TOO_MANY_REQUESTS, "There were too many wrong tokens. Wait a moment.")
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                (StatusCode::SERVICE_UNAVAILABLE, "The database cannot be reached. Try again later.")
            }
            _ => (StatusCode::UNAUTHORIZED, "This token is not valid."),
        }),
    }
}

/// The page for signing in, with the reason why it did not work.
async fn sign_in_again(
    face: &Face,
    server: &AuthorizationServer,
    source: IpAddr,
    next: Option<&str>,
    problem: &str,
) -> Page {
    let query = next.and_then(|next| next.strip_prefix(authorize::PATH)?.strip_prefix('?'));
    let found = match query {
        Some(query) => server.asking_agent(face, query, source).await,
        None => None,
    };
    let agent = found.as_ref().map(|(software, redirect_uri)| AskingAgent { software, redirect_uri });
    page::sign_in(&server.way(), agent.as_ref(), next, Some(problem))
}

/// Opens a new session in place of an earlier one, and goes where the person wanted to go.
pub async fn begin_session(
    face: &Face,
    server: &AuthorizationServer,
    (user, username): (PrincipalId, String),
    before: Option<&str>,
    next: Option<&str>,
    by: &By,
) -> Response {
    let by = By::user(username, by.address.clone());
    if let Some(before) = before
        && let Err(error) = face.gateway.close_session(before, &by).await
    {
        return failure_page(&error);
    }
    match face.gateway.open_session(user, &by).await {
        Ok(cookie) => {
            let mut response = Redirect::to(next.unwrap_or(PATH)).into_response();
            let cookie = server.set_cookie(Cookie::Session, cookie.expose());
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        Err(error) => failure_page(&error),
    }
}

/// Signs a person out.
#[utoipa::path(post, path = LOGOUT, tag = "sign-in",
    request_body(content = HashMap<String, String>, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303)))]
pub async fn sign_out(
    State(face): State<Face>,
    SigningIn(server): SigningIn,
    visitor: Visitor,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if visitor.comes_from_elsewhere() {
        return foreign_page();
    }
    let form = Parameters::parse(&body).ok();
    let next = form.as_ref().and_then(|form| form.get("next")).filter(|next| is_safe(next));
    if let Some(cookie) = server.cookie(Cookie::Session, &headers)
        && let Err(error) = face.gateway.close_session(cookie, &visitor.by).await
    {
        return failure_page(&error);
    }
    let mut response = Redirect::to(next.unwrap_or(PATH)).into_response();
    response.headers_mut().append(header::SET_COOKIE, server.remove_cookie(Cookie::Session));
    response
}

fn foreign_page() -> Response {
    let sentence = "This request comes from a page of another address, so it was refused.";
    page::problem(StatusCode::FORBIDDEN, sentence, None).into_response()
}

impl AuthorizationServer {
    /// How people sign in here.
    pub fn way(&self) -> SignInWay {
        match &self.provider {
            None => SignInWay::Token,
            Some(provider) => {
                let host =
                    Url::parse(provider.issuer()).ok().and_then(|url| url.host_str().map(str::to_owned));
                SignInWay::Provider(host.unwrap_or_default())
            }
        }
    }
}

/// Whether people may be sent to an address after they signed in: a page of this gateway that needs it.
pub fn is_safe(next: &str) -> bool {
    let begins_well = ["/console", "/authorize?", "/connect/"].iter().any(|start| next.starts_with(start));
    begins_well
        && next.len() <= LONGEST_NEXT
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_gateway_follow_a_sign_in() {
        for good in ["/console", "/console#/tools", "/authorize?client_id=a", "/connect/github?t=1"] {
            assert!(is_safe(good), "{good}");
        }
        for bad in [
            "",
            "/",
            "//evil.example",
            "https://evil.example/console",
            "/\\evil.example",
            "/authorize",
            "/login",
            "/console\r\nSet-Cookie: x",
            "/console\u{e4}",
            "/console\\..\\x",
            " /console",
            "/connect",
        ] {
            assert!(!is_safe(bad), "{bad}");
        }
        assert!(!is_safe(&format!("/console{}", "x".repeat(LONGEST_NEXT))));
    }
}
