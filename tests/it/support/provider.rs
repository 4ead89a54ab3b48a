//! A real OAuth provider on loopback: metadata, dynamic registration, authorization with PKCE, tokens with rotation. It
//! grants every authorization at once, unless its `Rules` say otherwise. The fake upstream that it protects accepts the
//! last token that it issued.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, body::Bytes};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;

use super::client;
use super::fake::{Fake, Protected};

type Form = HashMap<String, String>;

/// The behaviour of the provider; may change while it runs.
#[derive(Clone)]
pub struct Rules {
    pub registers_clients: bool,
    /// Gives a registered client a secret, and requires it.
    pub gives_secrets: bool,
    pub grants_to_machines: bool,
    /// A wrong issuer to publish.
    pub issuer: Option<String>,
    /// The `iss` in the redirect: absent, or this.
    pub iss: Option<String>,
    pub denies: bool,
    pub refresh_tokens: bool,
    /// In seconds; `None` leaves it out.
    pub lifetime: Option<u64>,
    /// Refuses every refresh token.
    pub revoked: bool,
    /// The token endpoint responds with this status.
    pub token_failure: Option<u16>,
    pub token_delay: Duration,
    pub scopes_supported: Vec<String>,
    /// Another origin to publish as the place of the metadata.
    pub redirects_metadata_to: Option<String>,
    /// Replaces parts of the metadata.
    pub metadata: Value,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            registers_clients: true,
            gives_secrets: false,
            grants_to_machines: false,
            issuer: None,
            iss: None,
            denies: false,
            refresh_tokens: true,
            lifetime: Some(3600),
            revoked: false,
            token_failure: None,
            token_delay: Duration::ZERO,
            scopes_supported: vec![],
            redirects_metadata_to: None,
            metadata: json!({}),
        }
    }
}

/// One request to the provider.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub params: Value,
    pub authorization: Option<String>,
}

#[derive(Default)]
struct Memory {
    rules: Rules,
    asked: Vec<Asked>,
    /// Maps a code to the parameters of its authorization.
    codes: HashMap<String, Form>,
    /// The current refresh token of each client.
    refresh: BTreeMap<String, String>,
    secrets: HashMap<String, String>,
    serial: u64,
}

pub struct Provider {
    address: String,
    shared: Arc<Shared>,
}

struct Shared {
    memory: Mutex<Memory>,
    issuer: String,
    fake: Arc<Protected>,
}

impl Provider {
    /// Starts a provider for `fake`, which requires its tokens from now on.
    pub async fn protecting(fake: &Fake, rules: Rules) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address").to_string();
        let issuer = format!("http://{address}");
        fake.update(|behaviour| {
            behaviour.bearer = Some("no token was given yet".into());
            behaviour.oauth_metadata = true;
            behaviour.authorization_server = Some(issuer.clone());
        });
        let memory = Mutex::new(Memory { rules, ..Memory::default() });
        let shared = Arc::new(Shared { memory, issuer, fake: fake.handle() });
        let router = Router::new()
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shared }
    }

    pub fn issuer(&self) -> &str {
        &self.shared.issuer
    }

    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.shared.memory().rules);
    }

    pub fn asked(&self, path: &str) -> Vec<Asked> {
        self.shared.memory().asked.iter().filter(|asked| asked.path == path).cloned().collect()
    }

    /// The token requests of one kind.
    pub fn tokens(&self, grant_type: &str) -> Vec<Asked> {
        let mut asked = self.asked("/token");
        asked.retain(|asked| asked.params["grant_type"] == grant_type);
        asked
    }

    /// Opens the authorization page like a browser; returns the parameters of the redirect.
    pub async fn visit(&self, authorization_url: &str) -> Value {
        let url = Url::parse(authorization_url).expect("the gateway gives a URL");
        assert_eq!(format!("{}:{}", url.host_str().unwrap(), url.port().unwrap()), self.address);
        let path = format!("{}?{}", url.path(), url.query().unwrap_or_default());
        let answer = client::request(&self.address, "GET", &path, &[], vec![]).await.expect(302);
        let location = Url::parse(answer.headers["location"].to_str().unwrap()).unwrap();
        location.query_pairs().map(|(key, value)| (key.into_owned(), Value::from(&*value))).collect()
    }
}

impl Shared {
    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().expect("no thread panicked with the memory")
    }

    fn see(&self, path: &str, params: Value, headers: &HeaderMap) -> Rules {
        let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let mut memory = self.memory();
        memory.asked.push(Asked { path: path.to_owned(), params, authorization });
        memory.rules.clone()
    }

    /// Makes the fake require this token.
    fn accept(&self, token: &str, scope: &str) {
        self.fake.update(|behaviour| {
            behaviour.bearer = Some(token.to_owned());
            let satisfied = |wanted: &String| scope.split(' ').any(|scope| scope == wanted);
            if behaviour.wants_scope.as_ref().is_some_and(satisfied) {
                behaviour.wants_scope = None;
            }
        });
    }

    fn number(&self) -> u64 {
        let mut memory = self.memory();
        memory.serial += 1;
        memory.serial
    }
}

async fn metadata(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let rules = shared.see("/metadata", json!({}), &headers);
    if let Some(origin) = rules.redirects_metadata_to {
        let location = format!("{origin}/.well-known/oauth-authorization-server");
        return (StatusCode::FOUND, [(header::LOCATION, location)]).into_response();
    }
    let base = &shared.issuer;
    let grants = match rules.grants_to_machines {
        true => vec!["authorization_code", "refresh_token", "client_credentials"],
        false => vec!["authorization_code", "refresh_token"],
    };
    let mut document = json!({
        "issuer": rules.issuer.as_ref().unwrap_or(base),
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "response_types_supported": ["code"],
        "grant_types_supported": grants,
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": rules.scopes_supported,
        "authorization_response_iss_parameter_supported": rules.iss.is_some(),
    });
    if rules.registers_clients {
        document["registration_endpoint"] = json!(format!("{base}/register"));
    }
    let object = document.as_object_mut().unwrap();
    object.extend(rules.metadata.as_object().unwrap().clone());
    answer(StatusCode::OK, &document)
}

async fn register(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let rules = shared.see("/register", request.clone(), &headers);
    let id = format!("client-{}", shared.number());
    let mut registered = request;
    registered["client_id"] = json!(id);
    if rules.gives_secrets {
        let secret = format!("planted-client-secret-{}", shared.number());
        registered["client_secret"] = json!(secret);
        shared.memory().secrets.insert(id, secret);
    }
    answer(StatusCode::CREATED, &registered)
}

async fn authorize(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Query(params): Query<Form>,
) -> Response {
    let rules = shared.see("/authorize", json!(params), &headers);
    let mut back = Url::parse(&params["redirect_uri"]).expect("the gateway sends a redirect URI");
    if rules.denies {
        back.query_pairs_mut()
            .append_pair("error", "access_denied")
            .append_pair("error_description", "<not today>");
    } else {
        let code = format!("planted-code-{}", shared.number());
        back.query_pairs_mut().append_pair("code", &code);
        shared.memory().codes.insert(code, params.clone());
    }
    back.query_pairs_mut().append_pair("state", &params["state"]);
    if let Some(iss) = &rules.iss {
        back.query_pairs_mut().append_pair("iss", iss);
    }
    (StatusCode::FOUND, [(header::LOCATION, back.to_string())]).into_response()
}

async fn token(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let form: Form = url::form_urlencoded::parse(&body).into_owned().collect();
    let rules = shared.see("/token", json!(form), &headers);
    tokio::time::sleep(rules.token_delay).await;
    if let Some(status) = rules.token_failure {
        return (StatusCode::from_u16(status).unwrap(), "out of order").into_response();
    }
    let Some(client) = authenticate(&shared, &headers, &form) else { return refuse("invalid_client") };
    let scope = match form["grant_type"].as_str() {
        "authorization_code" => {
            let Some(agreed) = shared.memory().codes.remove(&form["code"]) else {
                return refuse("invalid_grant");
            };
            let digest = Sha256::digest(form["code_verifier"].as_bytes());
            let proven = BASE64_URL_SAFE_NO_PAD.encode(digest) == agreed["code_challenge"];
            let same = ["redirect_uri", "resource"].iter().all(|key| form.get(*key) == agreed.get(*key));
            if !proven || !same || agreed["client_id"] != client {
                return refuse("invalid_grant");
            }
            agreed.get("scope").cloned().unwrap_or_default()
        }
        "refresh_token" => {
            let known = shared.memory().refresh.get(&client).cloned();
            if rules.revoked || known.as_ref() != form.get("refresh_token") {
                return refuse("invalid_grant");
            }
            form.get("scope").cloned().unwrap_or_default()
        }
        "client_credentials" if rules.grants_to_machines => form.get("scope").cloned().unwrap_or_default(),
        _ => return refuse("unsupported_grant_type"),
    };
    let access = format!("planted-access-token-{}", shared.number());
    let mut given = json!({ "access_token": access, "token_type": "Bearer", "scope": scope });
    if let Some(lifetime) = rules.lifetime {
        given["expires_in"] = json!(lifetime);
    }
    if rules.refresh_tokens && form["grant_type"] != "client_credentials" {
        let refresh = format!("planted-refresh-token-{}", shared.number());
        given["refresh_token"] = json!(refresh);
        shared.memory().refresh.insert(client, refresh);
    }
    shared.accept(&access, &scope);
    answer(StatusCode::OK, &given)
}

/// The client, if its authentication is valid.
fn authenticate(shared: &Shared, headers: &HeaderMap, form: &Form) -> Option<String> {
    let basic = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let (id, secret) = match basic {
        Some(basic) => {
            let pair = String::from_utf8(BASE64_STANDARD.decode(basic).ok()?).ok()?;
            let (id, secret) = pair.split_once(':')?;
            (id.to_owned(), Some(secret.to_owned()))
        }
        None => (form.get("client_id")?.clone(), form.get("client_secret").cloned()),
    };
    let expected = shared.memory().secrets.get(&id).cloned();
    (expected.is_none() || expected == secret).then_some(id)
}

fn refuse(error: &str) -> Response {
    answer(StatusCode::BAD_REQUEST, &json!({ "error": error, "error_description": "the provider said so" }))
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body.to_string()).into_response()
}
