//! The cookies of people's browsers. Their names have the prefix `__Host-`, which binds them to this host and to https,
//! except on http, where browsers refuse it.

use axum::http::{HeaderMap, HeaderValue, header};

use super::AuthorizationServer;

/// The cookies that the gateway sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookie {
    /// The browser session.
    Session,
    /// What is kept while the person is at the identity provider.
    SignIn,
    /// Where the person wants to go after that. Not sealed, which would make it longer: it may be a request to `/authorize`, and
    /// a cookie has at most 4 KiB.
    Next,
}

/// How long a browser may take to come back from the identity provider, in seconds.
pub const SIGN_IN_SECONDS: i64 = 600;
/// The longest life of a session, in seconds. The store ends it earlier if it is idle.
const SESSION_SECONDS: i64 = 7 * 24 * 3600;

/// The longest value of a cookie that browsers keep, with its name and attributes.
const LONGEST: usize = 3900;

/// An address as the value of [`Cookie::Next`], without the characters that separate cookies: in an address they mean the
/// same encoded. `None` if it is too long for a browser to keep.
pub fn kept_address(next: &str) -> Option<String> {
    let kept = next.replace('"', "%22").replace(',', "%2C").replace(';', "%3B");
    (kept.len() <= LONGEST).then_some(kept)
}

impl Cookie {
    fn name(self, is_https: bool) -> &'static str {
        match (self, is_https) {
            (Cookie::Session, true) => "__Host-toolgate",
            (Cookie::Session, false) => "toolgate",
            (Cookie::SignIn, true) => "__Host-toolgate-sign-in",
            (Cookie::SignIn, false) => "toolgate-sign-in",
            (Cookie::Next, true) => "__Host-toolgate-next",
            (Cookie::Next, false) => "toolgate-next",
        }
    }
}

impl AuthorizationServer {
    /// The value of a cookie in a request.
    pub fn cookie<'a>(&self, cookie: Cookie, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = cookie.name(self.is_https());
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(key, value)| (key == name && !value.is_empty()).then_some(value))
    }

    /// The header that sets a cookie.
    pub fn set_cookie(&self, cookie: Cookie, value: &str) -> HeaderValue {
        let seconds = match cookie {
            Cookie::Session => SESSION_SECONDS,
            Cookie::SignIn | Cookie::Next => SIGN_IN_SECONDS,
        };
        self.cookie_header(cookie, value, seconds)
    }

    /// The header that removes a cookie.
    pub fn remove_cookie(&self, cookie: Cookie) -> HeaderValue {
        self.cookie_header(cookie, "", 0)
    }

    fn cookie_header(&self, cookie: Cookie, value: &str, seconds: i64) -> HeaderValue {
        let name = cookie.name(self.is_https());
        let secure = if self.is_https() { "; Secure" } else { "" };
        let text = format!("{name}={value}; Path=/; HttpOnly{secure}; SameSite=Lax; Max-Age={seconds}");
        HeaderValue::from_str(&text).expect("the values of cookies are visible characters")
    }
}
