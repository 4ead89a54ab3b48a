//! Every change has one entry in the audit, whatever door it came through, in the same transaction; and what strangers
//! cause is summed.

use std::time::Duration;

use serde_json::{Value, json};
use url::Url;

use crate::oauth_register::{complete, input, protected};
use crate::support::provider::Rules;
use crate::support::{Answer, Behaviour, Fake, TestApp, client};

/// The entries that fit a query, newest first.
async fn entries(app: &TestApp, query: &str) -> Vec<Value> {
    let answer = app.get(&format!("/api/v0/audit?limit=1000&{query}")).await.expect(200).json();
    answer["entries"].as_array().unwrap().clone()
}

/// The only entry that was added to those that are known.
async fn added(app: &TestApp, known: &mut usize, context: &str) -> Value {
    let mut all = entries(app, "").await;
    assert_eq!(all.len(), *known + 1, "{context}: {all:?}");
    *known += 1;
    all.swap_remove(0)
}

async fn verified(app: &TestApp) -> Value {
    let report = app.get("/api/v0/audit/verify").await.expect(200).json();
    assert_eq!(report["ok"], true, "{report}");
    report
}

/// A server that is registered although nobody listens there.
fn unreachable(name: &str) -> Value {
    json!({ "name": name, "transport": "streamable_http", "url": "http://127.0.0.1:1/mcp", "keep_failed": true })
}

/// Sums are written only when the gateway stops.
fn summing_late(config: &mut toolgate::config::Config) {
    config.auditing.summing = Duration::from_secs(100_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_over_rest_is_one_entry_with_its_actor() {
    let app = TestApp::start_enterprise_with(summing_late).await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let mut known = 0;
    let first = added(&app, &mut known, "init").await;
    assert_eq!(
        (&first["action"], &first["actor"]["kind"]),
        (&json!("gateway.initialize"), &json!("anonymous"))
    );
    assert_eq!(first["after"]["username"], "admin");
    let server = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
    let group = json!({ "name": "g", "included_servers": ["s"] });
    let changes = [
        ("POST", "/api/v0/servers", server.clone(), "server.register", "s"),
        ("PATCH", "/api/v0/servers/s", json!({ "description": "new" }), "server.update", "s"),
        ("POST", "/api/v0/servers?force=true", server, "server.replace", "s"),
        ("POST", "/api/v0/servers/s/disable", json!({}), "server.disable", "s"),
        ("POST", "/api/v0/servers/s/enable", json!({}), "server.enable", "s"),
        ("POST", "/api/v0/tools/disable?entity=s__echo", json!({}), "tool.disable", "s__echo"),
        ("POST", "/api/v0/tools/enable?entity=s__echo", json!({}), "tool.enable", "s__echo"),
        ("POST", "/api/v0/tools/disable", json!({ "entity": "s" }), "tool.disable", "s"),
        ("POST", "/api/v0/tools/enable", json!({ "entity": "s" }), "tool.enable", "s"),
        ("POST", "/api/v0/prompts/disable?entity=s", json!({}), "prompt.disable", "s"),
        ("POST", "/api/v0/prompts/enable?entity=s", json!({}), "prompt.enable", "s"),
        ("POST", "/api/v0/tool-groups", group.clone(), "group.create", "g"),
        ("PUT", "/api/v0/tool-groups/g", json!({ "included_tools": ["s__echo"] }), "group.update", "g"),
        ("DELETE", "/api/v0/tool-groups/g", json!({}), "group.delete", "g"),
        ("POST", "/api/v0/clients", json!({ "name": "c", "allow_list": ["s"] }), "client.create", "c"),
        ("PUT", "/api/v0/clients/c", json!({ "access_token": "planted-token" }), "client.update", "c"),
        ("DELETE", "/api/v0/clients/c", json!({}), "client.delete", "c"),
        ("POST", "/api/v0/users", json!({ "username": "u", "role": "user" }), "user.create", "u"),
        ("PUT", "/api/v0/users/u", json!({ "role": "admin", "username": "v" }), "user.update", "u"),
        ("DELETE", "/api/v0/users/v", json!({}), "user.delete", "v"),
        ("DELETE", "/api/v0/servers/s", json!({}), "server.deregister", "s"),
    ];
    for (method, path, body, action, target) in changes {
        let context = format!("{method} {path}");
        let answer = app.send(method, path, &[], body.to_string()).await;
        assert!((200..300).contains(&answer.status), "{context}: {} {}", answer.status, answer.text());
        let entry = added(&app, &mut known, &context).await;
        assert_eq!(
            (&entry["action"], &entry["target"]),
            (&json!(action), &json!(target)),
            "{context}: {entry}"
        );
        assert_eq!(entry["actor"], json!({ "kind": "user", "name": "admin" }), "{context}");
        assert_eq!((&entry["outcome"], &entry["count"]), (&json!("ok"), &json!(1)), "{context}");
        assert_eq!(entry["address"], "127.0.0.1", "{context}");
        let verb = action.split_once('.').unwrap().1;
        let is_new = ["register", "create"].contains(&verb);
        let is_gone = ["deregister", "delete"].contains(&verb);
        assert_eq!(entry["after"].is_null(), is_gone, "{context}: {entry}");
        let many = target == "s" && !action.starts_with("server");
        assert_eq!(entry["before"].is_null(), is_new || many, "{context}: {entry}");
        assert!(!entry.to_string().contains("planted"), "{context}: {entry}");
    }
    let entry = &entries(&app, "action=server.update").await[0];
    assert_eq!(
        (&entry["before"]["description"], &entry["after"]["description"]),
        (&json!(""), &json!("new"))
    );
    assert_eq!(
        entries(&app, "action=client.update").await[0]["after"]["changed_secrets"],
        json!(["access_token"])
    );
    assert_eq!(entries(&app, "action=user&target=u").await.len(), 2);
    let names = &entries(&app, "action=tool.disable&target=s").await[0]["after"]["names"];
    assert!(names.as_array().unwrap().contains(&json!("echo")), "{names}");
    assert_eq!(verified(&app).await["entries"], known);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_over_the_dashboard_is_one_entry() {
    let app = TestApp::start_with(summing_late).await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    let server = json!({ "name": "s", "transport": "streamable_http", "url": fake.url() });
    let import = json!({ "mcpServers": { "i": { "type": "http", "url": fake.url() } } }).to_string();
    let off = json!({ "enabled": false });
    let on = json!({ "enabled": true });
    let prompt = fake_prompt(&fake).await;
    let changes = [
        ("POST", "/api/dashboard/servers".to_owned(), server, "server.register"),
        ("PATCH", "/api/dashboard/servers/s".to_owned(), json!({ "description": "new" }), "server.update"),
        ("PATCH", "/api/dashboard/servers/s/enabled".to_owned(), off.clone(), "server.disable"),
        ("PATCH", "/api/dashboard/servers/s/enabled".to_owned(), on, "server.enable"),
        ("PATCH", "/api/dashboard/tools/s__echo/enabled".to_owned(), off.clone(), "tool.disable"),
        ("PATCH", format!("/api/dashboard/prompts/s__{prompt}/enabled"), off, "prompt.disable"),
        (
            "POST",
            "/api/dashboard/tool-groups".to_owned(),
            json!({ "name": "g", "tools": ["s__echo"] }),
            "group.create",
        ),
        (
            "PUT",
            "/api/dashboard/tool-groups/g".to_owned(),
            json!({ "included_servers": ["s"] }),
            "group.update",
        ),
        ("DELETE", "/api/dashboard/tool-groups/g".to_owned(), json!({}), "group.delete"),
        (
            "POST",
            "/api/dashboard/import".to_owned(),
            json!({ "text": import, "names": ["i"] }),
            "server.register",
        ),
        ("DELETE", "/api/dashboard/servers/s".to_owned(), json!({}), "server.deregister"),
    ];
    let mut known = 0;
    for (method, path, body, action) in changes {
        let context = format!("{method} {path}");
        let answer = app.send(method, &path, &[], body.to_string()).await;
        assert!((200..300).contains(&answer.status), "{context}: {} {}", answer.status, answer.text());
        let entry = added(&app, &mut known, &context).await;
        assert_eq!(entry["action"], action, "{context}: {entry}");
        assert_eq!(entry["actor"], json!({ "kind": "anonymous", "name": "anonymous" }), "{context}");
        assert_eq!(entry["address"], "127.0.0.1", "{context}");
    }
    verified(&app).await;
}

/// The name of a prompt that the fake offers.
async fn fake_prompt(fake: &Fake) -> String {
    let app = TestApp::start().await;
    app.register_http("p", fake).await;
    let prompts = app.get("/api/v0/prompts").await.expect(200).json();
    prompts[0]["name"].as_str().unwrap().strip_prefix("p__").unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_refused_has_no_entry() {
    let app = TestApp::start().await;
    app.post("/api/v0/tool-groups", json!({ "name": "g", "included_servers": ["nobody"] })).await.expect(400);
    app.delete("/api/v0/servers/nobody").await.expect(404);
    let mut dead = unreachable("s");
    dead["keep_failed"] = json!(false);
    app.post("/api/v0/servers", dead).await.expect(500);
    assert_eq!(entries(&app, "").await, Vec::<Value>::new());
    assert_eq!(verified(&app).await["entries"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_masked_and_those_that_change_are_named() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::default()).await;
    let url = format!("{}?key=planted-query", fake.url());
    app.register(json!({
        "name": "s", "transport": "streamable_http", "url": url, "headers": { "X-Key": "planted-header" },
        "bearer_token": "planted-bearer",
    }))
    .await;
    let change = json!({ "headers": { "X-Key": "planted-other" }, "timeout_ms": 1000 });
    app.patch("/api/v0/servers/s", change).await.expect(200);
    let all = entries(&app, "").await;
    assert!(!format!("{all:?}").contains("planted"), "{all:?}");
    assert_eq!(all[0]["after"]["changed_secrets"], json!(["headers.X-Key"]));
    assert_eq!(
        (&all[0]["before"]["timeout_ms"], &all[0]["after"]["timeout_ms"]),
        (&json!(300_000), &json!(1000))
    );
}

async fn wrong(app: &TestApp, source: &str) -> Answer {
    let headers = [("authorization", "Bearer not-a-valid-token"), ("x-forwarded-for", source)];
    client::request(&app.address, "GET", "/api/v0/clients", &headers, Vec::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_strangers_cause_is_summed_by_source() {
    let app = TestApp::start_enterprise_with(|config| {
        summing_late(config);
        config.trust_proxy = true;
    })
    .await;
    let user = app.create_user("ann", "user").await;
    let known = entries(&app, "").await.len();
    for number in 0..500 {
        // The limit on wrong tokens refuses some of them, which are wrong nevertheless.
        assert!([401, 429].contains(&wrong(&app, &format!("2001:db8::{number:x}")).await.status));
    }
    wrong(&app, "192.0.2.7").await.expect(401);
    for _ in 0..20 {
        app.send_as(&user, "DELETE", "/api/v0/servers/any", json!({})).await.expect(403);
        client::request(&app.address, "GET", "/api/v0/users", &[], Vec::new()).await.expect(401);
    }
    app.send_as(&user, "GET", "/api/v0/users/whoami", json!({})).await.expect(200);
    let initialize = client::request(&app.address, "POST", "/init", &[], Vec::new()).await;
    assert_eq!(initialize.status, 400);
    assert_eq!(entries(&app, "").await.len(), known, "a flood costs no writes");
    let app = app.restart().await;
    let sums = entries(&app, "").await;
    assert_eq!(sums.len(), known + 5, "{sums:?}");
    let find = |action: &str, outcome: &str, address: &str| {
        let fits =
            |sum: &&Value| sum["action"] == action && sum["outcome"] == outcome && sum["address"] == address;
        let found: Vec<_> = sums.iter().filter(fits).collect();
        assert_eq!(found.len(), 1, "{action} {outcome} {address}: {sums:?}");
        found[0].clone()
    };
    assert_eq!(find("user.sign_in", "refused", "2001:db8::")["count"], 500);
    assert_eq!(find("user.sign_in", "refused", "192.0.2.7")["count"], 1);
    assert_eq!(find("user.sign_in", "ok", "127.0.0.1")["actor"], json!({ "kind": "user", "name": "ann" }));
    let of = |name: &str| {
        sums.iter().find(|sum| sum["action"] == "api.request" && sum["actor"]["name"] == name).unwrap()
    };
    let (ann, nobody) = (of("ann"), of("anonymous"));
    assert_eq!((&ann["count"], &ann["target"]), (&json!(20), &json!("DELETE /api/v0/servers/{name}")));
    assert_eq!((&nobody["count"], &nobody["target"]), (&json!(20), &json!("GET /api/v0/users")));
    verified(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_a_server_changes_are_summed() {
    let app = TestApp::start_with(summing_late).await;
    let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    for count in 1..=3 {
        fake.update(|behaviour| behaviour.show_tools(&[format!("tool{count}")]));
        app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
    }
    let app = app.restart().await;
    let sums = entries(&app, "action=server.change_lists").await;
    assert_eq!(sums.len(), 1, "{sums:?}");
    assert_eq!(
        (&sums[0]["actor"], &sums[0]["count"]),
        (&json!({ "kind": "system", "name": "s" }), &json!(3))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_authorizes_is_a_change_of_whoever_asked_for_it() {
    let app = TestApp::start_enterprise().await;
    let ann = app.create_user("ann", "admin").await;
    let (fake, provider) = protected(Rules::default()).await;
    let asked = app.send_as(&ann, "POST", "/api/v0/servers", input(&fake)).await.expect(202).json();
    let session = &asked["authorization_required"];
    let begun = &entries(&app, "action=authorization").await[0];
    assert_eq!((&begun["action"], &begun["actor"]["name"]), (&json!("authorization.begin"), &json!("ann")));
    let brought = provider.visit(session["authorization_url"].as_str().unwrap()).await;
    complete(&app, session, &brought).await.expect(201);
    let registered = &entries(&app, "target=web").await[0];
    let expected = (&json!("server.register"), &json!("ann"));
    assert_eq!((&registered["action"], &registered["actor"]["name"]), expected, "{registered}");

    let asked = app.post("/api/v0/servers/web/reauthorize", json!({})).await.expect(202).json();
    let state = Url::parse(asked["authorization_required"]["authorization_url"].as_str().unwrap()).unwrap();
    let state = state.query_pairs().find(|(key, _)| key == "state").unwrap().1.into_owned();
    let refused = json!({ "state": state, "error": "access_denied" });
    complete(&app, &asked["authorization_required"], &refused).await.expect(400);
    let failed = &entries(&app, "outcome=failed").await[0];
    let expected = (&json!("authorization.fail"), &json!("web"));
    assert_eq!((&failed["action"], &failed["target"]), expected, "{failed}");
    verified(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_page_and_say_what_is_wrong_with_them() {
    let app = TestApp::start_enterprise().await;
    for number in 0..5 {
        app.create_client(&format!("c{number}"), &[]).await;
    }
    let page = app.get("/api/v0/audit?action=client&limit=2").await.expect(200).json();
    let targets = |page: &Value| -> Vec<String> {
        let entries = page["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["target"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(targets(&page), ["c4", "c3"]);
    let next = page["next"].as_str().unwrap();
    let page =
        app.get(&format!("/api/v0/audit?action=client.*&limit=3&before={next}")).await.expect(200).json();
    assert_eq!((targets(&page), &page["next"]), (vec!["c2".into(), "c1".into(), "c0".into()], &Value::Null));
    for (query, target) in [("target=c2", "c2"), ("q=C3", "c3"), ("actor=admin&target=c1&outcome=ok", "c1")] {
        assert_eq!(targets(&app.get(&format!("/api/v0/audit?{query}")).await.json()), [target], "{query}");
    }
    assert_eq!(entries(&app, "since=2100-01-01T00:00:00Z").await.len(), 0);
    for (query, field) in [
        ("limit=1001", "limit"),
        ("limit=0", "limit"),
        ("before=1", "before"),
        ("outcome=good", "outcome"),
        ("since=yesterday", "since"),
        ("since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "until"),
        ("server=s", "server"),
    ] {
        let error = app.get(&format!("/api/v0/audit?{query}")).await.expect(400).error();
        assert!(error.contains(field), "{query}: {error}");
    }
    assert!(app.get("/api/v0/audit/verify?head=1").await.expect(400).error().contains("head"));
    let user = app.create_user("ann", "user").await;
    for path in ["/api/v0/audit", "/api/v0/audit/verify"] {
        app.send_as(&user, "GET", path, json!({})).await.expect(403);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_noted_head_is_found_later_and_another_one_is_not() {
    let app = TestApp::start().await;
    app.register(unreachable("a")).await;
    let head = verified(&app).await["head"].as_str().unwrap().to_owned();
    app.register(unreachable("b")).await;
    let report = app.get(&format!("/api/v0/audit/verify?head={head}")).await.expect(200).json();
    assert_eq!(
        (&report["ok"], &report["entries"], &report["anchor"]),
        (&json!(true), &json!(2), &Value::Null)
    );
    let later = report["head"].as_str().unwrap().replace("2:", "3:");
    let report = app.get(&format!("/api/v0/audit/verify?head={later}")).await.expect(200).json();
    assert_eq!((&report["ok"], &report["problem"]["number"]), (&json!(false), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_at_once_are_one_chain() {
    let app = std::sync::Arc::new(TestApp::start().await);
    let mut work = tokio::task::JoinSet::new();
    for number in 0..30 {
        let app = app.clone();
        work.spawn(async move {
            app.register(unreachable(&format!("s{number}"))).await;
        });
    }
    work.join_all().await;
    assert_eq!(verified(&app).await["entries"], 30);
}
