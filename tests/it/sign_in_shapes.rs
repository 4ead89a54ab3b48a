//! Agents that exist, by the shape of their requests: how each one finds the authorization server, says who it is, asks,
//! redeems and refreshes. A shape is data; all of them go the same way.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::keys::{public_keys, signed_jwt, stored};
use crate::support::person::{
    ISSUER, Person, VERIFIER, challenge, encoded, hidden, parameter, redirect, tokens_in,
};
use crate::support::{
    Agent, Answer, Behaviour, DocumentServer, Fake, Process, SseAgent, TestApp, bearer, client,
};

const ROOT: &str = "https://gate.example.com";
const ROOT_SLASH: &str = "https://gate.example.com/";
const MCP: &str = "https://gate.example.com/mcp";
const MCP_SLASH: &str = "https://gate.example.com/mcp/";

type Pairs = &'static [(&'static str, &'static str)];

struct Shape {
    name: &'static str,
    software: Introduction,
    /// Where its answers go, the first time and the next one.
    redirect_uris: [&'static str; 2],
    state: String,
    /// What it adds to requests to `/authorize`, and to `/token` for a code and for a refresh token.
    authorize: Pairs,
    redeem: Pairs,
    refresh: Pairs,
    body: Body,
    /// The endpoint that it uses.
    endpoint: &'static str,
}

/// How software says what it is.
enum Introduction {
    /// With this registration.
    Registers(Value),
    /// With this document at this path of its own host.
    Publishes(&'static str, Value),
}

/// How a program writes forms.
#[derive(Clone, Copy)]
enum Body {
    /// A space is `+`.
    Plus,
    /// A space is `%20`, and the media type has a character set.
    Percent,
}

/// What the registrations of most agents have in common.
fn registration(name: &str, method: &str, redirect_uris: &[&str]) -> Value {
    json!({ "client_name": name, "redirect_uris": redirect_uris, "token_endpoint_auth_method": method,
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"] })
}

fn with(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

fn hosted_agents() -> Vec<Shape> {
    let claude = ["https://claude.ai/api/mcp/auth_callback"; 2];
    let chatgpt = ["https://chatgpt.com/connector_platform_oauth_redirect"; 2];
    let connector = ["https://chatgpt.com/connector/oauth/a1B2c3D4e5F6"; 2];
    let state = || "oauth_s_66f0c3a2b1d881919f6e0f8b4f9c2d11".to_owned();
    vec![
        Shape {
            name: "claude.ai, registered",
            software: Introduction::Registers(with(
                registration("Claude", "client_secret_post", &claude[..1]),
                json!({"scope": "mcp"}),
            )),
            redirect_uris: claude,
            state: "xq0zJ5lJc2Y0TnJ1aW9uLXN0YXRlLXRva2Vu".to_owned(),
            authorize: &[("scope", "mcp"), ("resource", MCP)],
            redeem: &[("resource", MCP)],
            refresh: &[("resource", MCP)],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "claude.com, public",
            software: Introduction::Registers(registration(
                "Claude",
                "none",
                &["https://claude.ai/api/mcp/auth_callback", "https://claude.com/api/mcp/auth_callback"],
            )),
            redirect_uris: ["https://claude.com/api/mcp/auth_callback"; 2],
            state: "a state/with+signs=".to_owned(),
            authorize: &[("scope", "mcp offline_access"), ("resource", ROOT_SLASH), ("prompt", "")],
            redeem: &[("resource", ROOT_SLASH)],
            refresh: &[("resource", ROOT_SLASH), ("scope", "mcp")],
            body: Body::Percent,
            endpoint: "/v0/servers/s/mcp",
        },
        Shape {
            name: "claude.ai, with a document",
            software: Introduction::Publishes(
                "/oauth/mcp-oauth-client-metadata",
                with(
                    registration("Claude", "none", &claude[..1]),
                    json!({"client_uri": "https://claude.ai"}),
                ),
            ),
            redirect_uris: claude,
            state: "cGVyLW9yZw".to_owned(),
            authorize: &[("scope", "mcp"), ("resource", "https://gate.example.com/sse")],
            redeem: &[("resource", "https://gate.example.com/sse")],
            refresh: &[("resource", "https://gate.example.com/sse")],
            body: Body::Plus,
            endpoint: "/sse",
        },
        Shape {
            name: "ChatGPT, with a secret",
            software: Introduction::Registers(registration("ChatGPT", "client_secret_post", &chatgpt[..1])),
            redirect_uris: chatgpt,
            state: state(),
            authorize: &[("scope", "mcp offline_access"), ("resource", ROOT)],
            redeem: &[("resource", ROOT)],
            refresh: &[],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "ChatGPT, public",
            software: Introduction::Registers(registration("ChatGPT", "none", &connector[..1])),
            redirect_uris: connector,
            state: state(),
            authorize: &[("resource", ROOT)],
            redeem: &[("resource", ROOT)],
            refresh: &[("resource", ROOT), ("scope", "mcp offline_access")],
            body: Body::Plus,
            endpoint: "/v0/groups/g/mcp",
        },
        Shape {
            name: "ChatGPT, with keys",
            software: Introduction::Publishes(
                "/oauth/client.json",
                with(
                    registration("ChatGPT", "private_key_jwt", &chatgpt[..1]),
                    json!({"token_endpoint_auth_signing_alg": "ES256", "logo_uri": "https://chatgpt.com/l.png"}),
                ),
            ),
            redirect_uris: chatgpt,
            state: state(),
            authorize: &[("scope", "mcp"), ("resource", MCP)],
            redeem: &[("resource", MCP)],
            refresh: &[("resource", MCP)],
            body: Body::Plus,
            endpoint: "/mcp",
        },
    ]
}

fn local_agents() -> Vec<Shape> {
    let cursor = "cursor://anysphere.cursor-mcp/oauth/callback";
    let retrieval = "cursor://anysphere.cursor-retrieval/oauth/user-gate/callback";
    let code_document =
        registration("Claude Code", "none", &["http://localhost/callback", "http://127.0.0.1/callback"]);
    let vscode_registration = with(
        registration(
            "Visual Studio Code",
            "none",
            &[
                "https://insiders.vscode.dev/redirect",
                "https://vscode.dev/redirect",
                "http://localhost/",
                "http://127.0.0.1/",
                "http://localhost:33418/",
                "http://127.0.0.1:33418/",
                "http://127.0.0.1:33418",
            ],
        ),
        json!({"client_uri": "https://code.visualstudio.com", "application_type": "native", "scope": "mcp",
            "grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"]}),
    );
    vec![
        Shape {
            name: "Claude Code, with a document",
            software: Introduction::Publishes("/oauth/claude-code-client-metadata", code_document),
            redirect_uris: ["http://localhost:54545/callback", "http://localhost:61423/callback"],
            state: "f2b0GQm6yTgA3rC1dKxYqQ".to_owned(),
            authorize: &[("scope", "mcp"), ("resource", ROOT_SLASH)],
            redeem: &[("resource", ROOT_SLASH)],
            refresh: &[("resource", ROOT_SLASH)],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "Claude Code, registered",
            software: Introduction::Registers(registration(
                "Claude Code (gate)",
                "none",
                &["http://localhost:54545/callback"],
            )),
            redirect_uris: ["http://localhost:54545/callback", "http://localhost:3118/callback"],
            state: "f2b0GQm6yTgA3rC1dKxYqQ".to_owned(),
            // No resource anywhere.
            authorize: &[],
            redeem: &[],
            refresh: &[],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "Claude Code, on 127.0.0.1",
            software: Introduction::Registers(with(
                registration("Claude Code", "none", &["http://127.0.0.1:41000/callback"]),
                json!({"scope": null, "client_uri": null, "logo_uri": null, "contacts": null, "jwks": null,
                    "jwks_uri": null, "software_id": null, "software_version": "2.1", "x": {"unknown": [1]}}),
            )),
            redirect_uris: ["http://127.0.0.1:41000/callback", "http://127.0.0.1:41001/callback"],
            state: "s".to_owned(),
            // It narrows its tokens, each in its own way.
            authorize: &[("scope", "mcp offline_access"), ("access_type", "offline"), ("prompt", "consent")],
            redeem: &[("resource", MCP_SLASH)],
            refresh: &[("resource", MCP)],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "Cursor",
            software: Introduction::Registers(with(
                registration(
                    "Cursor",
                    "none",
                    &[
                        cursor,
                        "https://www.cursor.com/agents/mcp/oauth/callback",
                        "http://localhost:8787/callback",
                    ],
                ),
                json!({"client_uri": "https://cursor.com"}),
            )),
            redirect_uris: [cursor, "http://localhost:8787/callback"],
            state: STANDARD.encode(r#"{"id":"user-gate","nonce":"7?>"}"#),
            authorize: &[("scope", "mcp"), ("resource", MCP_SLASH)],
            redeem: &[("resource", MCP_SLASH)],
            refresh: &[("resource", MCP_SLASH)],
            body: Body::Percent,
            endpoint: "/mcp",
        },
        Shape {
            name: "Cursor, on the web",
            software: Introduction::Registers(registration(
                "Cursor",
                "none",
                &[cursor, "https://www.cursor.com/agents/mcp/oauth/callback"],
            )),
            redirect_uris: ["https://www.cursor.com/agents/mcp/oauth/callback"; 2],
            state: "s".to_owned(),
            authorize: &[],
            // An empty secret is none.
            redeem: &[("resource", MCP), ("client_secret", "")],
            refresh: &[("client_secret", "")],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "Cursor, of before",
            software: Introduction::Registers(json!({"redirect_uris": [retrieval], "client_name": "Cursor"})),
            redirect_uris: [retrieval; 2],
            state: "s".to_owned(),
            // It names no method, so it gets a secret and sends it in a header.
            authorize: &[("scope", "")],
            redeem: &[],
            refresh: &[],
            body: Body::Percent,
            endpoint: "/sse",
        },
        Shape {
            name: "VS Code, registered",
            software: Introduction::Registers(vscode_registration),
            redirect_uris: ["http://127.0.0.1:33418/", "http://127.0.0.1:52011/"],
            state: "kq%2B/=".to_owned(),
            authorize: &[("scope", "mcp"), ("resource", MCP)],
            redeem: &[("resource", MCP)],
            refresh: &[("resource", MCP), ("scope", "mcp")],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "VS Code, without a slash",
            software: Introduction::Registers(registration(
                "Visual Studio Code",
                "none",
                &["http://127.0.0.1:33418", "http://127.0.0.1:33418/"],
            )),
            redirect_uris: ["http://127.0.0.1:33418", "http://127.0.0.1:33418/"],
            state: "s".to_owned(),
            authorize: &[("resource", MCP)],
            redeem: &[],
            refresh: &[],
            body: Body::Plus,
            endpoint: "/mcp",
        },
        Shape {
            name: "VS Code, with a document",
            software: Introduction::Publishes(
                "/oauth/client-metadata.json",
                with(
                    registration(
                        "Visual Studio Code",
                        "none",
                        &["http://127.0.0.1:33418/", "https://vscode.dev/redirect"],
                    ),
                    json!({"application_type": "native", "client_uri": "https://vscode.dev/product",
                        "logo_uri": "https://code.visualstudio.com/assets/branding/code-stable.png"}),
                ),
            ),
            redirect_uris: ["https://vscode.dev/redirect", "http://127.0.0.1:33418/"],
            state: "vscode://dynamicauthprovider/gate/authorize?nonce=1&windowId=2".to_owned(),
            authorize: &[("scope", "mcp"), ("resource", MCP)],
            redeem: &[("resource", MCP)],
            refresh: &[("resource", MCP)],
            body: Body::Plus,
            endpoint: "/mcp",
        },
    ]
}

/// A gateway that knows the hosts of these agents, and a person who uses it.
async fn start() -> (Process, TestApp, Person, Fake) {
    let certificates = stored("first.cert.pem");
    let hosts =
        "localhost, claude.ai, claude.com, chatgpt.com, *.cursor.com, vscode.dev, insiders.vscode.dev";
    let process = Process::start_in(
        TempDir::new().unwrap(),
        &[
            ("SERVER_MODE", "enterprise"),
            ("HOST", "127.0.0.1"),
            ("PUBLIC_URL", ISSUER),
            ("OAUTH_CLIENT_HOSTS", hosts),
            ("SSL_CERT_FILE", certificates.to_str().unwrap()),
        ],
    )
    .await;
    let mut app = TestApp::elsewhere(&process.address, None);
    let admin = app.post("/init", json!({})).await.expect(200).json();
    app.authorization = Some(bearer(admin["admin_access_token"].as_str().unwrap()));
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_servers": ["s"]})).await.expect(201);
    let person = app.sign_in_user("ann").await;
    (process, app, person, fake)
}

#[tokio::test(flavor = "multi_thread")]
async fn hosted_agents_connect_and_stay_connected() {
    let (_process, app, person, _fake) = start().await;
    let documents = DocumentServer::start().await;
    for shape in hosted_agents() {
        walk(&app, &person, &documents, &shape).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_on_the_machine_of_a_person_connect_and_stay_connected() {
    let (_process, app, person, _fake) = start().await;
    let documents = DocumentServer::start().await;
    for shape in local_agents() {
        walk(&app, &person, &documents, &shape).await;
    }
}

/// The whole way of an agent, twice.
async fn walk(app: &TestApp, person: &Person, documents: &DocumentServer, shape: &Shape) {
    discover(app, shape).await;
    let client = introduce(app, documents, shape).await;
    let mut first = None;
    for (turn, redirect_uri) in shape.redirect_uris.into_iter().enumerate() {
        let code = client.ask(app, person, redirect_uri, turn).await;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("code_verifier", VERIFIER),
            ("redirect_uri", redirect_uri),
        ];
        fields.extend(shape.redeem);
        let answer = client.token(app, &fields).await.expect(200);
        client.check_tokens(&answer);
        let (access, refresh) = tokens_in(&answer);
        client.work(app, &access).await;
        client.renew(app, &refresh).await;
        first.get_or_insert(refresh);
    }
    // Each time is a grant of its own, and the first one still works.
    client.renew_once(app, &first.unwrap()).await;
}

/// The probes for metadata, as all agents together make them. Those that do not exist must be clear: 404.
async fn discover(app: &TestApp, shape: &Shape) {
    let version = ("mcp-protocol-version", "2025-11-25");
    let get = async |path: &str| client::request(&app.address, "GET", path, &[version], Vec::new()).await;
    let mut challenges = Vec::new();
    for method in ["GET", "POST"].into_iter().filter(|method| *method == "GET" || !is_sse(shape)) {
        let refused = client::request(&app.address, method, shape.endpoint, &[version], Vec::new()).await;
        challenges.push(refused.expect(401).headers["www-authenticate"].to_str().unwrap().to_owned());
    }
    challenges.dedup();
    let [challenge] = &challenges[..] else { panic!("{}: {challenges:?}", shape.name) };
    let document = challenge.split_once("resource_metadata=\"").unwrap().1.split('"').next().unwrap();
    let path = document.strip_prefix(ISSUER).unwrap_or_else(|| panic!("{}: {document}", shape.name));
    assert_eq!(path, format!("/.well-known/oauth-protected-resource{}", shape.endpoint), "{}", shape.name);
    let resource = get(path).await.expect(200).json();
    assert_eq!(resource["resource"], format!("{ISSUER}{}", shape.endpoint), "{}", shape.name);
    let root = get("/.well-known/oauth-protected-resource").await.expect(200).json();
    for issuer in [&resource["authorization_servers"][0], &root["authorization_servers"][0]] {
        assert_eq!(issuer, ISSUER, "{}", shape.name);
    }
    let server = get("/.well-known/oauth-authorization-server").await.expect(200).json();
    assert_eq!(server["issuer"], ISSUER);
    let endpoint = shape.endpoint;
    for missing in [
        format!("/.well-known/oauth-authorization-server{endpoint}"),
        format!("/.well-known/openid-configuration{endpoint}"),
        "/.well-known/openid-configuration".to_owned(),
        format!("{endpoint}/.well-known/openid-configuration"),
        format!("{endpoint}/.well-known/oauth-authorization-server"),
        format!("{endpoint}/.well-known/oauth-protected-resource"),
    ] {
        assert_eq!(get(&missing).await.status, 404, "{}: {missing}", shape.name);
    }
}

fn is_sse(shape: &Shape) -> bool {
    shape.endpoint.ends_with("/sse")
}

/// Software that the gateway can find.
struct Known<'a> {
    shape: &'a Shape,
    client_id: String,
    secret: Option<String>,
    method: String,
}

async fn introduce<'a>(app: &TestApp, documents: &DocumentServer, shape: &'a Shape) -> Known<'a> {
    let name = shape.name;
    let metadata = match &shape.software {
        Introduction::Publishes(path, metadata) => {
            let keys = documents.put("/oauth/jwks.json", &public_keys());
            let mut metadata = metadata.clone();
            if metadata["token_endpoint_auth_method"] == "private_key_jwt" {
                metadata["jwks_uri"] = json!(keys);
            }
            let method = metadata["token_endpoint_auth_method"].as_str().unwrap().to_owned();
            let client_id = documents.publish(path, 200, metadata);
            return Known { shape, client_id, secret: None, method };
        }
        Introduction::Registers(metadata) => metadata,
    };
    let headers = [("content-type", "application/json"), ("accept", "application/json")];
    let body = metadata.to_string().into();
    let answer = client::request(&app.address, "POST", "/register", &headers, body).await.expect(201);
    assert_eq!(answer.headers["cache-control"], "no-store", "{name}");
    let answer = answer.json();
    let method = answer["token_endpoint_auth_method"].as_str().unwrap().to_owned();
    let asked = metadata["token_endpoint_auth_method"].as_str();
    assert_eq!(method, asked.unwrap_or("client_secret_basic"), "{name}");
    assert_eq!(answer["redirect_uris"], metadata["redirect_uris"], "{name}");
    assert_eq!(answer["client_name"], metadata["client_name"], "{name}");
    let secret = answer["client_secret"].as_str().map(str::to_owned);
    assert_eq!(secret.is_some(), method != "none", "{name}: {answer}");
    let client_id = answer["client_id"].as_str().unwrap().to_owned();
    Known { shape, client_id, secret, method }
}

impl Known<'_> {
    /// Gets a code with the consent of a person, who is not asked again for an https address.
    async fn ask(&self, app: &TestApp, person: &Person, redirect_uri: &str, turn: usize) -> String {
        let (name, challenge) = (self.shape.name, challenge());
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", self.client_id.as_str()),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("redirect_uri", redirect_uri),
            ("state", &self.shape.state),
        ];
        pairs.extend(self.shape.authorize);
        let path = format!("/authorize?{}", self.encoded(&pairs));
        let mut answer = person.open(app, &path).await;
        let is_remembered = turn > 0 && redirect_uri.starts_with("https:");
        assert_eq!(answer.status, if is_remembered { 303 } else { 200 }, "{name}: {}", answer.text());
        if !is_remembered {
            let (query, form_token) = (hidden(&answer, "query"), hidden(&answer, "form_token"));
            let fields = [("query", query.as_str()), ("form_token", &form_token), ("decision", "allow")];
            answer = person.send(app, "/authorize", &fields).await.expect(303);
        }
        // Letter by letter: programs compare it.
        let location = answer.headers["location"].to_str().unwrap();
        assert!(location.starts_with(&format!("{redirect_uri}?code=")), "{name}: {location}");
        assert_eq!(parameter(&answer, "state").as_ref(), Some(&self.shape.state), "{name}");
        assert_eq!(parameter(&answer, "iss").as_deref(), Some(ISSUER), "{name}");
        assert_eq!(redirect(&answer).1.len(), 3, "{name}");
        parameter(&answer, "code").unwrap()
    }

    fn encoded(&self, pairs: &[(&str, &str)]) -> String {
        match self.shape.body {
            Body::Plus => encoded(pairs),
            Body::Percent => encoded(pairs).replace('+', "%20"),
        }
    }

    /// Sends a form to `/token`, with the proof that the software registered.
    async fn token(&self, app: &TestApp, fields: &[(&str, &str)]) -> Answer {
        let media = match self.shape.body {
            Body::Plus => "application/x-www-form-urlencoded",
            Body::Percent => "application/x-www-form-urlencoded;charset=UTF-8",
        };
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let id = self.client_id.as_str();
        let secret = self.secret.as_deref().unwrap_or_default();
        let (basic, assertion);
        let mut headers = vec![("content-type", media), ("accept", "application/json")];
        let mut pairs = fields.to_vec();
        match self.method.as_str() {
            "none" => pairs.push(("client_id", id)),
            "client_secret_post" => pairs.extend([("client_id", id), ("client_secret", secret)]),
            "client_secret_basic" => {
                basic = format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
                headers.push(("authorization", &basic));
            }
            "private_key_jwt" => {
                let claims = json!({ "iss": id, "sub": id, "aud": format!("{ISSUER}/token"), "iat": now,
                    "exp": now + 60, "jti": std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos().to_string() });
                assertion = signed_jwt(&claims);
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                pairs.extend([
                    ("client_id", id),
                    ("client_assertion_type", kind),
                    ("client_assertion", assertion.as_str()),
                ]);
            }
            other => panic!("{other}"),
        }
        let body = self.encoded(&pairs).into();
        client::request(&app.address, "POST", "/token", &headers, body).await
    }

    fn check_tokens(&self, answer: &Answer) {
        let body = answer.json();
        assert_eq!(body["token_type"], "Bearer", "{}", self.shape.name);
        assert_eq!((&body["expires_in"], &body["scope"]), (&json!(3600), &json!("mcp")));
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(answer.headers["cache-control"], "no-store");
    }

    /// Uses a tool with a token.
    async fn work(&self, app: &TestApp, access: &str) {
        let endpoint = self.shape.endpoint;
        let tool = if endpoint.contains("/servers/") { "echo" } else { "s__echo" };
        if is_sse(self.shape) {
            let mut agent = SseAgent::connect_as(app, endpoint, access).await;
            let answer = agent.call(json!(1), tool, json!({"text": "hi"})).await;
            assert!(answer.to_string().contains("hi"), "{}: {answer}", self.shape.name);
        } else {
            let agent = Agent::connect_as(app, endpoint, access).await;
            assert_eq!(agent.call_text(tool, json!({"text": "hi"})).await, "hi", "{}", self.shape.name);
        }
    }

    /// Refreshes from several places at once, loses the answer, and refreshes again.
    async fn renew(&self, app: &TestApp, refresh: &str) {
        let (a, b, c, d) = tokio::join!(
            self.renew_once(app, refresh),
            self.renew_once(app, refresh),
            self.renew_once(app, refresh),
            self.renew_once(app, refresh),
        );
        for (access, successor) in [&a, &b, &c, &d] {
            assert_eq!(*successor, a.1, "{}", self.shape.name);
            assert_ne!(successor, refresh, "{}", self.shape.name);
            self.work(app, access).await;
        }
        assert_eq!(self.renew_once(app, refresh).await.1, a.1, "{}", self.shape.name);
        let (access, next) = self.renew_once(app, &a.1).await;
        assert_ne!(next, a.1, "{}", self.shape.name);
        self.work(app, &access).await;
        // A place that slept until now.
        assert_eq!(self.renew_once(app, refresh).await.1, a.1, "{}", self.shape.name);
    }

    async fn renew_once(&self, app: &TestApp, refresh: &str) -> (String, String) {
        let mut fields = vec![("grant_type", "refresh_token"), ("refresh_token", refresh)];
        fields.extend(self.shape.refresh);
        let answer = self.token(app, &fields).await;
        assert_eq!(answer.status, 200, "{}: {}", self.shape.name, answer.text());
        self.check_tokens(&answer);
        tokens_in(&answer)
    }
}
