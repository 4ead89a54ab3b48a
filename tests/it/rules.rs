//! The rules of allow lists over REST: what is refused, what is kept, users who are kept out, groups of the identity
//! provider, and explanations.

use serde_json::json;

use crate::support::cli::Cli;
use crate::support::{Agent, Behaviour, Fake, TestApp, bearer, client, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_no_known_form_is_named_and_nothing_changes() {
    let app = TestApp::start_enterprise().await;
    app.create_client("a", &["s"]).await;
    let long = format!("s__{}", "x".repeat(1024));
    for entry in [
        "git*", "!git*", "s__", "!s__", "", "!", "a b", "a\tb", "s__a b", "a_", "é", "group:", "group:*",
        &long,
    ] {
        let list = json!(["s", "t", entry]);
        for (method, path, body) in [
            ("POST", "/api/v0/clients", json!({"name": "b", "allow_list": list})),
            ("PUT", "/api/v0/clients/a", json!({"allow_list": list})),
            ("POST", "/api/v0/users", json!({"username": "b", "allow_list": list})),
            ("PUT", "/api/v0/users/admin", json!({"allow_list": list})),
            ("PUT", "/api/v0/idp-groups/eng", json!({"allow_list": list})),
        ] {
            let error = app.send(method, path, &[], body.to_string()).await.expect(400).error();
            assert!(error.contains("allow_list[2]"), "{entry:?} {path}: {error}");
        }
    }
    let many = vec!["s"; 1001];
    let error = app.put("/api/v0/clients/a", json!({"allow_list": many})).await.expect(400).error();
    assert!(error.contains("allow_list") && error.contains("1000"), "{error}");
    app.put("/api/v0/clients/a", json!({"allow_list": vec!["s"; 1000]})).await.expect(200);
    app.put("/api/v0/clients/a", json!({"allow_list": ["gone", "!gone__*", "group:gone", "*__x"]}))
        .await
        .expect(200);
    let clients = app.get("/api/v0/clients").await.expect(200).json();
    assert_eq!(clients[0]["allow_list"], json!(["gone", "!gone__*", "group:gone", "*__x"]));
    assert_eq!(app.get("/api/v0/users").await.expect(200).json().as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rule_names_counts_from_when_it_appears() {
    let app = TestApp::start_enterprise().await;
    let token = app.create_client("a", &["s__*", "!s__fail", "group:later"]).await;
    let agent = Agent::connect_as(&app, "/mcp", &token).await;
    assert_eq!(agent.tools().await, Vec::<String>::new());
    let mut stream = agent.listen().await;
    let plain = || Behaviour::of(json!({"prompts": [], "resources": [], "templates": []}));
    let fake = Fake::start(plain()).await;
    fake.set_tools(&["echo", "fail"]);
    app.register_http("s", &fake).await;
    stream.expect("notifications/tools/list_changed").await;
    assert_eq!(agent.tools().await, ["s__echo"]);
    let other = Fake::start(plain()).await;
    other.set_tools(&["add", "echo"]);
    app.register_http("t", &other).await;
    assert_eq!(agent.tools().await, ["s__echo"]);
    app.post("/api/v0/tool-groups", json!({"name": "later", "included_tools": ["t__add"]})).await.expect(201);
    stream.expect("notifications/tools/list_changed").await;
    assert_eq!(agent.tools().await, ["s__echo", "t__add"]);
    // A new tool of the server is compared with the rules as well.
    fake.set_tools(&["add", "fail"]);
    eventually("the new list is read", async || agent.tools().await == ["s__add", "t__add"]).await;
    app.delete("/api/v0/tool-groups/later").await.expect(204);
    assert_eq!(agent.tools().await, ["s__add"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_kept_out_is_refused_everywhere_until_let_in() {
    let app = TestApp::start_enterprise().await;
    let (ann, bob) = (app.create_user("ann", "user").await, app.create_user("bob", "admin").await);
    let whoami = async |app: &TestApp, token: &str| {
        app.send_as(token, "GET", "/api/v0/users/whoami", json!({})).await.status
    };
    assert_eq!(whoami(&app, &ann).await, 200);
    let changed = app.put("/api/v0/users/ann", json!({"disabled": true})).await.expect(200).json();
    assert_eq!((&changed["disabled"], &changed["access_token"]), (&json!(true), &json!(ann)));
    // Such a token is not counted as a guess.
    for _ in 0..400 {
        assert_eq!(whoami(&app, &ann).await, 401);
    }
    let app = app.restart().await;
    assert_eq!(whoami(&app, &ann).await, 401);
    let list = app.get("/api/v0/users").await.expect(200).json();
    let row = list.as_array().unwrap().iter().find(|user| user["username"] == "ann").unwrap();
    assert_eq!((&row["disabled"], &row["source"]), (&json!(true), &json!("local")));
    assert!(row["last_seen_at"].is_string(), "{row}");
    app.put("/api/v0/users/ann", json!({"disabled": false})).await.expect(200);
    assert_eq!(whoami(&app, &ann).await, 200);
    // Somebody must be able to let others in.
    app.put("/api/v0/users/bob", json!({"disabled": true})).await.expect(200);
    let error = app.put("/api/v0/users/admin", json!({"disabled": true})).await.expect(400).error();
    assert!(error.contains("last admin"), "{error}");
    app.delete("/api/v0/users/admin").await.expect(400);
    app.put("/api/v0/users/admin", json!({"role": "user"})).await.expect(400);
    app.put("/api/v0/users/bob", json!({"disabled": false})).await.expect(200);
    assert_eq!(whoami(&app, &bob).await, 200);
    app.put("/api/v0/users/admin", json!({"disabled": true})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_user_end_when_they_are_kept_out() {
    let app = TestApp::start_enterprise().await;
    let ann = app.create_user("ann", "user").await;
    let header = bearer(&ann);
    let headers = [("authorization", header.as_str())];
    let opened = client::open(&app.address, "GET", "/api/v0/calls/stream", &headers, Vec::new()).await;
    assert_eq!(opened.0.status(), 200);
    let mut events = client::Events::new(opened);
    app.put("/api/v0/users/ann", json!({"disabled": true})).await.expect(200);
    while events.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_manage_everything_and_use_what_their_rules_allow() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.put("/api/v0/users/admin", json!({"allow_list": ["s__echo"]})).await.expect(200);
    assert!(app.tools("").await.len() > 1);
    app.get("/api/v0/servers/s").await.expect(200);
    assert_eq!(app.call("s__echo", json!({"text": "x"})).await, "x");
    app.invoke("s__add", json!({"a": 1, "b": 2})).await.expect(404).error();
    app.post("/api/v0/resources/read", json!({"uri": "fake://text"})).await.expect(404).error();
    let whoami = app.get("/api/v0/users/whoami").await.expect(200).json();
    assert_eq!(whoami, json!({"username": "admin", "role": "admin", "allow_list": ["s__echo"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_idp_groups_are_kept_and_everybody_cannot_be_deleted() {
    let app = TestApp::start_enterprise().await;
    let everybody = json!({"name": "*", "role": "user", "allow_list": ["*"], "rate_limit": null});
    assert_eq!(app.get("/api/v0/idp-groups").await.expect(200).json(), json!([everybody]));
    let body = json!({"role": "admin", "allow_list": ["s"], "rate_limit": {"calls_per_minute": 5}});
    let eng = app.put("/api/v0/idp-groups/%2Fteams%2Feng", body).await.expect(200).json();
    let expected = json!({"name": "/teams/eng", "role": "admin", "allow_list": ["s"], "rate_limit": {"calls_per_minute": 5}});
    assert_eq!(eng, expected);
    // A response can be sent back as a request.
    assert_eq!(app.put("/api/v0/idp-groups/%2Fteams%2Feng", eng).await.expect(200).json(), expected);
    app.put("/api/v0/idp-groups/*", json!({})).await.expect(200);
    let error = app.delete("/api/v0/idp-groups/*").await.expect(400).error();
    assert!(error.contains("cannot be deleted"), "{error}");
    let app = app.restart().await;
    let emptied = json!({"name": "*", "role": "user", "allow_list": [], "rate_limit": null});
    assert_eq!(app.get("/api/v0/idp-groups").await.expect(200).json(), json!([emptied, expected]));
    app.delete("/api/v0/idp-groups/%2Fteams%2Feng").await.expect(204);
    app.delete("/api/v0/idp-groups/%2Fteams%2Feng").await.expect(404).error();
    for (body, word) in
        [(json!({"role": "root"}), "role"), (json!({"rate_limit": 1}), "rate_limit"), (json!({"x": 1}), "x")]
    {
        let error = app.put("/api/v0/idp-groups/eng", body).await.expect(400).error();
        assert!(error.contains(word), "{error}");
    }
    let dev = TestApp::start().await;
    dev.get("/api/v0/idp-groups").await.expect(403).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_explanation_names_the_true_reason_and_the_rules() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::default()).await;
    app.register_http("s", &fake).await;
    app.register_http("off", &fake).await;
    app.post("/api/v0/servers/off/disable", json!({})).await.expect(200);
    app.post("/api/v0/tools/disable?entity=s__add", json!({})).await.expect(200);
    app.create_client("ci", &["*", "!s__fail*"]).await;
    app.create_client("bare", &[]).await;
    let ann = app.create_user("ann", "user").await;
    let explain = async |subject: &str, name: &str| {
        app.get(&format!("/api/v0/access/explain?subject={subject}&name={name}")).await.expect(200).json()
    };
    let rule = |from: &str, entry: &str| json!({"from": from, "entry": entry});
    let told = explain("client:ci", "s__echo").await;
    assert_eq!((&told["allowed"], &told["rules"]), (&json!(true), &json!([rule("client ci", "*")])));
    let told = explain("client:ci", "s__fail").await;
    assert_eq!(told["allowed"], false);
    assert_eq!(told["rules"], json!([rule("client ci", "*"), rule("client ci", "!s__fail*")]));
    let reason = |told: &serde_json::Value| told["reason"].as_str().unwrap().to_owned();
    assert!(reason(&told).contains("hidden by the rule \"!s__fail*\""), "{told}");
    for (subject, name, words) in [
        ("client:ci", "s__add", "is disabled"),
        ("client:ci", "off", "is disabled"),
        ("client:ci", "s__nothing", "has no tool"),
        ("client:ci", "nothing", "no server"),
        ("client:bare", "s__echo", "no rule"),
        ("client:bare", "s", "no rule"),
    ] {
        let told = explain(subject, name).await;
        assert_eq!(told["allowed"], false, "{told}");
        assert!(reason(&told).contains(words), "{subject} {name}: {told}");
    }
    // What is allowed and disabled is not hidden by a rule, also if nothing else is allowed. People may use it over REST.
    app.put("/api/v0/users/ann", json!({"allow_list": ["s__add"]})).await.expect(200);
    for (name, words) in
        [("s__add", "tool \"s__add\" is disabled"), ("s", "all that is allowed of the server \"s\"")]
    {
        let told = explain("user:ann", name).await;
        assert!(told["allowed"] == false && reason(&told).contains(words), "{name}: {told}");
        assert_eq!(told["rules"], json!([rule("user ann", "s__add")]));
    }
    let listed = app.send_as(&ann, "GET", "/api/v0/tools", json!({})).await.expect(200).json();
    assert_eq!((&listed[0]["name"], &listed[0]["enabled"]), (&json!("s__add"), &json!(false)), "{listed}");
    let sum = json!({"name": "s__add", "a": 1, "b": 2});
    app.send_as(&ann, "POST", "/api/v0/tools/invoke", sum).await.expect(200);
    app.put("/api/v0/users/ann", json!({"allow_list": ["*"]})).await.expect(200);
    app.put("/api/v0/users/ann", json!({"disabled": true})).await.expect(200);
    let told = explain("user:ann", "s__echo").await;
    assert!(told["allowed"] == false && reason(&told).contains("user ann is disabled"), "{told}");
    app.put("/api/v0/users/ann", json!({"disabled": false, "allow_list": ["s__echo"]})).await.expect(200);
    let as_ann = async |path: &str| app.send_as(&ann, "GET", path, json!({})).await;
    for name in ["s__fail", "s__nothing", "nothing", "off"] {
        let told = as_ann(&format!("/api/v0/access/explain?subject=user:ann&name={name}")).await.expect(200);
        assert_eq!(told.json(), json!({"allowed": false, "reason": "unknown or not allowed"}), "{name}");
    }
    as_ann("/api/v0/access/explain?subject=user:admin&name=s").await.expect(403).error();
    as_ann("/api/v0/access/explain?subject=client:ci&name=s").await.expect(403).error();
    as_ann("/api/v0/access/explain?subject=user:nobody&name=s").await.expect(403).error();
    for (query, status, word) in [
        ("subject=user:nobody&name=s", 404, "nobody"),
        ("subject=ci&name=s", 400, "subject"),
        ("subject=client:ci", 400, "name"),
        ("name=s", 400, "subject"),
    ] {
        let error = app.get(&format!("/api/v0/access/explain?{query}")).await.expect(status).error();
        assert!(error.contains(word), "{query}: {error}");
    }
    let cli = Cli::new(&app.address);
    cli.run(&["login", app.authorization.as_deref().unwrap().trim_start_matches("Bearer ")]).await;
    let shown = cli.ok(&["explain", "client:ci", "s__fail"]).await;
    assert!(shown.contains("may not use") && shown.contains("!s__fail*"), "{shown}");
    let shown = cli.ok(&["explain", "client:ci", "s__echo"]).await;
    assert!(shown.contains("may use s__echo"), "{shown}");
}
