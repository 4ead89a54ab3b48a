//! `/authorize`: a person decides whether an agent may act for them. The GET shows pages, or answers at once where the person
//! has agreed before; the POST is their decision.

use std::net::IpAddr;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;

use super::AuthorizationServer;
use super::cookies::kept_address;
use super::error::problem_of;
use super::page::{self, AskingAgent, Consent};
use super::server::Issuing;
use super::visitor::Visitor;
use crate::http::Face;
use crate::http::access::{self, Source};
use crate::routes;
use gateway::Error;
use gateway::caller::{Scope, Viewer};
use gateway::reached::Reached;
use gateway::sign_in::{Approval, BrowserSession};
use model::oauth::problem::ProblemCode;
use model::oauth::{Asked, AuthorizeRequest, OAuthProblem, Parameters, RedirectUri, Software};
use model::{By, PrincipalId, Reach};

pub const PATH: &str = "/authorize";

/// The longest request of an agent. It is sent again in forms, where it may become three times as long.
const LONGEST_QUERY: usize = 8 * 1024;

/// Shows the page on which a person signs in, or decides whether an agent may act for them. Redirects to the agent with a code
/// if they have agreed before.
#[utoipa::path(get, path = PATH, tag = "sign-in",
    params(
        ("client_id" = String, Query), ("redirect_uri" = Option<String>, Query), ("response_type" = String, Query),
        ("code_challenge" = String, Query), ("code_challenge_method" = String, Query),
        ("state" = Option<String>, Query), ("resource" = Option<String>, Query), ("scope" = Option<String>, Query),
    ),
    responses((status = 200, content_type = "text/html", body = String), (status = 303)))]
pub async fn ask(
    State(face): State<Face>,
    Issuing(server): Issuing,
    Source(source): Source,
    visitor: Visitor,
    uri: Uri,
) -> Response {
    let query = uri.query().unwrap_or_default();
    let judged = match server.judge(&face, query, source).await {
        Ok(judged) => judged,
        Err(problem) => return problem_page(&problem, None),
    };
    let request = match &judged.request {
        Ok(request) => request,
        Err(problem) => return judged.refuse(&face, &server, &visitor, problem).await,
    };
    let Some(session) = &visitor.session else {
        let next = format!("{PATH}?{query}");
        if server.provider.is_some() && kept_address(&next).is_none() {
            let sentence = "the request is too long for the way over the identity provider";
            return judged.refuse(&face, &server, &visitor, &OAuthProblem::invalid_request(sentence)).await;
        }
        return page::sign_in(&server.way(), Some(&judged.agent()), Some(&next), None).into_response();
    };
    let (user, redirect_uri) = (session.user.id(), judged.redirect_uri.as_str());
    // Somebody else could listen at the port of a program on the person's machine.
    if judged.redirect_uri.is_https() && !request.asks_again {
        match face.gateway.is_approved(user, &judged.software.client_id, redirect_uri, &request.reach).await {
            Ok(true) => return judged.allow(&face, &server, user, request, &visitor.by).await,
            Ok(false) => {}
            Err(error) => return failure_page(&error),
        }
    }
    judged.ask(&face, &server, session, request, query)
}

/// Takes the decision of a person, and redirects to the agent.
#[utoipa::path(post, path = PATH, tag = "sign-in",
    request_body(content = HashMap<String, String>, content_type = "application/x-www-form-urlencoded"),
    responses((status = 303)))]
pub async fn decide(
    State(face): State<Face>,
    Issuing(server): Issuing,
    Source(source): Source,
    visitor: Visitor,
    body: Bytes,
) -> Response {
    let form = match Parameters::parse(&body).and_then(|form| form.require_single().map(|()| form)) {
        Ok(form) => form,
        Err(problem) => return problem_page(&problem, None),
    };
    let query = form.get("query").unwrap_or_default();
    let Some(session) = &visitor.session else {
        // The session ended while the page was open.
        return Redirect::to(&format!("{PATH}?{}", header_safe(query))).into_response();
    };
    if visitor.comes_from_elsewhere() {
        let sentence = "This decision does not come from the page that asked you. Nothing was allowed.";
        return page::problem(StatusCode::FORBIDDEN, sentence, None).into_response();
    }
    let sent = form.get("form_token").unwrap_or_default();
    if !access::is_same(sent.as_bytes(), session.form_token.as_bytes()) {
        return page::outdated(&format!("{PATH}?{query}")).into_response();
    }
    let judged = match server.judge(&face, query, source).await {
        Ok(judged) => judged,
        Err(problem) => return problem_page(&problem, None),
    };
    let request = match &judged.request {
        Ok(request) => request,
        Err(problem) => return judged.refuse(&face, &server, &visitor, problem).await,
    };
    match form.get("decision") {
        Some("allow") => judged.allow(&face, &server, session.user.id(), request, &visitor.by).await,
        Some("deny") => {
            let denied = OAuthProblem::new(ProblemCode::AccessDenied, "the person has denied it");
            Redirect::to(&judged.back(&server, &denied)).into_response()
        }
        Some(_) | None => {
            page::problem(StatusCode::BAD_REQUEST, "Choose one of the two buttons.", None).into_response()
        }
    }
}

/// A request of known software, whose answer may go to its redirect URI. The rest of it may be wrong.
struct Judged {
    asked: Asked,
    software: Software,
    redirect_uri: RedirectUri,
    request: Result<AuthorizeRequest, OAuthProblem>,
}

impl AuthorizationServer {
    async fn judge(&self, face: &Face, query: &str, source: IpAddr) -> Result<Judged, OAuthProblem> {
        if query.len() > LONGEST_QUERY {
            let sentence = format!("it has more than {LONGEST_QUERY} bytes");
            return Err(OAuthProblem::invalid_request(sentence));
        }
        let asked = Asked::read(query)?;
        let software = self.find_software(face, &asked.client_id, source).await?;
        let redirect_uri = asked.redirect_uri(&software, &self.settings.rules)?;
        let request = asked.request(&self.settings.url);
        Ok(Judged { asked, software, redirect_uri, request })
    }

    /// The software and redirect URI of a request that somebody signs in for, if it is a good one.
    pub async fn asking_agent(
        &self,
        face: &Face,
        query: &str,
        source: IpAddr,
    ) -> Option<(Software, RedirectUri)> {
        let judged = self.judge(face, query, source).await.ok()?;
        Some((judged.software, judged.redirect_uri))
    }
}

impl Judged {
    fn agent(&self) -> AskingAgent<'_> {
        AskingAgent { software: &self.software, redirect_uri: &self.redirect_uri }
    }

    fn ask(
        &self,
        face: &Face,
        server: &AuthorizationServer,
        session: &BrowserSession,
        request: &AuthorizeRequest,
        query: &str,
    ) -> Response {
        page::consent(&Consent {
            agent: self.agent(),
            username: session.user.name().as_str(),
            reach: &request.reach,
            endpoint: &format!("{}{}", server.issuer, request.reach.as_str()),
            reached: reached(face, session.user.id(), &request.reach),
            query,
            form_token: &session.form_token,
        })
        .into_response()
    }

    /// Gives the agent a code.
    async fn allow(
        &self,
        face: &Face,
        server: &AuthorizationServer,
        user: PrincipalId,
        request: &AuthorizeRequest,
        by: &By,
    ) -> Response {
        let approval = Approval {
            user,
            client_id: self.software.client_id.clone(),
            client_name: self.software.name.clone(),
            software: self.software.to_json(),
            redirect_uri: self.redirect_uri.as_str().to_owned(),
            reach: request.reach.clone(),
            code_challenge: request.code_challenge.clone(),
            remember: self.redirect_uri.is_https(),
        };
        match face.gateway.approve(approval, by).await {
            Ok(code) => {
                let mut answer = vec![("code", code.expose())];
                answer.extend(self.asked.state().map(|state| ("state", state)));
                answer.push(("iss", &server.issuer));
                Redirect::to(&self.redirect_uri.with(&answer)).into_response()
            }
            Err(error) => failure_page(&error),
        }
    }

    /// The redirect URI with an error.
    fn back(&self, server: &AuthorizationServer, problem: &OAuthProblem) -> String {
        let description = problem.description();
        let mut answer = vec![("error", problem.code.as_str()), ("error_description", &description)];
        answer.extend(self.asked.state().map(|state| ("state", state)));
        answer.push(("iss", &server.issuer));
        self.redirect_uri.with(&answer)
    }

    /// Sends an error to the agent, if the person has agreed to its redirect URI before. Otherwise anybody could use this
    /// gateway to redirect people to a page of theirs.
    async fn refuse(
        &self,
        face: &Face,
        server: &AuthorizationServer,
        visitor: &Visitor,
        problem: &OAuthProblem,
    ) -> Response {
        let back = self.back(server, problem);
        if let Some(session) = &visitor.session {
            let (client_id, redirect_uri) = (&self.software.client_id, self.redirect_uri.as_str());
            match face.gateway.has_agreed_before(session.user.id(), client_id, redirect_uri).await {
                Ok(true) => return Redirect::to(&back).into_response(),
                Ok(false) => {}
                Err(error) => return failure_page(&error),
            }
        }
        problem_page(problem, Some(&back))
    }
}

/// The number of servers and tools that a token would reach.
fn reached(face: &Face, user: PrincipalId, reach: &Reach) -> Reached {
    let scope = match reach {
        Reach::Everything => Some(Scope::Everything),
        Reach::Endpoint(path) => routes::find_endpoint(path).map(|(endpoint, _)| endpoint.scope),
    };
    scope.map(|scope| face.gateway.reached(&Viewer { scope, principal: Some(user) })).unwrap_or_default()
}

fn problem_page(problem: &OAuthProblem, back: Option<&str>) -> Response {
    let sentence = problem.sentence();
    let (status, sentence) = match problem.code {
        ProblemCode::TemporarilyUnavailable => (StatusCode::SERVICE_UNAVAILABLE, sentence.to_owned()),
        ProblemCode::ServerError => (StatusCode::INTERNAL_SERVER_ERROR, sentence.to_owned()),
        ProblemCode::InvalidClient => (StatusCode::BAD_REQUEST, sentence.to_owned()),
        _ => (
            StatusCode::BAD_REQUEST,
            format!("The program that sent you here made a wrong request: {sentence}."),
        ),
    };
    page::problem(status, &sentence, back).into_response()
}

/// The page for an error of the gateway.
pub fn failure_page(error: &Error) -> Response {
    problem_page(&problem_of(error), None)
}

/// The text without what cannot be part of a header.
fn header_safe(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).collect()
}
