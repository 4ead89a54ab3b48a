//! People whom the identity provider is asked about again while they use the gateway.

use std::sync::Arc;
use std::time::Duration;

use gateway::sign_in::PeopleRules;
use serde_json::{Value, json};
use toolgate::config::Config;
use upstream::sign_in::IdentityProvider;

use crate::support::client::Events;
use crate::support::person::{ISSUER, Person, Software, tokens_in};
use crate::support::{
    Agent, Behaviour, Fake, FakeProvider, ModernAgent, SseAgent, TestApp, bearer, client, eventually,
};

/// After that much time of use, the next check is due.
const DUE: Duration = Duration::from_secs(14 * 60);
const HOUR: Duration = Duration::from_secs(3600);

/// A gateway with somebody who signed in, and software that has a grant.
struct Scene {
    app: TestApp,
    provider: FakeProvider,
    client: Arc<IdentityProvider>,
    rules: PeopleRules,
    person: Person,
    software: Software,
    access: String,
    refresh: String,
}

impl Scene {
    async fn start(has_refresh_tokens: bool, groups: &[&str], change: impl FnOnce(&mut Config)) -> Self {
        let provider = FakeProvider::start().await;
        if has_refresh_tokens {
            provider.give_refresh_tokens();
        }
        let mut rules = PeopleRules::default();
        let app = TestApp::start_enterprise_with(|config| {
            provider.settings(config);
            change(config);
            rules.allowed_groups.clone_from(&config.sign_in.allowed_groups);
            rules.max_days = config.sign_in.max_days;
        })
        .await;
        let mut person = Person::default();
        provider.sign_in(&app, &mut person, ("s-1", "ann", groups), "").await.expect(303);
        let software = Software::register(&app, "https://agent.example/cb").await;
        let (access, refresh) = software.tokens(&app, &person, &[]).await;
        let client = provider.client();
        Self { app, provider, client, rules, person, software, access, refresh }
    }

    /// Asks about everybody for whom it is due.
    async fn check(&self) {
        self.app.gateway().check_people(Some(&self.client), &self.rules).await.unwrap();
    }

    /// Lets time pass in which the person is there, and checks.
    async fn use_and_check(&self, time: Duration) {
        self.app.clock().advance(time);
        self.whoami().await;
        self.check().await;
    }

    async fn whoami(&self) -> Value {
        self.person.open(&self.app, "/api/v0/users/whoami").await.expect(200).json()
    }

    async fn status(&self) -> u16 {
        self.person.open(&self.app, "/api/v0/users/whoami").await.status
    }

    /// The status of a request for new tokens.
    async fn renew(&mut self) -> u16 {
        let answer = self.software.refresh(&self.app, &self.refresh, &[]).await;
        if answer.status == 200 {
            (self.access, self.refresh) = tokens_in(&answer);
        }
        answer.status
    }

    async fn grants(&self) -> usize {
        self.app.get("/api/v0/grants").await.expect(200).json().as_array().unwrap().len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_follow_the_groups_at_the_provider() {
    let admins = |config: &mut Config| config.sign_in.admin_groups = vec!["root".to_owned()];
    let scene = Scene::start(true, &["eng"], admins).await;
    let app = &scene.app;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    app.register_http("s", &fake).await;
    app.put("/api/v0/idp-groups/*", json!({"allow_list": []})).await.expect(200);
    app.put("/api/v0/idp-groups/eng", json!({"allow_list": ["s"]})).await.expect(200);
    app.put("/api/v0/idp-groups/ops", json!({"role": "admin", "allow_list": []})).await.expect(200);
    let agent = Agent::connect_as(app, "/mcp", &scene.access).await;
    assert!(!agent.tools().await.is_empty());
    for (groups, role) in
        [(json!(["root"]), "admin"), (json!(["eng"]), "user"), (json!("ops"), "admin"), (json!([]), "user")]
    {
        scene.provider.claim("groups", groups.clone());
        scene.use_and_check(DUE).await;
        assert_eq!(scene.whoami().await["role"], role, "{groups}");
        assert_eq!(agent.tools().await.is_empty(), groups != json!(["eng"]), "{groups}");
        let allowed = scene.person.open(app, "/api/v0/clients").await.status == 200;
        assert_eq!(allowed, role == "admin", "{groups}");
    }
    // Each answer had another refresh token, which was used for the next question.
    assert_eq!(scene.provider.used(), ["r-1", "r-2", "r-3", "r-4"]);
    let changes = app.get("/api/v0/audit?action=user.update").await.expect(200).text();
    assert!(!changes.contains("r-1"), "{changes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_about_who_is_not_there() {
    let scene = Scene::start(true, &[], |_| {}).await;
    scene.check().await;
    scene.app.clock().advance(HOUR);
    scene.check().await;
    assert_eq!(scene.provider.used(), Vec::<String>::new());
    scene.use_and_check(HOUR).await;
    // It is not due again.
    scene.use_and_check(Duration::from_secs(60)).await;
    assert_eq!(scene.provider.used(), ["r-1"]);
    // Whoever is disabled is not asked about, and does not come back.
    scene.app.put("/api/v0/users/ann", json!({"disabled": true})).await.expect(200);
    scene.app.clock().advance(HOUR);
    scene.check().await;
    assert_eq!(scene.provider.used(), ["r-1"]);
    assert_eq!(scene.status().await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_is_use() {
    let scene = Scene::start(true, &[], |_| {}).await;
    let mut stream = SseAgent::connect_as(&scene.app, "/sse", &scene.access).await;
    for asked in 1..=3 {
        scene.app.clock().advance(DUE);
        scene.check().await;
        assert_eq!(scene.provider.used().len(), asked);
    }
    scene.provider.fail(Some((400, "invalid_grant")));
    scene.app.clock().advance(DUE);
    scene.check().await;
    while stream.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_the_provider_refuses_loses_everything_at_once_and_may_sign_in_again() {
    let mut scene = Scene::start(true, &[], |_| {}).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy"}))).await;
    scene.app.register_http("s", &fake).await;
    let agent = Agent::connect_as(&scene.app, "/mcp", &scene.access).await;
    let authorization = bearer(&scene.access);
    let headers = [
        ("authorization", authorization.as_str()),
        ("accept", "text/event-stream"),
        ("mcp-session-id", agent.session.as_str()),
    ];
    let mut stream = Events::new(client::open(&scene.app.address, "GET", "/mcp", &headers, vec![]).await);
    let params = json!({"name": "s__slow", "arguments": {"ms": 600_000}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let checking = async {
        eventually("the call runs", async || fake.calls_of("slow") == 1).await;
        scene.provider.fail(Some((400, "invalid_grant")));
        scene.use_and_check(DUE).await;
    };
    let (answer, ()) = tokio::join!(agent.post(&call), checking);
    answer.expect(401).error();
    while stream.next().await.is_some() {}
    assert_eq!((scene.status().await, scene.grants().await, scene.renew().await), (401, 0, 400));
    let users = scene.app.get("/api/v0/users").await.expect(200).json();
    assert!(
        users.as_array().unwrap().iter().any(|user| user["username"] == "ann" && user["disabled"] == false)
    );
    // The next sign-in begins anew, and the end of the one before does not come after it.
    scene.provider.fail(None);
    let mut person = Person::default();
    scene.provider.sign_in(&scene.app, &mut person, ("s-1", "ann", &[]), "").await.expect(303);
    scene.person = person;
    scene.use_and_check(DUE).await;
    assert_eq!(scene.whoami().await["username"], "ann");
    assert_eq!(scene.provider.used(), ["r-1", "r-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_left_the_allowed_groups_loses_everything() {
    let mut scene =
        Scene::start(true, &["eng"], |config| config.sign_in.allowed_groups = vec!["eng".to_owned()]).await;
    scene.use_and_check(DUE).await;
    assert_eq!(scene.status().await, 200);
    scene.provider.claim("groups", json!(["sales"]));
    scene.use_and_check(DUE).await;
    assert_eq!((scene.status().await, scene.grants().await, scene.renew().await), (401, 0, 400));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_answer_changes_nothing_and_no_refresh_token_is_lost() {
    let mut scene = Scene::start(true, &["eng"], |_| {}).await;
    scene.use_and_check(DUE).await;
    assert_eq!(scene.provider.used(), ["r-1"]);
    for error in
        [(503, "down"), (400, "invalid_client"), (400, "temporarily_unavailable"), (500, "invalid_grant")]
    {
        scene.provider.fail(Some(error));
        let before = scene.provider.used().len();
        scene.use_and_check(DUE).await;
        assert_eq!(scene.provider.used().len(), before + 1, "{error:?}");
        // A failed question is asked again soon, though not at once.
        scene.check().await;
        assert_eq!(scene.provider.used().len(), before + 1, "{error:?}");
        scene.use_and_check(Duration::from_secs(61)).await;
        assert_eq!(scene.provider.used()[before..], ["r-2", "r-2"], "{error:?}");
        assert_eq!((scene.status().await, scene.grants().await), (200, 1), "{error:?}");
    }
    scene.provider.fail(None);
    scene.provider.set_down(true);
    scene.use_and_check(DUE).await;
    scene.provider.set_down(false);
    // It gives another refresh token, with an ID token that nobody can verify.
    scene.provider.claim("groups", json!(["forged"]));
    scene.provider.set_keys("second", &["first"]);
    scene.use_and_check(DUE).await;
    assert_eq!((scene.provider.used().last().unwrap().as_str(), scene.status().await), ("r-2", 200));
    // Another person's answer is none.
    scene.provider.set_keys("first", &["first"]);
    scene.provider.claim("sub", json!("s-2"));
    scene.use_and_check(DUE).await;
    assert_eq!((scene.provider.used().last().unwrap().as_str(), scene.status().await), ("r-3", 200));
    scene.provider.claim("sub", json!("s-1"));
    scene.provider.claim("groups", json!(["ops"]));
    scene.app.put("/api/v0/idp-groups/ops", json!({"role": "admin"})).await.expect(200);
    assert_eq!(scene.whoami().await["role"], "user");
    scene.use_and_check(DUE).await;
    assert_eq!((scene.provider.used().last().unwrap().as_str(), scene.renew().await), ("r-4", 200));
    assert_eq!(scene.whoami().await["role"], "admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_refresh_token_a_grant_ends_some_days_after_the_last_sign_in() {
    let mut scene = Scene::start(false, &[], |config| config.sign_in.max_days = 2).await;
    scene.app.clock().advance(47 * HOUR);
    scene.check().await;
    assert_eq!(scene.renew().await, 200);
    let mut person = Person::default();
    scene.provider.sign_in(&scene.app, &mut person, ("s-1", "ann", &[]), "").await.expect(303);
    scene.app.clock().advance(47 * HOUR);
    scene.check().await;
    assert_eq!((scene.renew().await, scene.grants().await), (200, 1));
    // Also if nobody uses it, and after a restart.
    scene.app.clock().advance(2 * HOUR);
    scene.app = scene.app.restart().await;
    scene.check().await;
    assert_eq!((scene.grants().await, scene.renew().await), (0, 400));
    assert_eq!(scene.provider.used(), Vec::<String>::new());
    let ended = async |app: &TestApp| {
        let list = app.get("/api/v0/audit?action=user.end_credentials").await.expect(200).json();
        list.to_string().matches("user.end_credentials").count()
    };
    let before = ended(&scene.app).await;
    assert!(before > 0);
    scene.check().await;
    assert_eq!(ended(&scene.app).await, before, "it ends once");
}

#[tokio::test(flavor = "multi_thread")]
async fn people_of_another_provider_cannot_be_asked_about_so_their_grants_end_too() {
    let mut scene = Scene::start(true, &[], |_| {}).await;
    let mut other = FakeProvider::start().await;
    other.clock = scene.provider.clock.clone();
    scene.app = scene.app.restart_with(|config| other.settings(config)).await;
    scene.client = other.client();
    scene.use_and_check(DUE).await;
    assert_eq!(scene.renew().await, 200);
    scene.app.clock().advance(7 * 24 * HOUR);
    scene.check().await;
    assert_eq!((scene.grants().await, scene.renew().await), (0, 400));
    assert!(other.used().is_empty() && scene.provider.used().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_provider_nobody_can_be_asked_about_so_their_grants_end_too() {
    let mut scene = Scene::start(true, &[], |_| {}).await;
    let clock = scene.provider.clock.clone();
    // Then people sign in with tokens, or not at all.
    for public_url in [Some(ISSUER.parse().unwrap()), None] {
        scene.app = scene
            .app
            .restart_with(|config| {
                (config.public_url, config.sign_in.oidc) = (public_url, None);
                config.clock = clock.clone();
            })
            .await;
        clock.advance(3 * 24 * HOUR);
        scene.app.gateway().check_people(None, &scene.rules).await.unwrap();
        assert_eq!(scene.grants().await, 1);
    }
    clock.advance(2 * 24 * HOUR);
    scene.app.gateway().check_people(None, &scene.rules).await.unwrap();
    assert_eq!(scene.grants().await, 0);
    assert_eq!(scene.provider.used(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_stream_ends_with_the_person() {
    let scene = Scene::start(true, &[], |_| {}).await;
    let (app, token) = (&scene.app, scene.access.as_str());
    let fake = Fake::start(Behaviour::of(json!({"era": "modern"}))).await;
    app.register_http("s", &fake).await;
    let bystander = app.create_client("bystander", &["*"]).await;
    let mut bystander = ModernAgent::at(app, "/mcp").using(&bystander).listen(json!(1), all_lists()).await.0;
    let agent = Agent::connect_as(app, "/mcp", token).await;
    let params = json!({"name": "s__progress", "arguments": {"steps": 100_000, "ms": 50},
        "_meta": {"progressToken": "p"}});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let mut talks = vec![
        agent.listen().await,
        ModernAgent::at(app, "/mcp").using(token).listen(json!(1), all_lists()).await.0,
        ModernAgent::at(app, "/v0/servers/s/mcp").using(token).listen(json!(1), all_lists()).await.0,
        agent.begin(&call).await,
    ];
    let mut sse = SseAgent::connect_as(app, "/sse", token).await;
    let cookie = scene.person.cookie.clone().unwrap();
    let headers = [("cookie", cookie.as_str()), ("accept", "text/event-stream"), ("origin", ISSUER)];
    let rest = async |method: &str, path: &str, body: Value| {
        let opened = client::open(&app.address, method, path, &headers, body.to_string().into()).await;
        assert_eq!(opened.0.status(), 200, "{path}");
        Events::new(opened)
    };
    let slow = json!({"name": "s__slow", "ms": 600_000});
    let mut streams = [
        rest("GET", "/api/v0/calls/stream", json!({})).await,
        rest("POST", "/api/v0/tools/invoke", slow).await,
    ];
    eventually("both calls run", async || fake.running_calls() == 2).await;
    scene.provider.fail(Some((400, "invalid_grant")));
    app.clock().advance(DUE);
    scene.check().await;
    for talk in &mut talks {
        while talk.next().await.is_some() {}
    }
    while sse.next().await.is_some() {}
    for stream in &mut streams {
        while stream.next().await.is_some() {}
    }
    eventually("the server need not go on", async || fake.running_calls() == 0).await;
    // Others are not affected.
    app.post("/api/v0/tools/disable?entity=s__echo", json!({})).await.expect(200);
    bystander.expect("notifications/tools/list_changed").await;
}

fn all_lists() -> Value {
    json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true})
}
