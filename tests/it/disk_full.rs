//! A disk that is full for a while: no confirmed change is lost, no refused change appears, and the gateway recovers by
//! itself. The full disk is simulated by a limit on the size of files.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::process::{Process, command, limit_file_size};
use crate::support::{Behaviour, Fake, eventually};

/// A size limit with which any write to a file fails.
const FULL: Option<u64> = Some(1);

async fn is_ready_as(gateway: &Process, status: &str) -> bool {
    gateway.get("/ready").await.expect(200).json() == json!({ "status": status })
}

async fn with_server(fake: &Fake) -> Process {
    let gateway = Process::start().await;
    let input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    gateway
}

fn group(name: &str) -> Value {
    json!({ "name": name, "included_servers": ["web"] })
}

async fn group_names(gateway: &Process) -> Vec<String> {
    let groups = gateway.get("/api/v0/tool-groups").await.expect(200).json();
    groups.as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_full_disk_confirmed_changes_are_kept_and_refused_ones_are_not() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = with_server(&fake).await;
    gateway.post("/api/v0/tool-groups", &group("before")).await.expect(201);
    assert!(is_ready_as(&gateway, "ok").await);

    limit_file_size(gateway.id(), FULL);
    for name in ["refused1", "refused2", "refused3"] {
        let refused = gateway.post("/api/v0/tool-groups", &group(name)).await.expect(503);
        assert!(refused.error().contains("the database cannot be used now"), "{}", refused.error());
        assert_eq!(refused.headers["retry-after"], "1");
    }
    gateway.request("DELETE", "/api/v0/tool-groups/before", &[]).await.expect(503);
    assert!(is_ready_as(&gateway, "degraded").await);
    gateway.get("/health").await.expect(200);
    assert!(!gateway.call("web__pid", json!({})).await.is_empty(), "calls go on");
    let overview = gateway.get("/api/dashboard/overview").await.expect(200).json();
    assert_eq!(overview["status"], "degraded");
    assert!(overview["store_problem"].as_str().unwrap().starts_with("changes cannot be saved"), "{overview}");
    let records_problem =
        async || gateway.get("/api/dashboard/overview").await.expect(200).json()["records_problem"].clone();
    eventually("it says that calls are not recorded", async || {
        records_problem().await.as_str().is_some_and(|told| told.starts_with("calls cannot be recorded"))
    })
    .await;

    limit_file_size(gateway.id(), None);
    eventually("it heals by itself", || is_ready_as(&gateway, "ok")).await;
    eventually("calls are recorded again", async || records_problem().await.is_null()).await;
    assert_eq!(gateway.get("/api/dashboard/overview").await.json()["store_problem"], Value::Null);
    let mut names = vec!["before".to_owned()];
    for number in 10..60 {
        names.push(format!("g{number}"));
        gateway.post("/api/v0/tool-groups", &group(&format!("g{number}"))).await.expect(201);
    }
    gateway.signal(libc::SIGKILL);
    let (_, folder) = gateway.end().await;
    let gateway = Process::start_in(folder, &[]).await;
    assert_eq!(group_names(&gateway).await, names);
    let refused = gateway.get("/api/v0/audit?q=refused").await.expect(200).json();
    assert_eq!(refused["entries"], json!([]), "what was refused is not in the audit");
    let created = gateway.get("/api/v0/audit?action=group.create").await.expect(200).json();
    assert_eq!(created["entries"].as_array().unwrap().len(), names.len());
    let report = gateway.get("/api/v0/audit/verify").await.expect(200).json();
    assert_eq!(report["ok"], true, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_deleted_after_a_full_disk_stays_deleted() {
    let variables = [("SERVER_MODE", "enterprise"), ("HOST", "127.0.0.1")];
    let gateway = Process::start_in(TempDir::new().unwrap(), &variables).await;
    let init = gateway.post("/init", &json!({})).await.expect(200).json();
    let admin = format!("Bearer {}", init["admin_access_token"].as_str().unwrap());
    let as_admin = [("authorization", admin.as_str())];
    let create = json!({ "name": "agent", "allow_list": ["*"], "access_token": "agent-token" });
    gateway.send("POST", "/api/v0/clients", &as_admin, &create).await.expect(201);

    limit_file_size(gateway.id(), FULL);
    for _ in 0..2 {
        gateway.request("DELETE", "/api/v0/clients/agent", &as_admin).await.expect(503);
    }
    limit_file_size(gateway.id(), None);
    eventually("it is deleted", async || {
        gateway.request("DELETE", "/api/v0/clients/agent", &as_admin).await.status == 204
    })
    .await;
    let metrics = gateway.get("/metrics").await.expect(200).text();
    assert!(metrics.contains("toolgate_store_failures_total 1"), "{metrics}");
    assert!(metrics.contains("toolgate_store_writable 1"), "{metrics}");

    gateway.signal(libc::SIGTERM);
    let (code, folder) = gateway.end().await;
    assert_eq!(code, Some(0));
    let gateway = Process::start_in(folder, &variables).await;
    let as_agent = [("authorization", "Bearer agent-token")];
    gateway.send("POST", "/mcp", &as_agent, &json!({})).await.expect(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_on_a_full_disk_and_recovers_when_there_is_space() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = with_server(&fake).await;
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;

    let gateway = Process::start_limited(folder, FULL).await;
    assert!(is_ready_as(&gateway, "degraded").await);
    assert!(!gateway.call("web__pid", json!({})).await.is_empty(), "what is registered works");
    gateway.post("/api/v0/tool-groups", &group("refused")).await.expect(503);
    limit_file_size(gateway.id(), None);
    eventually("it heals by itself", || is_ready_as(&gateway, "ok")).await;
    gateway.post("/api/v0/tool-groups", &group("kept")).await.expect(201);
    gateway.signal(libc::SIGKILL);
    let (_, folder) = gateway.end().await;
    assert_eq!(group_names(&Process::start_in(folder, &[]).await).await, ["kept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_changed_while_the_disk_was_full_are_stored_later() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = with_server(&fake).await;
    limit_file_size(gateway.id(), FULL);
    fake.set_tools(&["later"]);
    fake.notify_tools_changed();
    let is_listed = async |gateway: &Process| {
        gateway.get("/api/v0/tools").await.expect(200).text().contains("web__later")
    };
    eventually("the new list is served", || is_listed(&gateway)).await;
    eventually("it says so", || is_ready_as(&gateway, "degraded")).await;
    limit_file_size(gateway.id(), None);
    eventually("it heals by itself", || is_ready_as(&gateway, "ok")).await;
    drop(fake);
    gateway.signal(libc::SIGKILL);
    let (_, folder) = gateway.end().await;
    assert!(is_listed(&Process::start_in(folder, &[]).await).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_written_ends_no_request() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = Process::start_with_log_file().await;
    let input = json!({ "name": "web", "transport": "streamable_http", "url": fake.url() });
    gateway.post("/api/v0/servers", &input).await.expect(201);
    limit_file_size(gateway.id(), FULL);
    gateway.post("/api/v0/tool-groups", &group("refused")).await.expect(503).error();
    assert!(!gateway.call("web__pid", json!({})).await.is_empty());
    assert!(is_ready_as(&gateway, "degraded").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_stops_the_gateway_gracefully() {
    let gateway = Process::start_noticing_hangups().await;
    gateway.signal(libc::SIGHUP);
    assert_eq!(gateway.end().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_started_with_nohup_ignores_sighup() {
    let gateway = Process::start_ignoring_hangups().await;
    gateway.signal(libc::SIGHUP);
    gateway.get("/health").await.expect(200);
    gateway.signal(libc::SIGTERM);
    assert_eq!(gateway.end().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_key_file_without_a_database_is_filled() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("toolgate.key"), "").unwrap();
    let gateway = Process::start_in(folder, &[]).await;
    let key = std::fs::read_to_string(gateway.folder.path().join("toolgate.key")).unwrap();
    assert_eq!(key.trim().len(), 64);
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    std::fs::write(folder.path().join("toolgate.key"), "\n").unwrap();
    let ended = crate::support::process::run(command(folder.path(), &[])).await;
    assert!(ended.sentence().contains("toolgate.key is empty"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_database_says_what_is_wrong_and_what_to_do() {
    let fake = Fake::start(Behaviour::default()).await;
    let gateway = with_server(&fake).await;
    gateway.signal(libc::SIGTERM);
    let (_, folder) = gateway.end().await;
    let path = folder.path().join("toolgate.db");
    let whole = std::fs::read(&path).unwrap();
    // Every page except the first, whose header identifies the file as a database.
    let mut damaged = whole.clone();
    damaged[4096..].fill(0xa5);
    std::fs::write(&path, &damaged).unwrap();
    let ended = crate::support::process::run(command(folder.path(), &[])).await;
    assert!(
        ended.sentence().contains("is damaged") && ended.sentence().contains("toolgate check"),
        "{ended:?}"
    );
}
