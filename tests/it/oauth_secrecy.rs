//! Codes, tokens, verifiers and client secrets never appear in a response, a page, a log of any level, or a file.

use serde_json::json;
use tempfile::TempDir;

use crate::oauth_register::protected;
use crate::support::provider::Rules;
use crate::support::{Answer, Process, eventually};

/// The prefixes of all secrets that the provider issues, and the secrets of the test itself.
const PLANTED: [&str; 5] = [
    "planted-code-",
    "planted-access-token-",
    "planted-refresh-token-",
    "planted-client-secret-",
    "planted-by-hand",
];

#[track_caller]
fn assert_clean(place: &str, text: &str) {
    for secret in PLANTED {
        assert!(!text.contains(secret), "{secret:?} is in {place}: {text}");
    }
}

fn clean(place: &str, answer: Answer) -> Answer {
    assert_clean(place, &answer.text());
    assert_clean(place, &format!("{:?}", answer.headers));
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_secrets_never_appear_anywhere() {
    let talkative =
        [("RUST_LOG", "trace,rmcp=trace,rmcp::transport::auth=trace,oauth2=trace,reqwest=trace,hyper=trace")];
    let process = Process::start_in(TempDir::new().unwrap(), &talkative).await;
    let (fake, provider) = protected(Rules { gives_secrets: true, ..Rules::default() }).await;
    let input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
    let answer = clean("the answer", process.post("/api/dashboard/servers", &input).await).expect(202).json();
    let session = answer["authorization_required"].clone();
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    let (code, state) = (brought["code"].as_str().unwrap(), brought["state"].as_str().unwrap());
    let callback = format!("/api/dashboard/oauth/callback?code={code}&state={state}");
    clean("the page", process.get(&callback).await).expect(200);
    clean("the page", process.get(&callback).await).expect(400);
    let poll = format!("/api/dashboard/oauth/session/{}", session["session_id"].as_str().unwrap());
    clean("the session", process.get(&poll).await).expect(200);
    let call = json!({ "name": "web__echo", "text": "hi" });
    clean("the result", process.post("/api/v0/tools/invoke", &call).await).expect(200);

    // The token is refreshed, then refused by a server that repeats it in its error, then the grant ends.
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    clean("the result", process.post("/api/v0/tools/invoke", &call).await).expect(200);
    fake.update(|behaviour| behaviour.repeats_tokens = true);
    provider.change(|rules| rules.token_failure = Some(500));
    fake.update(|behaviour| behaviour.bearer = Some("the old one is over".into()));
    clean("the error", process.post("/api/v0/tools/invoke", &call).await).expect(500);
    provider.change(|rules| (rules.token_failure, rules.revoked) = (None, true));
    eventually("the grant is over", || async {
        let error = clean("the error", process.post("/api/v0/tools/invoke", &call).await).expect(500).error();
        error.contains("authorization required")
    })
    .await;
    for path in ["/api/v0/servers", "/api/v0/server_configs", "/api/v0/servers/web"] {
        clean(path, process.get(path).await).expect(200);
    }

    // A client registered by hand, whose secret the provider refuses.
    provider.change(|rules| rules.revoked = false);
    let mut by_hand = input.clone();
    by_hand["name"] = json!("hand");
    by_hand["oauth_client_id"] = json!("by-hand");
    by_hand["oauth_client_secret"] = json!("planted-by-hand");
    by_hand["oauth_redirect_uri"] = json!("http://localhost:9/cb");
    let answer = clean("the answer", process.post("/api/v0/servers", &by_hand).await).expect(202).json();
    let session = answer["authorization_required"].clone();
    let id = session["session_id"].as_str().unwrap();
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    let mut wrong = brought.clone();
    wrong["code"] = json!("planted-code-that-is-wrong");
    let complete = format!("/api/v0/upstream_oauth/sessions/{id}/complete");
    clean("the error", process.post(&complete, &wrong).await).expect(500);

    let log = process.log.lock().unwrap().clone();
    assert!(
        log.contains("\"level\":\"trace\"") && log.contains("renewed an access token"),
        "the log is talkative: {log}"
    );
    assert_clean("the log", &log);
    assert!(!log.contains(state), "the state is in the log");
    let mut files = 0;
    for file in std::fs::read_dir(process.folder.path()).unwrap().flatten() {
        let bytes = std::fs::read(file.path()).unwrap();
        assert_clean(&file.path().display().to_string(), &String::from_utf8_lossy(&bytes));
        files += 1;
    }
    assert!(files >= 3, "the database has its files");
}
