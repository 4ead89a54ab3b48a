//! Who may use which route: the levels of the table in `routes`, and the check that stands before every one of them.
//! In enterprise mode a token decides.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::error::Refusal;
use super::revocable::{Until, until_revoked};
use super::{Face, Settings, guard};
use gateway::caller::Owner;
use gateway::principals::Principal;
use model::{Mode, Role};

/// Who may use a route. In development mode nobody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a token.
    Open,
    /// Users of both roles.
    User,
    /// Users with the role `admin`.
    Admin,
    /// MCP clients.
    Client,
    /// Everybody, but in development mode only: elsewhere there is no such route.
    Development,
}

impl Access {
    pub fn as_str(self) -> &'static str {
        match self {
            Access::Open => "open",
            Access::User => "user",
            Access::Admin => "admin",
            Access::Client => "client",
            Access::Development => "development",
        }
    }
}

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Who asks; nobody where nobody is asked who they are.
#[derive(Clone)]
pub struct Caller(pub Option<Principal>);

impl Caller {
    /// Who this is to a stateful server.
    pub fn owner(&self) -> Owner {
        self.0.as_ref().map_or(Owner::Anybody, |principal| Owner::Principal(principal.id()))
    }

    /// None where nobody is asked who they are.
    pub fn role(&self) -> Option<Role> {
        match &self.0 {
            Some(Principal::User(user)) => Some(user.holder.role),
            Some(Principal::Client(_)) | None => None,
        }
    }
}

impl Face {
    /// Whose request this is, if it may use routes of this level.
    pub async fn admit(&self, access: Access, request: &Asked<'_>) -> Result<Caller, Refusal> {
        match (self.gateway.mode, access) {
            (Mode::Development, _) | (Mode::Enterprise, Access::Open) => Ok(Caller(None)),
            (Mode::Enterprise, Access::Development) => {
                Err(Refusal::unknown_route(request.method, request.path))
            }
            (Mode::Enterprise, Access::User | Access::Admin | Access::Client) => {
                if !self.gateway.is_initialized() {
                    return Err(Refusal::forbidden("server is not initialized; send POST /init first"));
                }
                self.identify(access, request).await.map(|principal| Caller(Some(principal)))
            }
        }
    }

    /// The request with its whole body and its caller, if it may use routes of this level.
    pub async fn receive(&self, access: Access, request: Request) -> Result<Request, Refusal> {
        let (mut head, body) = request.into_parts();
        let peer = head.extensions.get::<Peer>().map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0);
        let (method, path) = (head.method.as_str(), head.uri.path());
        let asked = Asked { method, path, headers: &head.headers, peer };
        if let Err(refusal) = self.admit(access, &asked).await {
            guard::discard(body, 0).await;
            return Err(refusal);
        }
        let body = guard::read_body(body).await?;
        // A body may take its time, and its sender lose the right meanwhile.
        let caller = self.admit(access, &asked).await?;
        head.extensions.insert(caller);
        Ok(Request::from_parts(head, body.into()))
    }

    async fn identify(&self, access: Access, request: &Asked<'_>) -> Result<Principal, Refusal> {
        let token = bearer_token(request.headers).ok_or_else(Refusal::no_token)?;
        let Some(principal) = self.gateway.identify(token).await else {
            let source = source(&self.settings, request.headers, request.peer);
            return Err(match self.guesses.count(source, Instant::now()) {
                true => Refusal::wrong_token(),
                false => Refusal::too_many_guesses(),
            });
        };
        match (access, &principal) {
            (Access::Client, Principal::Client(_)) => Ok(principal),
            (Access::Client, Principal::User(_)) => Err(Refusal::token_of("users", "MCP clients")),
            (_, Principal::Client(_)) => Err(Refusal::token_of("MCP clients", "users")),
            (Access::Admin, Principal::User(user)) if user.holder.role != Role::Admin => {
                Err(Refusal::forbidden(format!(
                    "this needs the role \"admin\", and {:?} has the role {:?}",
                    user.holder.username.as_str(),
                    user.holder.role.as_str()
                )))
            }
            (_, Principal::User(_)) => Ok(principal),
        }
    }
}

/// What the check looks at.
pub struct Asked<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub peer: IpAddr,
}

/// Stands before every route of the router.
pub async fn pass(State((face, access)): State<(Face, Access)>, request: Request, next: Next) -> Response {
    let request = match face.receive(access, request).await {
        Ok(request) => request,
        Err(refusal) => return refusal.into_response(),
    };
    let caller = request.extensions().get::<Caller>().and_then(|caller| caller.0.clone());
    let answer = next.run(request);
    match (caller, access) {
        // Changes go on to their end, even one by which admins take their own token away.
        (Some(principal), Access::User) => {
            let revoked = principal.revoked();
            let answer = until_revoked(Some(revoked), answer).await;
            answer.map_or_else(IntoResponse::into_response, |answer| {
                answer.map(|body| Body::new(Until::new(body, revoked)))
            })
        }
        (Some(_) | None, _) => answer.await,
    }
}

/// The token of `Authorization: Bearer <token>`; none where the header is missing, given twice or of another form.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer".len())?;
    let token = token.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"Bearer") && !token.is_empty()).then_some(token)
}

/// Behind a proxy everybody has the proxy's address. What it says comes last; before that stands what it was told.
fn source(settings: &Settings, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    if !settings.trust_proxy {
        return peer;
    }
    let forwarded = headers.get_all("x-forwarded-for").iter().next_back();
    let last = forwarded.and_then(|value| value.to_str().ok()?.rsplit(',').next());
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
            let settings = Settings { trust_proxy, ..Settings::default() };
            source(&settings, &headers, [9, 9, 9, 9].into()).to_string()
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
