//! A person at a browser, and the software of an agent that sends them to `/authorize`: the authorization server of the
//! gateway, with raw requests.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::{Url, form_urlencoded};

use super::{Answer, TestApp, client};

/// The address of the gateway in tests of signing in.
pub const ISSUER: &str = "https://gate.example.com";
pub const VERIFIER: &str = "a-verifier-with-at-least-forty-three-characters-in-it";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// Encodes a query or a form.
pub fn encoded(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The challenge of [`VERIFIER`].
pub fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER))
}

/// A browser, with the cookie of its session.
#[derive(Default)]
pub struct Person {
    pub cookie: Option<String>,
}

impl Person {
    /// Opens a page.
    pub async fn open(&self, app: &TestApp, path: &str) -> Answer {
        let headers: Vec<_> = self.cookie.iter().map(|cookie| ("cookie", cookie.as_str())).collect();
        client::request(&app.address, "GET", path, &headers, Vec::new()).await
    }

    /// Sends a form as a browser does.
    pub async fn send(&self, app: &TestApp, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send_from(app, path, ISSUER, fields).await
    }

    /// The same from a page of another origin.
    pub async fn send_from(
        &self,
        app: &TestApp,
        path: &str,
        origin: &str,
        fields: &[(&str, &str)],
    ) -> Answer {
        let mut headers = vec![FORM, ("origin", origin)];
        headers.extend(self.cookie.iter().map(|cookie| ("cookie", cookie.as_str())));
        client::request(&app.address, "POST", path, &headers, encoded(fields).into()).await
    }

    /// Signs in with a token.
    pub async fn sign_in(&mut self, app: &TestApp, token: &str) -> Answer {
        let answer = self.send(app, "/login", &[("token", token)]).await.expect(303);
        self.keep_cookie(&answer);
        answer
    }

    /// Keeps the cookies that a response sets, as a browser does.
    pub fn keep_cookie(&mut self, answer: &Answer) {
        let kept = self.cookie.take().unwrap_or_default();
        let mut jar: Vec<String> =
            kept.split("; ").filter(|pair| !pair.is_empty()).map(str::to_owned).collect();
        for set in answer.headers.get_all("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let name = format!("{}=", pair.split('=').next().unwrap());
            jar.retain(|kept| !kept.starts_with(&name));
            if pair != name {
                jar.push(pair.to_owned());
            }
        }
        self.cookie = Some(jar.join("; ")).filter(|jar| !jar.is_empty());
    }

    /// Opens `/authorize`, and takes a decision on the consent page.
    pub async fn decide(&self, app: &TestApp, query: &str, decision: &str) -> Answer {
        let page = self.open(app, &format!("/authorize?{query}")).await.expect(200);
        let (query, form_token) = (hidden(&page, "query"), hidden(&page, "form_token"));
        let fields = [("query", query.as_str()), ("form_token", &form_token), ("decision", decision)];
        self.send(app, "/authorize", &fields).await
    }
}

/// The value of a hidden field on a page.
pub fn hidden(page: &Answer, name: &str) -> String {
    let text = page.text();
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = text.split_once(&start).unwrap_or_else(|| panic!("no field {name}: {text}"));
    let value = rest.split('"').next().unwrap();
    value
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

/// Where a response redirects to, with the parameters of its query.
pub fn redirect(answer: &Answer) -> (String, Vec<(String, String)>) {
    assert_eq!(answer.status, 303, "{}", answer.text());
    let url = Url::parse(answer.headers["location"].to_str().unwrap()).unwrap();
    let pairs = url.query_pairs().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
    let mut bare = url.clone();
    bare.set_query(None);
    (bare.to_string(), pairs)
}

/// A parameter of the query of a redirect.
pub fn parameter(answer: &Answer, name: &str) -> Option<String> {
    redirect(answer).1.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The software of an agent.
pub struct Software {
    pub client_id: String,
    pub secret: Option<String>,
    pub redirect_uri: String,
}

impl Software {
    /// Registers public software at `/register`.
    pub async fn register(app: &TestApp, redirect_uri: &str) -> Self {
        let metadata = json!({ "client_name": "Test agent", "redirect_uris": [redirect_uri],
            "token_endpoint_auth_method": "none" });
        Self::register_with(app, metadata).await
    }

    pub async fn register_with(app: &TestApp, metadata: Value) -> Self {
        let body = metadata.to_string().into();
        let answer = client::request(&app.address, "POST", "/register", &[], body).await.expect(201).json();
        Self {
            client_id: answer["client_id"].as_str().unwrap().to_owned(),
            secret: answer["client_secret"].as_str().map(str::to_owned),
            redirect_uri: answer["redirect_uris"][0].as_str().unwrap().to_owned(),
        }
    }

    /// The query of a request to `/authorize`, with further parameters.
    pub fn query(&self, more: &[(&str, &str)]) -> String {
        let challenge = challenge();
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", self.client_id.as_str()),
            ("redirect_uri", &self.redirect_uri),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", "the state"),
        ];
        pairs.extend(more);
        encoded(&pairs)
    }

    /// Gets a code with the consent of a person.
    pub async fn code(&self, app: &TestApp, person: &Person, more: &[(&str, &str)]) -> String {
        let answer = person.decide(app, &self.query(more), "allow").await;
        parameter(&answer, "code").expect("an answer with a code")
    }

    /// Sends a form to `/token` or `/revoke`, as public software.
    pub async fn post(&self, app: &TestApp, path: &str, fields: &[(&str, &str)]) -> Answer {
        let mut pairs = vec![("client_id", self.client_id.as_str())];
        pairs.extend(fields);
        client::request(&app.address, "POST", path, &[FORM], encoded(&pairs).into()).await
    }

    pub async fn redeem(&self, app: &TestApp, code: &str, more: &[(&str, &str)]) -> Answer {
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.redirect_uri.as_str()),
            ("code_verifier", VERIFIER),
        ];
        fields.extend(more);
        self.post(app, "/token", &fields).await
    }

    pub async fn refresh(&self, app: &TestApp, token: &str, more: &[(&str, &str)]) -> Answer {
        let mut fields = vec![("grant_type", "refresh_token"), ("refresh_token", token)];
        fields.extend(more);
        self.post(app, "/token", &fields).await
    }

    /// Gets an access token and a refresh token with the consent of a person.
    pub async fn tokens(&self, app: &TestApp, person: &Person, more: &[(&str, &str)]) -> (String, String) {
        let code = self.code(app, person, more).await;
        tokens_in(&self.redeem(app, &code, &[]).await.expect(200))
    }
}

/// The access token and the refresh token of a response.
pub fn tokens_in(answer: &Answer) -> (String, String) {
    let answer = answer.json();
    let text = |key: &str| answer[key].as_str().unwrap().to_owned();
    (text("access_token"), text("refresh_token"))
}

impl TestApp {
    /// Starts in enterprise mode, where people can sign in.
    pub async fn start_with_sign_in() -> Self {
        Self::start_enterprise_with(|config| config.public_url = Some(Url::parse(ISSUER).unwrap())).await
    }

    /// Creates a user, who signs in.
    pub async fn sign_in_user(&self, username: &str) -> Person {
        let token = self.create_user(username, "user").await;
        let mut person = Person::default();
        person.sign_in(self, &token).await;
        person
    }
}
