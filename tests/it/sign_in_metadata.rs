//! The metadata documents of the authorization server and of the MCP endpoints, and the challenges that lead to them.

use serde_json::json;
use toolgate::config::JwtSettings;

use crate::support::person::ISSUER;
use crate::support::{Answer, TestApp, client};

const DOCUMENT: &str = "/.well-known/oauth-protected-resource";

async fn challenge(app: &TestApp, path: &str, headers: &[(&str, &str)]) -> String {
    let answer = client::request(&app.address, "POST", path, headers, b"{}".to_vec()).await.expect(401);
    answer.error();
    answer.headers["www-authenticate"].to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_name_endpoints_and_issuer() {
    let app = TestApp::start_with_sign_in().await;
    let anonymous = async |path: &str| client::request(&app.address, "GET", path, &[], Vec::new()).await;
    for path in ["", "/mcp", "/sse", "/v0/groups/any/mcp", "/v0/groups/any/sse", "/v0/servers/any/mcp"] {
        let document = anonymous(&format!("{DOCUMENT}{path}")).await.expect(200).json();
        assert_eq!(document["resource"], format!("{ISSUER}{path}"));
        assert_eq!(document["authorization_servers"], json!([ISSUER]));
        assert_eq!(document["scopes_supported"], json!(["mcp"]));
        assert_eq!(document["bearer_methods_supported"], json!(["header"]));
        assert!(document["resource_name"].is_string());
    }
    for path in ["/message", "/v0/groups/a/message", "/v0/servers/a__b/mcp", "/v0/servers/a/sse", "/x", "/"] {
        anonymous(&format!("{DOCUMENT}{path}")).await.expect(404).error();
    }
    let server = anonymous("/.well-known/oauth-authorization-server").await.expect(200).json();
    for (key, value) in [
        ("issuer", json!(ISSUER)),
        ("authorization_endpoint", json!(format!("{ISSUER}/authorize"))),
        ("token_endpoint", json!(format!("{ISSUER}/token"))),
        ("registration_endpoint", json!(format!("{ISSUER}/register"))),
        ("revocation_endpoint", json!(format!("{ISSUER}/revoke"))),
        ("response_types_supported", json!(["code"])),
        ("grant_types_supported", json!(["authorization_code", "refresh_token"])),
        ("code_challenge_methods_supported", json!(["S256"])),
        (
            "token_endpoint_auth_methods_supported",
            json!(["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]),
        ),
        ("client_id_metadata_document_supported", json!(true)),
        ("authorization_response_iss_parameter_supported", json!(true)),
        ("scopes_supported", json!(["mcp", "offline_access"])),
    ] {
        assert_eq!(server[key], value, "{key}");
    }
    assert!(server["token_endpoint_auth_signing_alg_values_supported"].is_array());
    for path in ["/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/mcp"] {
        anonymous(path).await.expect(404).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_401_at_an_mcp_endpoint_leads_to_its_document() {
    let app = TestApp::start_with_sign_in().await;
    let plain = |path: &str| format!("Bearer resource_metadata=\"{ISSUER}{DOCUMENT}{path}\", scope=\"mcp\"");
    // A request of a browser does not take the short way through the gateway.
    for origin in [&[][..], &[("origin", ISSUER)]] {
        for (path, documented) in [
            ("/mcp", "/mcp"),
            ("/sse", "/sse"),
            ("/message", "/sse"),
            ("/v0/groups/g/mcp", "/v0/groups/g/mcp"),
            ("/v0/groups/g/message", "/v0/groups/g/sse"),
            ("/v0/servers/s/mcp", "/v0/servers/s/mcp"),
            ("/v0/servers/a__b/mcp", ""),
        ] {
            assert_eq!(challenge(&app, path, origin).await, plain(documented), "{path}");
            let wrong: Vec<_> =
                origin.iter().copied().chain([("authorization", "Bearer wrong-token")]).collect();
            let expected = format!("{}, error=\"invalid_token\"", plain(documented));
            assert_eq!(challenge(&app, path, &wrong).await, expected, "{path}");
        }
        let basic: Vec<_> = origin.iter().copied().chain([("authorization", "Basic eDp5")]).collect();
        assert_eq!(challenge(&app, "/mcp", &basic).await, plain("/mcp"));
    }
    let rest = client::request(&app.address, "GET", "/api/v0/tools", &[], Vec::new()).await.expect(401);
    assert_eq!(rest.headers["www-authenticate"], "Bearer");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_every_origin_may_read_the_metadata_and_get_tokens() {
    let app = TestApp::start_with_sign_in().await;
    let foreign = ("origin", "https://agent.example");
    let ask = async |method: &str, path: &str, more: &[(&str, &str)]| -> Answer {
        let headers: Vec<_> =
            more.iter().copied().chain([foreign, ("sec-fetch-site", "cross-site")]).collect();
        client::request(&app.address, method, path, &headers, b"{}".to_vec()).await
    };
    let document = format!("{DOCUMENT}/mcp");
    for (method, path) in [
        ("GET", document.as_str()),
        ("GET", DOCUMENT),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("POST", "/register"),
        ("POST", "/token"),
    ] {
        let answer = ask(method, path, &[]).await;
        assert_ne!(answer.status, 403, "{path}");
        assert_eq!(answer.headers["access-control-allow-origin"], "*", "{path}");
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
        let asked = [
            ("access-control-request-method", method),
            ("access-control-request-headers", "content-type, mcp-protocol-version"),
        ];
        let preflight = ask("OPTIONS", path, &asked).await.expect(204);
        assert_eq!(preflight.headers["access-control-allow-headers"], "content-type, mcp-protocol-version");
        assert_eq!(preflight.headers["access-control-allow-origin"], "*");
    }
    for path in ["/revoke", "/login", "/authorize", "/logout", "/api/v0/tools", "/mcp"] {
        ask("POST", path, &[]).await.expect(403).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_public_url_and_in_development_mode_nobody_can_sign_in() {
    let enterprise = TestApp::start_enterprise().await;
    let development = TestApp::start_with(|config| config.public_url = Some(ISSUER.parse().unwrap())).await;
    for app in [&enterprise, &development] {
        for (method, path) in [
            ("GET", DOCUMENT),
            ("GET", "/.well-known/oauth-protected-resource/mcp"),
            ("GET", "/.well-known/oauth-authorization-server"),
            ("POST", "/register"),
            ("POST", "/token"),
            ("POST", "/revoke"),
            ("GET", "/authorize"),
            ("POST", "/authorize"),
            ("GET", "/login"),
            ("POST", "/login"),
            ("POST", "/logout"),
        ] {
            client::request(&app.address, method, path, &[], Vec::new()).await.expect(404).error();
        }
    }
    assert_eq!(challenge(&enterprise, "/mcp", &[]).await, "Bearer");
}

#[tokio::test(flavor = "multi_thread")]
async fn before_initialization_everything_is_403() {
    let app = TestApp::start_with(|config| {
        config.mode = model::Mode::Enterprise;
        config.public_url = Some(ISSUER.parse().unwrap());
    })
    .await;
    for (method, path) in [
        ("GET", DOCUMENT),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("POST", "/register"),
        ("POST", "/token"),
        ("GET", "/authorize"),
        ("GET", "/login"),
        ("POST", "/login"),
        // Wrong methods.
        ("PUT", "/token"),
        ("GET", "/register"),
        ("DELETE", "/login"),
        ("POST", "/.well-known/oauth-authorization-server"),
        ("POST", "/.well-known/oauth-protected-resource/mcp"),
    ] {
        app.send(method, path, &[], "").await.expect(403).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_in_can_be_switched_off() {
    let app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some(ISSUER.parse().unwrap());
        config.sign_in.is_on = false;
    })
    .await;
    for path in [DOCUMENT, "/.well-known/oauth-authorization-server", "/login", "/authorize"] {
        app.get(path).await.expect(404).error();
    }
    assert_eq!(challenge(&app, "/mcp", &[]).await, "Bearer");
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_can_be_closed() {
    let app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some(ISSUER.parse().unwrap());
        config.sign_in.registration_is_open = false;
    })
    .await;
    let server = app.get("/.well-known/oauth-authorization-server").await.expect(200).json();
    assert!(server.get("registration_endpoint").is_none() && server["token_endpoint"].is_string());
    let metadata = json!({ "redirect_uris": ["https://agent.example/cb"] });
    app.post("/register", metadata).await.expect(404).error();
    app.get("/register").await.expect(404).error();
    app.get("/token").await.expect(405).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_an_external_issuer_the_gateway_issues_no_tokens() {
    let issuer = "https://login.example.com/tenant";
    let app = TestApp::start_enterprise_with(|config| {
        config.public_url = Some(ISSUER.parse().unwrap());
        config.sign_in.jwt = Some(JwtSettings { issuer: issuer.to_owned(), audience: None });
    })
    .await;
    let document = app.get("/.well-known/oauth-protected-resource/mcp").await.expect(200).json();
    assert_eq!(document["authorization_servers"], json!([issuer]));
    assert_eq!(document["resource"], format!("{ISSUER}/mcp"));
    for (method, path) in [
        ("GET", "/authorize"),
        ("POST", "/authorize"),
        ("POST", "/token"),
        ("POST", "/register"),
        ("POST", "/revoke"),
        ("GET", "/.well-known/oauth-authorization-server"),
        ("GET", "/token"),
        ("GET", "/register"),
        ("PUT", "/authorize"),
        ("DELETE", "/.well-known/oauth-authorization-server"),
    ] {
        app.send(method, path, &[], "").await.expect(404).error();
    }
    app.get("/login").await.expect(200);
    assert!(challenge(&app, "/mcp", &[]).await.contains(DOCUMENT));
}
