//! Initialization of an enterprise gateway, the mode of a database, and `reset-admin` for a lost token.

use model::{Mode, Secret, Token};
use serde_json::json;
use tempfile::TempDir;
use toolgate::config::Config;

use crate::support::process::{Process, command, run};
use crate::support::{TestApp, client};

const ENTERPRISE: [(&str, &str); 2] = [("SERVER_MODE", "enterprise"), ("HOST", "127.0.0.1")];

async fn uninitialized() -> TestApp {
    TestApp::start_with(|config| config.mode = Mode::Enterprise).await
}

#[tokio::test(flavor = "multi_thread")]
async fn initialization_gives_the_admin_token_once() {
    for body in ["", "{}", r#"{"mode":"enterprise"}"#, r#"{"mode":"PRODUCTION"}"#, r#"{"mode":null}"#] {
        let mut app = uninitialized().await;
        for (wrong, word) in [
            (r#"{"mode":"development"}"#, "enterprise"),
            (r#"{"mode":"staging"}"#, "mode"),
            (r#"{"admin":"x"}"#, "admin"),
            ("[]", "object"),
        ] {
            let error = app.send("POST", "/init", &[], wrong).await.expect(400).error();
            assert!(error.contains(word), "{wrong}: {error}");
        }
        let error = app.get("/api/v0/servers").await.expect(403).error();
        assert!(error.contains("server is not initialized"), "{error}");
        let answer = app.send("POST", "/init", &[], body).await.expect(200).json();
        assert_eq!(answer.as_object().unwrap().len(), 2, "{answer}");
        assert!(answer["status"].is_string(), "{answer}");
        let token = answer["admin_access_token"].as_str().unwrap().to_owned();
        assert_eq!(token.len(), 43);
        app.send("POST", "/init", &[], body).await.expect(400).error();
        app.send("POST", "/init", &[], r#"{"mode":"development"}"#).await.expect(400).error();
        let whoami = app.send_as(&token, "GET", "/api/v0/users/whoami", json!({})).await.expect(200).json();
        assert_eq!(whoami, json!({"username": "admin", "role": "admin", "allow_list": ["*"]}));
        app = app.restart().await;
        app.send("POST", "/init", &[], body).await.expect(400).error();
        app.send_as(&token, "GET", "/api/v0/users", json!({})).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_token_for_its_admin_initializes_itself_once() {
    let with = |token: &str| {
        let token = Token::parse(token).unwrap();
        move |config: &mut Config| {
            config.mode = Mode::Enterprise;
            config.sign_in.admin_token = Some(token);
        }
    };
    let app = TestApp::start_with(with("first-token")).await;
    let whoami =
        app.send_as("first-token", "GET", "/api/v0/users/whoami", json!({})).await.expect(200).json();
    assert_eq!((&whoami["username"], &whoami["role"]), (&json!("admin"), &json!("admin")));
    app.post("/init", json!({})).await.expect(400);
    let entries = app.send_as("first-token", "GET", "/api/v0/audit", json!({})).await.expect(200).text();
    assert!(entries.contains("gateway.initialize") && !entries.contains("first-token"), "{entries}");
    // Once it is initialized, the file changes nothing.
    let app = app.restart_with(with("second-token")).await;
    app.send_as("first-token", "GET", "/api/v0/users", json!({})).await.expect(200);
    app.send_as("second-token", "GET", "/api/v0/users", json!({})).await.expect(401);
    let development = |config: &mut Config| {
        with("first-token")(config);
        config.mode = Mode::Development;
    };
    TestApp::start_with(development).await.get("/api/v0/servers").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_initializations_one_gets_the_token() {
    let app = uninitialized().await;
    let tries = (0..8).map(|_| {
        let address = app.address.clone();
        tokio::spawn(async move { client::request(&address, "POST", "/init", &[], Vec::new()).await.status })
    });
    let mut statuses = Vec::new();
    for attempt in tries.collect::<Vec<_>>() {
        statuses.push(attempt.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400, 400, 400, 400, 400, 400, 400]);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_enterprise_mode_hosts_are_not_checked_but_origins_are() {
    let app = TestApp::start_enterprise().await;
    app.send("GET", "/health", &[("host", "gate.example")], "").await.expect(200);
    let foreign = [("host", "gate.example"), ("origin", "https://evil.example")];
    app.send("GET", "/api/v0/tools", &foreign, "").await.expect(403).error();
    let own = [("host", "gate.example"), ("origin", "http://gate.example")];
    app.send("GET", "/api/v0/tools", &own, "").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn until_it_is_initialized_the_host_of_init_is_checked() {
    let app = uninitialized().await;
    let foreign = [("host", "gate.example")];
    app.send("GET", "/health", &foreign, "").await.expect(200);
    let error = app.send("POST", "/init", &foreign, "").await.expect(403).error();
    assert!(error.contains("ALLOWED_HOSTS"), "{error}");
    app.send("POST", "/init", &[("host", "localhost:1")], "").await.expect(200);
    app.send("POST", "/init", &foreign, "").await.expect(400);
    let app = TestApp::start_with(|config| {
        config.mode = Mode::Enterprise;
        config.allowed_hosts = vec!["gate.example".into()];
    })
    .await;
    app.send("POST", "/init", &foreign, "").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn initialization_needs_its_secret_if_there_is_one() {
    for mode in [Mode::Enterprise, Mode::Development] {
        let app = TestApp::start_with(|config| {
            config.mode = mode;
            config.init_secret = Some(Secret::new("open sesame"));
        })
        .await;
        for wrong in [None, Some("Bearer open"), Some("Bearer open sesame!"), Some("Basic open sesame")] {
            let headers: Vec<_> = wrong.map(|value| ("authorization", value)).into_iter().collect();
            let answer = app.send("POST", "/init", &headers, "").await.expect(401);
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
            assert!(answer.error().contains("INIT_SECRET"));
        }
        app.send("POST", "/init", &[("authorization", "bearer open sesame")], "").await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_on_in_enterprise_mode_and_need_no_token() {
    let gateway = Process::start_in(TempDir::new().unwrap(), &ENTERPRISE).await;
    gateway.get("/metrics").await.expect(200);
    gateway.get("/health").await.expect(200);
    gateway.get("/metadata").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_one_mode_does_not_start_in_the_other() {
    let gateway = Process::start_in(TempDir::new().unwrap(), &ENTERPRISE).await;
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    // A database that was never initialized may be used in either mode.
    let gateway = Process::start_in(folder, &[]).await;
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let mut starts = vec![command(folder.path(), &ENTERPRISE)];
    for flag in ["--enterprise", "--prod"] {
        let mut start = command(folder.path(), &[("HOST", "127.0.0.1"), ("SERVER_MODE", "development")]);
        start.arg(flag);
        starts.push(start);
    }
    for start in starts {
        let ended = run(start).await;
        assert!(ended.sentence().contains("initialized in development mode"), "{ended:?}");
    }

    let gateway = Process::start_in(TempDir::new().unwrap(), &ENTERPRISE).await;
    gateway.post("/init", &json!({})).await.expect(200);
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let ended = run(command(folder.path(), &[])).await;
    assert!(ended.sentence().contains("SERVER_MODE=enterprise"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_admin_makes_a_new_token_beside_a_stopped_gateway() {
    let reset = async |folder: &TempDir| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_toolgate"));
        command.arg("reset-admin").current_dir(folder.path()).env_clear();
        run(command).await
    };
    let empty = TempDir::new().unwrap();
    assert!(reset(&empty).await.sentence().contains("toolgate.db"));
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "nothing is made by asking");

    let gateway = Process::start_in(TempDir::new().unwrap(), &ENTERPRISE).await;
    assert!(reset(&gateway.folder).await.sentence().contains("in use"));
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    assert!(reset(&folder).await.sentence().contains("POST /init"));

    let gateway = Process::start_in(folder, &ENTERPRISE).await;
    let lost = gateway.post("/init", &json!({})).await.expect(200).json();
    let lost = format!("Bearer {}", lost["admin_access_token"].as_str().unwrap());
    let as_admin = async |gateway: &Process, authorization: &str, method: &str, path: &str, body: &str| {
        let headers = [("authorization", authorization)];
        client::request(&gateway.address, method, path, &headers, body.into()).await
    };
    // Another user becomes admin, and the first admin loses the role and the name.
    let boss = r#"{"username":"boss","role":"admin","access_token":"the-token-of-the-boss"}"#;
    as_admin(&gateway, &lost, "POST", "/api/v0/users", boss).await.expect(201);
    let demoted = r#"{"role":"user"}"#;
    as_admin(&gateway, "Bearer the-token-of-the-boss", "PUT", "/api/v0/users/admin", demoted)
        .await
        .expect(200);
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;

    let ended = reset(&folder).await;
    assert_eq!((ended.code, ended.stdout.trim().len()), (Some(0), 43), "{ended:?}");
    let found = format!("Bearer {}", ended.stdout.trim());
    let gateway = Process::start_in(folder, &ENTERPRISE).await;
    as_admin(&gateway, &lost, "GET", "/api/v0/users/whoami", "").await.expect(401);
    let whoami = as_admin(&gateway, &found, "GET", "/api/v0/users/whoami", "").await.expect(200).json();
    assert_eq!(whoami, json!({"username": "admin", "role": "admin", "allow_list": ["*"]}));
    as_admin(&gateway, "Bearer the-token-of-the-boss", "GET", "/api/v0/users", "").await.expect(200);
    gateway.signal(libc::SIGTERM);
    let (_, _folder) = gateway.end().await;

    let development = Process::start().await;
    development.signal(libc::SIGTERM);
    let (_, folder) = development.end().await;
    assert!(reset(&folder).await.sentence().contains("development mode"));
}
