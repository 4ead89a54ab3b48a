//! Access control: the access levels of routes, and the check that runs before every handler. In enterprise mode the
//! caller is identified by a bearer token.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::error::ErrorResponse;
use super::origin_check::Sender;
use super::revocable::{UntilRevoked, until_revoked};
use super::source_limit::source_of;
use super::{Face, WebSettings, body};
use crate::oauth::cookies::Cookie;
use crate::oauth::external::Judged;
use budget::Bound;
use gateway::Catalog;
use gateway::caller::Owner;
use gateway::identification::{Identity, TokenMemory};
use gateway::principals::Principal;
use model::{AuditOutcome, By, FieldError, Mode, Role};
use telemetry::SignIn;

/// Who may use a route. Development mode has no access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLevel {
    /// Everybody, without a token.
    Open,
    /// Users of both roles.
    User,
    /// Users with the role `admin`.
    Admin,
    /// MCP clients.
    Client,
    /// Everybody in development mode; in enterprise mode the route does not exist.
    Development,
}

impl AccessLevel {
    pub fn as_str(self) -> &'static str {
        match self {
            AccessLevel::Open => "open",
            AccessLevel::User => "user",
            AccessLevel::Admin => "admin",
            AccessLevel::Client => "client",
            AccessLevel::Development => "development",
        }
    }
}

/// The epoch of a change, in the response to it.
const EPOCH: HeaderName = HeaderName::from_static("x-toolgate-epoch");
/// The epoch of the changes that a request must see.
pub const MIN_EPOCH: &str = "x-toolgate-min-epoch";

/// What is checked before a handler runs.
#[derive(Clone, Copy, Debug)]
pub struct Entrance {
    pub access: AccessLevel,
    /// Whether the handler has a use for a body. Otherwise the body is received, but not kept.
    pub takes_body: bool,
}

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// The user or client that sent the request; `None` in development mode and on open routes.
#[derive(Clone)]
pub struct CurrentPrincipal(pub Option<Principal>);

/// The sender of a request that another gateway forwarded, as identified there.
#[derive(Clone)]
pub struct ForwardedBy(pub Option<Identity>);

impl CurrentPrincipal {
    /// Returns the owner of the caller's links to stateful servers.
    pub fn owner(&self) -> Owner {
        self.0.as_ref().map_or(Owner::Anybody, |principal| Owner::Principal(principal.id()))
    }

    /// Returns the role of a user; `None` for clients and where there is no principal.
    pub fn role(&self) -> Option<Role> {
        match &self.0 {
            Some(principal) => principal.role(),
            None => None,
        }
    }

    /// The principal whose own things are all that the caller sees; `None` for admins and where there is no principal.
    pub fn limited_to(&self) -> Option<&Principal> {
        self.0.as_ref().filter(|principal| principal.role() != Some(Role::Admin))
    }
}

/// Who sends a request, for what it changes, and from which address.
pub struct ChangedBy(pub By);

impl FromRequestParts<Face> for ChangedBy {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>();
        let address =
            peer.map(|peer| source(&face.settings, forwarded_for(&parts.headers), peer.0).to_string());
        let principal = parts.extensions.get::<CurrentPrincipal>().and_then(|caller| caller.0.as_ref());
        Ok(Self(by(principal, address)))
    }
}

/// The address of the client that sent a request, for limits.
pub struct Source(pub IpAddr);

impl FromRequestParts<Face> for Source {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, face: &Face) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0);
        Ok(Self(source(&face.settings, forwarded_for(&parts.headers), peer)))
    }
}

fn by(principal: Option<&Principal>, address: Option<String>) -> By {
    match principal {
        Some(Principal::User(user)) => By::user(user.holder.username.as_str(), address),
        Some(Principal::Client(client)) => By::client(client.holder.name.as_str(), address),
        None => By::anonymous(address),
    }
}

/// What the audit calls the check of a token.
pub const SIGN_IN: &str = "user.sign_in";
const CLIENT_SIGN_IN: &str = "client.sign_in";

impl Face {
    /// The catalog that the caller of a management route sees: admins manage everything, others see what their rules
    /// allow.
    pub fn catalog_for(&self, caller: &CurrentPrincipal) -> Arc<Catalog> {
        match caller.limited_to() {
            None => self.gateway.catalog(),
            Some(principal) => self.gateway.catalog_seen_by(Some(principal.id())),
        }
    }

    /// Identifies the caller and checks that they may use routes of this level.
    pub async fn admit(
        &self,
        access: AccessLevel,
        request: &AccessRequest<'_>,
    ) -> Result<Option<Identity>, ErrorResponse> {
        match (self.gateway.mode, access) {
            (Mode::Development | Mode::Enterprise, AccessLevel::Open) => Ok(None),
            (Mode::Development | Mode::Enterprise, _) if self.gateway.has_stale_rights() => {
                Err(ErrorResponse::stale_rights())
            }
            (Mode::Development, _) => Ok(None),
            (Mode::Enterprise, AccessLevel::Development) => {
                Err(ErrorResponse::unknown_route(request.method, request.path))
            }
            (Mode::Enterprise, AccessLevel::User | AccessLevel::Admin | AccessLevel::Client) => {
                if !self.gateway.is_initialized() {
                    return Err(ErrorResponse::not_initialized());
                }
                self.identify(access, request).await.map(Some)
            }
        }
    }

    /// Checks the access level and reads the body. Returns the request with its body, and with the principal and what its
    /// credential proves as extensions.
    pub async fn receive(&self, entrance: Entrance, request: Request) -> Result<Request, ErrorResponse> {
        let Entrance { access, takes_body } = entrance;
        let (mut head, body) = request.into_parts();
        let peer = head.extensions.get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0);
        let forwarded = head.extensions.get::<ForwardedBy>().cloned();
        let asked = AccessRequest::of(&head, peer);
        let admit = async |asked: &AccessRequest<'_>| match &forwarded {
            Some(ForwardedBy(sender)) => Ok(sender.clone()),
            None => self.admit(access, asked).await,
        };
        if let Err(error) = admit(&asked).await {
            body::discard(body, 0).await;
            return Err(error);
        }
        let budgets = self.gateway.budgets();
        let body = match takes_body {
            true => body::read_body(body, budgets).await?,
            false => body::drop_body(body, budgets).await.map(|()| Bytes::new())?,
        };
        if access != AccessLevel::Open {
            self.reach_epoch(&head.headers).await?;
        }
        // The token may have been revoked while the body was being received.
        let caller = admit(&AccessRequest { is_repeated: true, ..asked }).await?;
        head.extensions.insert(CurrentPrincipal(caller.as_ref().map(|caller| caller.principal.clone())));
        if let Some(identity) = caller {
            head.extensions.insert(identity);
        }
        Ok(Request::from_parts(head, body.into()))
    }

    async fn identify(
        &self,
        access: AccessLevel,
        request: &AccessRequest<'_>,
    ) -> Result<Identity, ErrorResponse> {
        let Some(token) = request.token else {
            // Boxed, since agents do not need it.
            return Box::pin(self.identify_without_token(access, request)).await;
        };
        let known = self.gateway.identify(token, request.memory).filter(|identity| self.honours(identity));
        let found = match known {
            Some(identity) => Ok(identity),
            // Boxed, since it is rarely needed.
            None => Box::pin(self.identify_unknown(token, access, request)).await,
        };
        if !request.is_repeated {
            let outcome = if found.is_ok() { SignIn::Recognized } else { SignIn::Refused };
            self.gateway.metrics.token_checked(outcome);
        }
        self.check_access(access, found?, request)
    }

    /// Whether a credential counts here. An access token does only where agents get such tokens: with `OAUTH=off`, for example,
    /// the ones that exist do not count any more.
    fn honours(&self, identity: &Identity) -> bool {
        identity.grant.is_none() || self.sign_in.as_ref().is_some_and(|server| server.issues_tokens())
    }

    async fn identify_without_token(
        &self,
        access: AccessLevel,
        request: &AccessRequest<'_>,
    ) -> Result<Identity, ErrorResponse> {
        match self.identify_session(access, request).await? {
            Some(identity) => self.check_access(access, identity, request),
            None => {
                if access == AccessLevel::Admin {
                    self.note_refused_request(request, None);
                }
                Err(ErrorResponse::no_token())
            }
        }
    }

    fn check_access(
        &self,
        access: AccessLevel,
        identity: Identity,
        request: &AccessRequest<'_>,
    ) -> Result<Identity, ErrorResponse> {
        if let Principal::User(user) = &identity.principal {
            self.gateway.note_seen(user.holder.id);
        }
        let checked = check_level(access, &identity, request.path);
        if checked.is_err() && access == AccessLevel::Admin {
            self.note_refused_request(request, Some(&identity.principal));
        }
        checked.map(|()| identity)
    }

    /// Finds the user or client with a token that a person entered on a page. Wrong tokens are counted as those of headers.
    pub async fn identify_user(
        &self,
        token: &[u8],
        headers: &HeaderMap,
        Peer(peer): Peer,
    ) -> Result<Identity, ErrorResponse> {
        if self.gateway.has_stale_rights() {
            return Err(ErrorResponse::stale_rights());
        }
        let request = AccessRequest {
            method: "POST",
            path: "",
            route: "",
            token: Some(token),
            headers: None,
            forwarded_for: forwarded_for(headers),
            peer,
            memory: None,
            is_repeated: false,
        };
        match self.gateway.identify(token, None) {
            Some(identity) => Ok(identity),
            None => self.identify_unknown(token, AccessLevel::User, &request).await,
        }
    }

    /// Finds the user of a browser session. Pages of other origins can send the cookie, too, so changes need a proof that a
    /// page of this gateway sent them.
    async fn identify_session(
        &self,
        access: AccessLevel,
        request: &AccessRequest<'_>,
    ) -> Result<Option<Identity>, ErrorResponse> {
        let (Some(server), Some(headers)) = (&self.sign_in, request.headers) else { return Ok(None) };
        if access == AccessLevel::Client || headers.contains_key(header::AUTHORIZATION) {
            return Ok(None);
        }
        let Some(cookie) = server.cookie(Cookie::Session, headers) else { return Ok(None) };
        let Some(session) = self.gateway.session(cookie).await? else { return Ok(None) };
        let is_read = matches!(request.method, "GET" | "HEAD" | "OPTIONS");
        if !is_read && Sender::of(headers, &server.settings.url) != Sender::OwnPage {
            return Err(ErrorResponse::forbidden(
                "a change with a cookie needs the Origin of this gateway; use a token in the header Authorization",
            ));
        }
        Ok(Some(Identity { principal: session.user, ends: session.ends, reach: None, grant: None }))
    }

    /// Decides about a token that no user or client is known to have.
    async fn identify_unknown(
        &self,
        token: &[u8],
        access: AccessLevel,
        request: &AccessRequest<'_>,
    ) -> Result<Identity, ErrorResponse> {
        // Expired access tokens are sent all the time, by agents that share addresses: no guesses, and nothing to note.
        if self.gateway.has_issued(token) {
            let found = self.gateway.identify_anew(token).await?;
            return found.filter(|identity| self.honours(identity)).ok_or_else(ErrorResponse::wrong_token);
        }
        let refuse = |error: ErrorResponse| {
            let action = if access == AccessLevel::Client { CLIENT_SIGN_IN } else { SIGN_IN };
            self.note_refused(source(&self.settings, request.forwarded_for, request.peer), action, "");
            error
        };
        if self.gateway.was_valid_lately(token) {
            return Err(refuse(ErrorResponse::wrong_token()));
        }
        let external = self.sign_in.as_ref().and_then(|server| server.external.as_ref());
        if let Some(external) = external.filter(|_| access == AccessLevel::Client) {
            let address = source(&self.settings, request.forwarded_for, request.peer).to_string();
            match external.judge(self, token, request.path, Some(address)).await? {
                Judged::Identity(identity) => return Ok(*identity),
                Judged::Refused => return Err(refuse(ErrorResponse::wrong_token())),
                Judged::Foreign => {}
            }
        }
        self.count_guess(request.forwarded_for, request.peer).map_err(refuse)?;
        self.gateway.identify_anew(token).await?.ok_or_else(|| refuse(ErrorResponse::wrong_token()))
    }

    /// Counts a request to an admin's route that is refused.
    fn note_refused_request(&self, request: &AccessRequest<'_>, principal: Option<&Principal>) {
        let source = source(&self.settings, request.forwarded_for, request.peer);
        let by = by(principal, Some(source_of(source).to_string()));
        let target = format!("{} {}", request.method, request.route);
        self.gateway.sum_up(by, "api.request", &target, AuditOutcome::Refused);
    }

    /// Counts what a stranger was refused. Strangers are counted by their networks.
    pub fn note_refused(&self, source: IpAddr, action: &'static str, target: &str) {
        let by = By::anonymous(Some(source_of(source).to_string()));
        self.gateway.sum_up(by, action, target, AuditOutcome::Refused);
    }

    /// Checks that a request to initialize the gateway has the secret for that, if there is one.
    pub fn check_init_secret(&self, headers: &HeaderMap, peer: Peer) -> Result<(), ErrorResponse> {
        let Some(secret) = &self.settings.init_secret else { return Ok(()) };
        let token = bearer_token(headers);
        if token.is_some_and(|token| is_same(token, secret.expose().as_bytes())) {
            return Ok(());
        }
        let source = source(&self.settings, forwarded_for(headers), peer.0);
        self.note_refused(source, "gateway.initialize", "");
        if token.is_none() {
            return Err(ErrorResponse::no_init_secret());
        }
        self.count_guess(forwarded_for(headers), peer.0)?;
        Err(ErrorResponse::wrong_init_secret())
    }

    /// Counts a wrong token. Fails if there were too many.
    fn count_guess(&self, forwarded_for: Option<&str>, peer: IpAddr) -> Result<(), ErrorResponse> {
        if self.guesses.count(source(&self.settings, forwarded_for, peer), Instant::now()) {
            return Ok(());
        }
        self.gateway.budgets().refusals.count(Bound::WrongTokens);
        Err(ErrorResponse::too_many_guesses())
    }

    /// Waits until this gateway knows all changes up to the epoch that the request names, if it names one.
    pub async fn reach_epoch(&self, headers: &HeaderMap) -> Result<(), ErrorResponse> {
        let Some(value) = headers.get(MIN_EPOCH) else { return Ok(()) };
        let wrong = || FieldError::new("X-Toolgate-Min-Epoch", "must be a number").to_string();
        let number = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let epoch = number.and_then(|text| text.parse().ok());
        let epoch = epoch.ok_or_else(|| ErrorResponse::bad_request(wrong()))?;
        match self.gateway.wait_for_epoch(epoch).await {
            Err(error) if !self.gateway.is_shared() => Err(ErrorResponse::unknown_epoch(error)),
            reached => Ok(reached?),
        }
    }
}

/// Checks that a user or client may use routes of a level, and that the credential is for the path.
fn check_level(access: AccessLevel, identity: &Identity, path: &str) -> Result<(), ErrorResponse> {
    if let Some(reach) = &identity.reach {
        return match access {
            AccessLevel::Client if reach.covers(path) => Ok(()),
            AccessLevel::Client => Err(ErrorResponse::token_for_elsewhere()),
            AccessLevel::Open | AccessLevel::User | AccessLevel::Admin | AccessLevel::Development => {
                Err(ErrorResponse::token_of("agents", "users"))
            }
        };
    }
    match (access, &identity.principal) {
        (AccessLevel::Client, Principal::Client(_)) => Ok(()),
        (AccessLevel::Client, Principal::User(_)) => Err(ErrorResponse::token_of("users", "MCP clients")),
        (_, Principal::Client(_)) => Err(ErrorResponse::token_of("MCP clients", "users")),
        (AccessLevel::Admin, Principal::User(user)) if user.rights.role != Role::Admin => {
            Err(ErrorResponse::forbidden(format!(
                "this needs the role \"admin\", and {:?} has the role {:?}",
                user.holder.username.as_str(),
                user.rights.role.as_str()
            )))
        }
        (_, Principal::User(_)) => Ok(()),
    }
}

/// Compares two secrets in a time that tells nothing about where they differ.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (Sha256::digest(one), Sha256::digest(other));
    one.iter().zip(&other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

/// The parts of a request that the access check needs.
pub struct AccessRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// The path of the route, such as `/api/v0/servers/{name}`.
    pub route: &'a str,
    /// The bearer token; `None` if it is missing or malformed.
    pub token: Option<&'a [u8]>,
    /// All headers, for the cookie of a browser session; `None` where no cookie counts.
    pub headers: Option<&'a HeaderMap>,
    /// The last header with the addresses that proxies saw.
    pub forwarded_for: Option<&'a str>,
    pub peer: IpAddr,
    /// The last token on the connection, where that is remembered.
    pub memory: Option<&'a TokenMemory>,
    /// Whether the same request was checked before.
    pub is_repeated: bool,
}

impl<'a> AccessRequest<'a> {
    pub fn of(head: &'a Parts, peer: IpAddr) -> Self {
        let (token, forwarded_for) = (bearer_token(&head.headers), forwarded_for(&head.headers));
        let (method, path) = (head.method.as_str(), head.uri.path());
        let route = head.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let headers = Some(&head.headers);
        Self { method, path, route, token, headers, forwarded_for, peer, memory: None, is_repeated: false }
    }
}

/// Middleware of every route: checks the access level, then runs the handler.
pub async fn pass(
    State((face, entrance)): State<(Face, Entrance)>,
    request: Request,
    next: Next,
) -> Response {
    let page = match entrance.access {
        AccessLevel::Development => {
            face.landing_page(request.method(), request.uri().path(), request.headers())
        }
        AccessLevel::Open | AccessLevel::User | AccessLevel::Admin | AccessLevel::Client => None,
    };
    let request = match face.receive(entrance, request).await {
        Ok(request) => request,
        Err(error) => return page.unwrap_or_else(|| error.into_response()),
    };
    let caller = request.extensions().get::<Identity>().cloned();
    let is_change = !request.method().is_safe();
    let answer = async {
        let mut answer = next.run(request).await;
        if is_change && answer.status().is_success() {
            answer.headers_mut().insert(EPOCH, face.gateway.epoch().into());
        }
        answer
    };
    match (caller, entrance.access) {
        // Only reads and calls end with their credential. Changes run to the end, even one that revokes the admin's own
        // token.
        (Some(identity), access) if access == AccessLevel::User || !is_change => {
            let revoked = identity.ends;
            let answer = until_revoked(Some(&revoked), pin!(answer)).await;
            answer.map_or_else(IntoResponse::into_response, |answer| {
                answer.map(|body| Body::new(UntilRevoked::new(body, &revoked)))
            })
        }
        (Some(_) | None, _) => answer.await,
    }
}

/// Returns the token of `Authorization: Bearer <token>`; `None` if the header is missing, repeated or malformed.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    token_in(values.next().filter(|_| values.next().is_none())?.as_bytes())
}

/// Returns the token of the value `Bearer <token>`.
pub fn token_in(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked("Bearer".len())?;
    let token = token.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer") && !token.is_empty()).then_some(token)
}

/// Returns the last header with the addresses that proxies saw.
fn forwarded_for(headers: &HeaderMap) -> Option<&str> {
    headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()
}

/// Returns the address of the client. Behind a trusted proxy that is the last entry of `X-Forwarded-For`, which the
/// proxy added itself; earlier entries come from the client and prove nothing.
fn source(settings: &WebSettings, forwarded_for: Option<&str>, peer: IpAddr) -> IpAddr {
    if !settings.trust_proxy {
        return peer;
    }
    let last = forwarded_for.and_then(|value| value.rsplit(',').next());
    let address = last.map(str::trim).and_then(|text| {
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
    });
    address.unwrap_or(peer).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_bearer_header_carries_a_token() {
        let token = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer_token(&headers).map(|token| String::from_utf8(token.to_vec()).unwrap())
        };
        for good in ["Bearer t", "bearer t", "BEARER   t", "Bearer t "] {
            assert_eq!(token(&[good]).as_deref(), Some("t"), "{good}");
        }
        for bad in ["", "t", "Bearer", "Bearer ", "Bearert", "Basic t", "Bearer\tt", "Token t"] {
            assert_eq!(token(&[bad]), None, "{bad}");
        }
        assert_eq!(token(&[]), None);
        assert_eq!(token(&["Bearer t", "Bearer t"]), None);
    }

    #[test]
    fn a_trusted_proxy_names_the_source_and_nobody_else_can() {
        let proxied = |trust_proxy, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            let settings = WebSettings { trust_proxy, ..WebSettings::default() };
            source(&settings, forwarded_for(&headers), [9, 9, 9, 9].into()).to_string()
        };
        assert_eq!(proxied(false, &["1.1.1.1"]), "9.9.9.9");
        assert_eq!(proxied(true, &[]), "9.9.9.9");
        for (values, expected) in [
            (&["1.1.1.1"][..], "1.1.1.1"),
            (&["6.6.6.6, 1.1.1.1"], "1.1.1.1"),
            (&["6.6.6.6", "1.1.1.1:443"], "1.1.1.1"),
            (&["[2001:db8::1]:443"], "2001:db8::1"),
            (&["2001:db8::1"], "2001:db8::1"),
            (&["unknown"], "9.9.9.9"),
        ] {
            assert_eq!(proxied(true, values), expected);
        }
    }
}
