//! What one gateway changes, the others show.

use serde_json::json;

use super::support::cli::Cli;
use super::support::fake::{Behaviour, Fake};
use super::support::{TestApp, eventually};
use super::{enterprise_pair, epoch, get_since, pair};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_everywhere_and_gone_everywhere() {
    let (first, second) = pair().await;
    let fake = Fake::start(Behaviour::default()).await;
    let input = json!({ "name": "up", "transport": "streamable_http", "url": fake.url() });
    let made = first.post("/api/v0/servers", input).await.expect(201);
    get_since(&second, &epoch(&made), "/api/v0/servers/up").await.expect(200);
    assert_eq!(second.call("up__echo", json!({ "text": "hi" })).await, "hi");
    let removed = second.delete("/api/v0/servers/up").await;
    assert!(removed.status < 300, "{removed:?}");
    get_since(&first, &epoch(&removed), "/api/v0/servers/up").await.expect(404);
    first.invoke("up__echo", json!({ "text": "hi" })).await.expect(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_and_groups_count_everywhere_without_being_asked_for() {
    let (first, second) = pair().await;
    let fake = Fake::start(Behaviour::default()).await;
    first.register_http("up", &fake).await;
    first
        .post("/api/v0/tool-groups", json!({ "name": "team", "included_tools": ["up__echo"] }))
        .await
        .expect(201);
    first.post("/api/v0/tools/disable?entity=up__echo", json!({})).await.expect(200);
    let is_enabled = async |app: &TestApp| {
        let tools = app.get("/api/v0/tools").await.expect(200).json();
        tools.as_array().unwrap().iter().any(|tool| tool["name"] == "up__echo" && tool["enabled"] == true)
    };
    eventually("the tool is disabled on the other gateway", || async {
        !is_enabled(&second).await && second.get("/api/v0/tool-groups/team").await.status == 200
    })
    .await;
    second.post("/api/v0/tools/enable?entity=up__echo", json!({})).await.expect(200);
    eventually("the tool is enabled again", || is_enabled(&first)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_registrations_of_one_name_one_is_stored() {
    let (first, second) = pair().await;
    let (one, other) = (Fake::start(Behaviour::default()).await, Fake::start(Behaviour::default()).await);
    let register = async |app: &TestApp, fake: &Fake| {
        let input = json!({ "name": "up", "transport": "streamable_http", "url": fake.url() });
        app.post("/api/v0/servers", input).await
    };
    let (here, there) = tokio::join!(register(&first, &one), register(&second, &other));
    let mut statuses = [here.status, there.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409], "{here:?} {there:?}");
    let stored = if here.status == 201 { &one } else { &other };
    for (count, app) in [(1, &first), (2, &second)] {
        eventually("the server is known", || async { app.get("/api/v0/servers/up").await.status == 200 })
            .await;
        app.call("up__echo", json!({ "text": "hi" })).await;
        assert_eq!(stored.calls_of("echo"), count, "both call the one that was stored");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_different_fields_at_once_are_both_kept_or_one_is_refused() {
    let (first, second) = pair().await;
    let fake = Fake::start(Behaviour::default()).await;
    first.register_http("up", &fake).await;
    eventually("the server is known", || async { second.get("/api/v0/servers/up").await.status == 200 })
        .await;
    for round in 0..5 {
        let description = format!("round {round}");
        let (here, there) = tokio::join!(
            first.patch("/api/v0/servers/up", json!({ "description": description })),
            second.patch("/api/v0/servers/up", json!({ "timeout_ms": 1000 + round })),
        );
        assert!(
            [200, 409].contains(&here.status) && [200, 409].contains(&there.status),
            "{here:?} {there:?}"
        );
        let last = [&here, &there].into_iter().filter(|answer| answer.status == 200).map(epoch);
        let last = last.max_by_key(|epoch| epoch.parse::<i64>().unwrap()).expect("one of them is stored");
        for app in [&first, &second] {
            let shown = get_since(app, &last, "/api/v0/servers/up").await.expect(200).json();
            assert!(here.status != 200 || shown["description"] == json!(description), "{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_cannot_be_reached_or_read_is_an_error() {
    let (first, _second) = pair().await;
    let late = get_since(&first, "999999999", "/api/v0/servers").await.expect(503);
    assert!(late.headers.contains_key("retry-after"), "{late:?}");
    for wrong in ["soon", "-1", "1.5", "", "99999999999999999999999"] {
        let error = get_since(&first, wrong, "/api/v0/servers").await.expect(400).error();
        assert!(error.contains("X-Toolgate-Min-Epoch"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_waits_for_the_change_of_the_command_before_it() {
    let (first, second) = enterprise_pair().await;
    let (here, there) = (Cli::new(&first.address), Cli::new(&second.address));
    let token = first.authorization.as_deref().unwrap().trim_start_matches("Bearer ");
    let token = [("TOOLGATE_TOKEN", token)];
    let create = async |name| {
        let created = here.run_with(&["create", "user", name], &token).await;
        assert_eq!(created.code, Some(0), "{created:?}");
    };
    create("one").await;
    let mut entries: serde_json::Value = serde_json::from_str(&here.read(".toolgate.epochs")).unwrap();
    entries[0]["registry"] = json!(format!("{}/", there.registry));
    entries[0]["epoch"] = json!(entries[0]["epoch"].as_u64().unwrap() + 1);
    there.write(".toolgate.epochs", &entries.to_string());
    let (listed, ()) = tokio::join!(there.run_with(&["list", "users"], &token), create("two"));
    assert!(listed.code == Some(0) && listed.stdout.contains("two"), "{listed:?}");
}
