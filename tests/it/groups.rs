//! Tool groups over REST, and their effective tools.

use serde_json::{Value, json};

use crate::support::{Behaviour, Fake, TestApp, eventually};

const GROUPS: &str = "/api/v0/tool-groups";

async fn fake_with(tools: &[&str]) -> Fake {
    let fake = Fake::start(Behaviour::default()).await;
    fake.set_tools(tools);
    fake
}

/// A gateway with server `s` (tools `a`, `b`, `c`) and server `t` (tool `a`).
async fn app() -> (TestApp, Fake, Fake) {
    let (app, s, t) = (TestApp::start().await, fake_with(&["c", "a", "b"]).await, fake_with(&["a"]).await);
    app.register_http("s", &s).await;
    app.register_http("t", &t).await;
    (app, s, t)
}

async fn create(app: &TestApp, group: Value) -> Value {
    app.post(GROUPS, group).await.expect(201).json()
}

async fn effective(app: &TestApp, group: &str) -> Vec<String> {
    let answer = app.get(&format!("{GROUPS}/{group}/effective-tools")).await.expect(200).json();
    assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
    answer["tools"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

fn with_endpoints(mut group: Value, base: &str) -> Value {
    let name = group["name"].as_str().unwrap().to_owned();
    for (key, end) in
        [("streamable_http_endpoint", "mcp"), ("sse_endpoint", "sse"), ("sse_message_endpoint", "message")]
    {
        group[key] = json!(format!("{base}/v0/groups/{name}/{end}"));
    }
    group
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_created_shown_listed_replaced_and_deleted() {
    let (mut app, _s, _t) = app().await;
    assert_eq!(app.get(GROUPS).await.expect(200).json(), json!([]));
    let b = json!({"name": "b", "description": "", "included_tools": ["t__a"], "included_servers": [],
        "excluded_tools": []});
    let a = json!({"name": "a", "description": "first", "included_tools": ["t__a"], "included_servers": ["s"],
        "excluded_tools": ["s__b", "gone__x"], "included_prompts": ["*"], "included_resources": ["fake://text"]});
    let created = create(&app, json!({"name": "b", "included_tools": ["t__a"]})).await;
    assert_eq!(created, with_endpoints(b.clone(), &format!("http://{}", app.address)));
    assert_eq!(create(&app, a.clone()).await, with_endpoints(a.clone(), &format!("http://{}", app.address)));
    for _ in ["at once", "after a restart"] {
        let shown = app.get(&format!("{GROUPS}/a")).await.expect(200).json();
        assert_eq!(shown, with_endpoints(a.clone(), &format!("http://{}", app.address)));
        assert_eq!(app.get(GROUPS).await.expect(200).json(), json!([a, b]), "sorted, without endpoints");
        assert_eq!(effective(&app, "a").await, ["s__a", "s__c", "t__a"]);
        assert_eq!(effective(&app, "b").await, ["t__a"]);
        app = app.restart().await;
    }
    let input = json!({"name": ["ignored"], "included_servers": ["s"]});
    let replaced = app.put(&format!("{GROUPS}/a"), input).await.expect(200).json();
    let new = json!({"name": "a", "description": "", "included_tools": [], "included_servers": ["s"],
        "excluded_tools": []});
    assert_eq!(replaced, json!({"name": "a", "old": a, "new": new}));
    for _ in ["at once", "after a restart"] {
        assert_eq!(app.get(GROUPS).await.expect(200).json(), json!([new, b]));
        assert_eq!(effective(&app, "a").await, ["s__a", "s__b", "s__c"]);
        app = app.restart().await;
    }
    let gone = app.delete(&format!("{GROUPS}/a")).await.expect(204);
    assert!(gone.body.is_empty());
    for _ in ["at once", "after a restart"] {
        assert_eq!(app.get(GROUPS).await.expect(200).json(), json!([b]));
        app = app.restart().await;
    }
    create(&app, a).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_get_shows_can_be_put_back() {
    let (app, _s, _t) = app().await;
    create(&app, json!({"name": "g", "included_servers": ["s"], "included_prompts": ["s__greet"]})).await;
    let shown = app.get(&format!("{GROUPS}/g")).await.expect(200).json();
    let replaced = app.put(&format!("{GROUPS}/g"), shown).await.expect(200).json();
    assert_eq!(replaced["old"], replaced["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_group_is_404_on_every_route() {
    let app = TestApp::start().await;
    for name in ["gone", "a%20b", "-", "%C3%A4"] {
        let path = format!("{GROUPS}/{name}");
        app.get(&path).await.expect(404).error();
        app.get(&format!("{path}/effective-tools")).await.expect(404).error();
        app.delete(&path).await.expect(404).error();
        for body in [json!({}), json!({"included_servers": ["s"]}), json!([])] {
            app.put(&path, body).await.expect(404).error();
        }
        app.post(&path, json!({})).await.expect(405).error();
        app.patch(&path, json!({})).await.expect(405).error();
    }
    app.get(&format!("{GROUPS}/gone/nothing")).await.expect(404).error();
    app.delete(GROUPS).await.expect(405).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mistake_in_a_group_is_named_and_changes_nothing() {
    let (app, _s, _t) = app().await;
    create(&app, json!({"name": "g", "included_servers": ["s"]})).await;
    let before = app.get(GROUPS).await.json();
    let long = "x".repeat(65);
    for name in ["", "-a", "_a", "a b", "a/b", "a.b", "ä", long.as_str()] {
        let refused = app.post(GROUPS, json!({"name": name, "included_servers": ["s"]})).await.expect(400);
        assert!(refused.error().contains("name"), "{}", refused.error());
    }
    for name in [json!(null), json!(7)] {
        let refused = app.post(GROUPS, json!({"name": name, "included_servers": ["s"]})).await.expect(400);
        assert!(refused.error().contains("name"));
    }
    for (changes, said) in [
        (json!({"included_servers": null}), "at least one tool"),
        (json!({"included_servers": [], "included_tools": []}), "at least one tool"),
        (json!({"included_servers": [], "included_prompts": ["s__greet"]}), "at least one tool"),
        (json!({"included_servers": "s"}), "included_servers"),
        (json!({"included_servers": [1]}), "included_servers[0]"),
        (json!({"included_servers": ["s", "gone"]}), "gone"),
        (json!({"included_servers": ["s__a"]}), "s__a"),
        (json!({"included_servers": ["*"]}), "*"),
        (json!({"included_tools": {}}), "included_tools"),
        (json!({"included_tools": [null]}), "included_tools[0]"),
        (json!({"included_tools": ["s__gone"]}), "s__gone"),
        (json!({"included_tools": ["gone__a"]}), "gone__a"),
        (json!({"included_tools": ["s"]}), "\"s\""),
        (json!({"included_tools": [""]}), "included_tools"),
        (json!({"excluded_tools": "s__a"}), "excluded_tools"),
        (json!({"excluded_tools": [{}]}), "excluded_tools[0]"),
        (json!({"description": 7}), "description"),
        (json!({"included_prompts": ["s__gone"]}), "s__gone"),
        (json!({"included_prompts": "*"}), "included_prompts"),
        (json!({"included_resources": ["x://gone"]}), "x://gone"),
        (json!({"included_resources": ["toolgate://res/s/%%"]}), "toolgate://res/s/%%"),
        (json!({"colour": "red"}), "colour"),
    ] {
        let mut group = json!({"name": "new", "included_servers": ["s"]});
        group.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        for refused in [app.post(GROUPS, group.clone()).await, app.put(&format!("{GROUPS}/g"), group).await] {
            let refused = refused.expect(400);
            assert!(refused.error().contains(said), "{changes}: {}", refused.error());
        }
    }
    for raw in ["", "{", "[]", "null"] {
        app.send("POST", GROUPS, &[], raw).await.expect(400).error();
        app.send("PUT", &format!("{GROUPS}/g"), &[], raw).await.expect(400).error();
    }
    let taken = app.post(GROUPS, json!({"name": "g", "included_servers": ["t"]})).await.expect(409);
    assert!(taken.error().contains("\"g\""));
    assert_eq!(app.get(GROUPS).await.json(), before);
    let longest = "9".repeat(64);
    create(&app, json!({"name": longest, "included_tools": ["s__a"], "description": null})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exclusions_come_last() {
    let (app, _s, _t) = app().await;
    let group = json!({"name": "g", "included_servers": ["s"], "included_tools": ["s__a", "t__a", "t__a"],
        "excluded_tools": ["s__a", "s__never", "nonsense"]});
    create(&app, group).await;
    assert_eq!(effective(&app, "g").await, ["s__b", "s__c", "t__a"]);
    let nothing = json!({"included_tools": ["s__a"], "excluded_tools": ["s__a"]});
    app.put(&format!("{GROUPS}/g"), nothing).await.expect(200);
    assert!(effective(&app, "g").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn effective_tools_follow_every_switch() {
    let (app, _s, _t) = app().await;
    create(&app, json!({"name": "g", "included_servers": ["s"], "included_tools": ["t__a"]})).await;
    let post = async |path: &str| app.post(&format!("/api/v0/{path}"), json!({})).await.expect(200);
    for (path, tools) in [
        ("tools/disable?entity=s__b", vec!["s__a", "s__c", "t__a"]),
        ("servers/s/disable", vec!["t__a"]),
        ("tools/disable?entity=t__a", vec![]),
        ("tools/enable?entity=s__b", vec![]),
        ("tools/disable?entity=s__c", vec![]),
        ("servers/s/enable", vec!["s__a", "s__b"]),
        ("tools/enable?entity=t", vec!["s__a", "s__b", "t__a"]),
        ("tools/disable?entity=s", vec!["t__a"]),
        ("tools/enable?entity=s", vec!["s__a", "s__b", "s__c", "t__a"]),
    ] {
        post(path).await;
        assert_eq!(effective(&app, "g").await, tools, "after {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_of_a_disabled_server_may_be_included() {
    let (app, _s, _t) = app().await;
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    create(&app, json!({"name": "g", "included_tools": ["s__a"], "included_servers": ["s"]})).await;
    assert!(effective(&app, "g").await.is_empty());
    app.post("/api/v0/servers/s/enable", json!({})).await.expect(200);
    assert_eq!(effective(&app, "g").await, ["s__a", "s__b", "s__c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn effective_tools_follow_what_upstreams_announce() {
    let app = TestApp::start().await;
    let (servers, fakes) = app.register_each_kind(&json!({})).await;
    let member = |server: &String| format!("{server}__echo");
    let named: Vec<_> = servers.iter().map(member).collect();
    create(&app, json!({"name": "named", "included_tools": named})).await;
    create(&app, json!({"name": "whole", "included_servers": servers})).await;
    for fake in &fakes {
        fake.set_tools(&["fresh"]);
    }
    for server in servers.iter().filter(|server| server.starts_with("stdio")) {
        app.call(&format!("{server}__set_tools"), json!({"names": ["fresh"]})).await;
    }
    let mut fresh: Vec<_> = servers.iter().map(|server| format!("{server}__fresh")).collect();
    fresh.sort();
    eventually("the group shows the new tools", || async { effective(&app, "whole").await == fresh }).await;
    assert!(effective(&app, "named").await.is_empty());
    for fake in &fakes {
        fake.set_tools(&["echo"]);
    }
    let back = ["http-legacy__echo", "http-modern__echo", "sse-legacy__echo"];
    eventually("named tools come back", || async { effective(&app, "named").await == back }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_gone_stays_configured_and_comes_back() {
    let (mut app, s, t) = app().await;
    let group = json!({"name": "g", "description": "", "included_tools": ["t__a"], "included_servers": ["s"],
        "excluded_tools": ["s__b"], "included_prompts": ["t__greet"], "included_resources": ["fake://text"]});
    create(&app, group.clone()).await;
    app.delete("/api/v0/servers/s").await.expect(204);
    assert_eq!(effective(&app, "g").await, ["t__a"]);
    app.delete("/api/v0/servers/t").await.expect(204);
    for _ in ["at once", "after a restart"] {
        assert!(effective(&app, "g").await.is_empty());
        assert_eq!(app.get(GROUPS).await.expect(200).json(), json!([group]));
        app = app.restart().await;
    }
    // Existing members may stay although they are gone; new members must exist.
    let mut changed = group.clone();
    changed["description"] = json!("changed");
    let replaced = app.put(&format!("{GROUPS}/g"), changed.clone()).await.expect(200).json();
    assert_eq!(replaced["new"], changed);
    let with = |field: &str, name: &str| {
        let mut group = group.clone();
        group[field].as_array_mut().unwrap().push(json!(name));
        group
    };
    for (field, name) in [
        ("included_tools", "t__b"),
        ("included_servers", "t"),
        ("included_prompts", "t__plain"),
        ("included_resources", "fake://blob"),
    ] {
        let refused = app.put(&format!("{GROUPS}/g"), with(field, name)).await.expect(400);
        assert!(refused.error().contains(name), "{}", refused.error());
    }
    app.post(GROUPS, json!({"name": "h", "included_servers": ["s"]})).await.expect(400);
    app.register_http("s", &s).await;
    app.register_http("t", &t).await;
    assert_eq!(effective(&app, "g").await, ["s__a", "s__c", "t__a"]);
    // Once removed from the group, a member that is gone cannot be added again.
    app.delete("/api/v0/servers/t").await.expect(204);
    app.put(&format!("{GROUPS}/g"), json!({"included_servers": ["s"]})).await.expect(200);
    app.put(&format!("{GROUPS}/g"), group.clone()).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_servers_are_down_at_start_keeps_what_is_stored() {
    let (app, mut s, t) = app().await;
    create(&app, json!({"name": "g", "included_servers": ["s", "t"]})).await;
    s.stop().await;
    let app = app.restart().await;
    assert_eq!(effective(&app, "g").await, ["s__a", "s__b", "s__c", "t__a"]);
    // Changes made meanwhile are visible when the server is back.
    s.set_tools(&["b"]);
    s.restart().await;
    eventually("the new list", || async { effective(&app, "g").await == ["s__b", "t__a"] }).await;
    drop(t);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_groups_of_one_name_cannot_be_created_at_once() {
    let (app, _s, _t) = app().await;
    let group = json!({"name": "g", "included_servers": ["s"]});
    let (one, two, three) = tokio::join!(
        app.post(GROUPS, group.clone()),
        app.post(GROUPS, group.clone()),
        app.post(GROUPS, group)
    );
    let mut statuses = [one.status, two.status, three.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409]);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_named_as_the_caller_reaches_them() {
    let forwarded: &[(&str, &str)] =
        &[("x-forwarded-proto", "https"), ("x-forwarded-host", "gate.example:444, inner")];
    let shouted: &[(&str, &str)] = &[("x-forwarded-proto", "HTTPS, http"), ("host", "localhost:99")];
    let odd: &[(&str, &str)] = &[("x-forwarded-proto", "javascript"), ("host", "localhost:99")];
    let plain: &[(&str, &str)] = &[("host", "localhost:99")];
    let public = "https://public.example/gate/";
    for (trust, public_url, headers, base) in [
        (false, None, plain, "http://localhost:99"),
        (false, None, shouted, "http://localhost:99"),
        (true, None, forwarded, "https://gate.example:444"),
        (true, None, shouted, "https://localhost:99"),
        (true, None, odd, "http://localhost:99"),
        (true, None, plain, "http://localhost:99"),
        (true, Some(public), forwarded, "https://public.example/gate"),
        (false, Some(public), plain, "https://public.example/gate"),
    ] {
        let app = TestApp::start_with(|config| {
            config.trust_proxy = trust;
            config.public_url = public_url.map(|url| url.parse().unwrap());
        })
        .await;
        let fake = fake_with(&["a"]).await;
        app.register_http("s", &fake).await;
        let input = json!({"name": "g", "included_servers": ["s"]}).to_string();
        let created = app.send("POST", GROUPS, headers, input).await.expect(201).json();
        let shown = app.send("GET", &format!("{GROUPS}/g"), headers, "").await.expect(200).json();
        assert_eq!(created, shown);
        assert_eq!(shown, with_endpoints(shown.clone(), base));
    }
}
