//! An OpenID provider that lets everybody in as whoever the test says. It is also an issuer of access tokens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::{get, post};
use model::WallClock;
use serde_json::{Value, json};
use toolgate::config::{Config, JwtSettings, OidcClient};
use upstream::sign_in::{IdentityProvider, IdpSettings, PersonClaims};
use url::{Url, form_urlencoded};

use super::keys::{public_keys_of, signed_jwt_by};
use super::person::{ISSUER, Person, parameter};
use super::{Answer, TestApp};

const CLIENT_ID: &str = "gateway";

fn json_answer(status: StatusCode, value: &Value) -> impl axum::response::IntoResponse + use<> {
    (status, [("content-type", "application/json")], value.to_string())
}

#[derive(Clone)]
pub struct FakeProvider {
    pub issuer: String,
    /// The clock of the provider and of the gateways that `settings` changes.
    pub clock: WallClock,
    state: Arc<Mutex<State>>,
}

/// What the endpoints answer.
#[derive(Default)]
struct State {
    /// The claims of the next ID tokens, without the times.
    claims: Value,
    /// How many refresh tokens were given out; the last one is `r-<number>`. `None` if it gives none.
    given: Option<usize>,
    /// The error with which `/token` answers.
    error: Option<(u16, &'static str)>,
    /// The key with which it signs, and those that it publishes.
    signs_with: &'static str,
    publishes: Vec<&'static str>,
    /// Whether it answers with errors only.
    is_down: bool,
    /// Whether `/token` does not answer at all.
    is_hanging: bool,
    /// By how many seconds its clock is fast.
    skew: i64,
    /// The refresh tokens that it was asked with.
    used: Vec<String>,
}

impl FakeProvider {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let state = State { signs_with: "first", publishes: vec!["first"], ..State::default() };
        let provider = Self { issuer, clock: WallClock::default(), state: Arc::new(Mutex::new(state)) };
        let (metadata, keys, token) = (provider.clone(), provider.clone(), provider.clone());
        let router = axum::Router::new()
            .route("/.well-known/openid-configuration", get(|| async move { metadata.metadata() }))
            .route("/keys", get(|| async move { keys.keys() }))
            .route("/token", post(|form: String| async move { token.wait_and_answer(&form).await }));
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    fn metadata(&self) -> impl axum::response::IntoResponse + use<> {
        let issuer = &self.issuer;
        let metadata = json!({ "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"] });
        json_answer(self.status(), &metadata)
    }

    fn keys(&self) -> impl axum::response::IntoResponse + use<> {
        let keys = public_keys_of(&self.state.lock().unwrap().publishes);
        json_answer(self.status(), &keys)
    }

    fn status(&self) -> StatusCode {
        if self.state.lock().unwrap().is_down { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
    }

    async fn wait_and_answer(&self, form: &str) -> impl axum::response::IntoResponse + use<> {
        while self.state.lock().unwrap().is_hanging {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.token(form)
    }

    fn token(&self, form: &str) -> impl axum::response::IntoResponse + use<> {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.now_seconds().checked_add_signed(state.skew).unwrap();
        let refresh = form_urlencoded::parse(form.as_bytes()).find(|(key, _)| key == "refresh_token");
        let mut claims = state.claims.clone();
        if let Some((_, token)) = refresh {
            state.used.push(token.into_owned());
            claims.as_object_mut().unwrap().remove("nonce");
        }
        if state.is_down {
            return json_answer(StatusCode::SERVICE_UNAVAILABLE, &json!({}));
        }
        if let Some((status, error)) = state.error {
            return json_answer(StatusCode::from_u16(status).unwrap(), &json!({ "error": error }));
        }
        claims["iat"] = json!(now);
        claims["exp"] = json!(now + 300);
        let id_token = signed_jwt_by(state.signs_with, &claims);
        let mut answer = json!({ "access_token": "a", "token_type": "Bearer", "id_token": id_token });
        if let Some(given) = &mut state.given {
            *given += 1;
            answer["refresh_token"] = json!(format!("r-{given}"));
        }
        json_answer(StatusCode::OK, &answer)
    }

    /// Lets people of this provider sign in at a gateway.
    pub fn settings(&self, config: &mut Config) {
        config.public_url = Some(Url::parse(ISSUER).unwrap());
        config.clock = self.clock.clone();
        config.sign_in.oidc = Some(OidcClient {
            issuer: self.issuer.clone(),
            client_id: CLIENT_ID.to_owned(),
            client_secret: None,
            scopes: None,
        });
    }

    /// What a gateway asks about people again, as `settings` describes it.
    pub fn client(&self) -> Arc<IdentityProvider> {
        let settings = IdpSettings {
            issuer: self.issuer.clone(),
            client_id: CLIENT_ID.to_owned(),
            client_secret: None,
            scopes: None,
            claims: PersonClaims::default(),
            redirect_uri: format!("{ISSUER}/login/callback"),
        };
        Arc::new(IdentityProvider::new(settings, upstream::Tls::default(), self.clock.clone()))
    }

    /// Lets a gateway accept access tokens of this provider.
    pub fn issuer_settings(&self, config: &mut Config) {
        config.public_url = Some(Url::parse(ISSUER).unwrap());
        config.clock = self.clock.clone();
        config.sign_in.jwt = Some(JwtSettings { issuer: self.issuer.clone(), audience: None });
    }

    /// Who signs in next, in the attempt to which a response has sent the browser.
    pub fn answer(&self, sent: &Answer, (subject, name, groups): (&str, &str, &[&str])) {
        self.state.lock().unwrap().claims = json!({ "iss": self.issuer, "aud": CLIENT_ID, "sub": subject,
            "nonce": parameter(sent, "nonce").unwrap(), "preferred_username": name, "groups": groups });
    }

    /// Changes a claim of the next ID tokens.
    pub fn claim(&self, name: &str, value: Value) {
        self.state.lock().unwrap().claims[name] = value;
    }

    pub fn give_refresh_tokens(&self) {
        self.state.lock().unwrap().given = Some(0);
    }

    /// Answers at the token endpoint with this error, or again with tokens.
    pub fn fail(&self, error: Option<(u16, &'static str)>) {
        self.state.lock().unwrap().error = error;
    }

    /// Lets `/token` wait with its answers.
    pub fn set_hanging(&self, is_hanging: bool) {
        self.state.lock().unwrap().is_hanging = is_hanging;
    }

    /// Sets the clock with which it signs, in seconds before or after the right time.
    pub fn set_skew(&self, seconds: i64) {
        self.state.lock().unwrap().skew = seconds;
    }

    pub fn set_down(&self, is_down: bool) {
        self.state.lock().unwrap().is_down = is_down;
    }

    /// Replaces the key that it signs with, and those that it publishes.
    pub fn set_keys(&self, signs_with: &'static str, publishes: &[&'static str]) {
        let mut state = self.state.lock().unwrap();
        (state.signs_with, state.publishes) = (signs_with, publishes.to_vec());
    }

    /// The refresh tokens that it was asked with.
    pub fn used(&self) -> Vec<String> {
        self.state.lock().unwrap().used.clone()
    }

    /// Goes to the provider and comes back as this person: subject, name and groups.
    pub async fn sign_in(
        &self,
        app: &TestApp,
        person: &mut Person,
        who: (&str, &str, &[&str]),
        next: &str,
    ) -> Answer {
        let sent = person.send(app, "/login", &[("next", next)]).await.expect(303);
        person.keep_cookie(&sent);
        self.answer(&sent, who);
        let state = parameter(&sent, "state").unwrap();
        let answer = person.open(app, &format!("/login/callback?code=c&state={state}")).await;
        person.keep_cookie(&answer);
        answer
    }
}
