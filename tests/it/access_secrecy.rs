//! Tokens never appear in a log, an error or a file of the database, however they are used, misused or replaced.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Events;
use crate::support::process::Process;
use crate::support::{Answer, Behaviour, Fake, client, eventually};

/// Each is unique, so that finding it means it leaked.
const USER: &str = "planted-quokka-of-a-user";
const USER_LATER: &str = "planted-narwhal-of-a-user";
const CLIENT: &str = "planted-okapi-of-a-client";
const CLIENT_LATER: &str = "planted-axolotl-of-a-client";
const WRONG: &str = "planted-dugong-of-nobody";
const MALFORMED: &str = "planted tapir";

async fn send(gateway: &Process, method: &str, path: &str, token: &str, body: Value) -> Answer {
    let authorization = format!("Bearer {token}");
    let headers =
        [("authorization", authorization.as_str()), ("accept", "application/json, text/event-stream")];
    client::request(&gateway.address, method, path, &headers, body.to_string().into()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_show_only_where_they_are_given_out() {
    let fake = Fake::start(Behaviour::default()).await;
    let variables = [("SERVER_MODE", "enterprise"), ("HOST", "127.0.0.1"), ("RUST_LOG", "trace")];
    let gateway = Process::start_in(TempDir::new().unwrap(), &variables).await;
    let admin = gateway.post("/init", &json!({})).await.expect(200).json();
    let admin = admin["admin_access_token"].as_str().unwrap().to_owned();
    let as_admin =
        async |method: &str, path: &str, body: Value| send(&gateway, method, path, &admin, body).await;
    let server = json!({"name": "s", "transport": "streamable_http", "url": fake.url()});
    as_admin("POST", "/api/v0/servers", server).await.expect(201);

    let user = json!({"username": "ada", "access_token": USER});
    as_admin("POST", "/api/v0/users", user.clone()).await.expect(201);
    let agent = json!({"name": "agent", "access_token": CLIENT, "allow_list": ["*"]});
    as_admin("POST", "/api/v0/clients", agent.clone()).await.expect(201);
    let made = as_admin("POST", "/api/v0/clients", json!({"name": "made"})).await.expect(201).json();
    let made = made["access_token"].as_str().unwrap().to_owned();

    // Responses that must not contain a token, for good and bad requests.
    let mut said = Vec::new();
    said.push(as_admin("POST", "/api/v0/users", user).await.expect(409).text());
    said.push(
        as_admin("POST", "/api/v0/clients", json!({"name": "x", "access_token": CLIENT}))
            .await
            .expect(409)
            .text(),
    );
    said.push(
        as_admin("POST", "/api/v0/users", json!({"username": "x", "access_token": MALFORMED}))
            .await
            .expect(400)
            .text(),
    );
    said.push(
        as_admin("PUT", "/api/v0/clients/agent", json!({"access_token": [WRONG]})).await.expect(400).text(),
    );
    said.push(as_admin("GET", "/api/v0/users", json!({})).await.expect(200).text());
    said.push(send(&gateway, "GET", "/api/v0/users/whoami", USER, json!({})).await.expect(200).text());
    said.push(send(&gateway, "GET", "/api/v0/clients", USER, json!({})).await.expect(403).text());
    for (path, token) in
        [("/api/v0/tools", WRONG), ("/api/v0/tools", CLIENT), ("/mcp", USER), ("/mcp", WRONG)]
    {
        said.push(send(&gateway, "POST", path, token, json!({})).await.expect(401).text());
    }
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "s__headers", "arguments": {}}});
    let answer = send(&gateway, "POST", "/mcp", CLIENT, call).await.expect(200);
    said.push(format!("{:?} {}", answer.headers, answer.text()));
    let invoked = send(&gateway, "POST", "/api/v0/tools/invoke", USER, json!({"name": "s__headers"})).await;
    said.push(invoked.expect(200).text());
    said.push(gateway.get("/metrics").await.expect(200).text());
    said.push(
        serde_json::to_string(&fake.seen().iter().map(|seen| seen.params.clone()).collect::<Vec<_>>())
            .unwrap(),
    );

    // A stream is open while its token is replaced.
    let authorization = format!("Bearer {CLIENT}");
    let headers = [("authorization", authorization.as_str()), ("accept", "text/event-stream")];
    let mut stream = Events::new(client::open(&gateway.address, "GET", "/sse", &headers, Vec::new()).await);
    let endpoint = stream.next().await.unwrap();
    said.push(String::from_utf8(endpoint.data.to_vec()).unwrap());
    as_admin("PUT", "/api/v0/clients/agent", json!({"access_token": CLIENT_LATER})).await.expect(200);
    as_admin("PUT", "/api/v0/users/ada", json!({"access_token": USER_LATER})).await.expect(200);
    assert!(stream.next().await.is_none());
    send(&gateway, "GET", "/api/v0/tools", USER_LATER, json!({})).await.expect(200);
    said.push(send(&gateway, "GET", "/api/v0/tools", USER, json!({})).await.expect(401).text());

    let planted =
        [USER, USER_LATER, CLIENT, CLIENT_LATER, WRONG, MALFORMED, "quokka", "tapir", &admin, &made];
    let clean = |place: &str, text: &str| {
        for token in planted {
            assert!(!text.contains(token), "{token:?} is in {place}: {text}");
        }
    };
    for text in &said {
        clean("an answer", text);
    }
    eventually("the log tells of the last change", async || {
        gateway.log.lock().unwrap().contains("changed a user")
    })
    .await;
    let log = gateway.log.lock().unwrap().clone();
    assert!(log.contains("\"level\":\"debug\"") && log.contains("created a client"), "the log is talkative");
    clean("the log", &log);
    let files_are_clean = |folder: &std::path::Path| {
        for file in std::fs::read_dir(folder).unwrap().flatten() {
            let content = std::fs::read(file.path()).unwrap();
            clean(&file.path().display().to_string(), &String::from_utf8_lossy(&content));
        }
    };
    files_are_clean(gateway.folder.path());
    gateway.signal(libc::SIGTERM);
    let (code, folder) = gateway.end().await;
    assert_eq!(code, Some(0));
    files_are_clean(folder.path());
}
