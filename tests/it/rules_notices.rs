//! Notifications, held against the same model as lists and calls: changed lists, updated resources, and what others log and do
//! reach those only who may see what they are about, in both eras. A change of rules is a change of lists.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::rules_model::{
    ENTRIES, House, SERVERS, Thing, URIS, build, is_allowed, is_enabled, qualified, resource, seen,
};
use crate::support::mcp::Talk;
use crate::support::person::{Person, Software};
use crate::support::{Agent, Behaviour, Fake, FakeProvider, ModernAgent, TestApp, eventually};

const KINDS: [&str; 3] = ["tools", "prompts", "resources"];
const UPDATED: &str = "notifications/resources/updated";

fn everything() -> Value {
    let uris: Vec<_> = places().map(|(server, uri)| qualified(server, uri)).collect();
    json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": uris})
}

fn places() -> impl Iterator<Item = (&'static str, &'static str)> {
    SERVERS.into_iter().flat_map(|server| URIS.into_iter().map(move |uri| (server, uri)))
}

/// What the list of a kind shows with these rules. The same entries of another server are the same list.
fn shown(rules: &[&str], kind: &str) -> Vec<String> {
    let is_shared = |uri: &str| SERVERS.iter().all(|server| is_allowed(rules, server, resource(uri)));
    let things = seen(rules).into_iter();
    let shown = things.filter_map(|(server, thing)| match (kind, thing) {
        ("tools", Thing::Tool(name)) | ("prompts", Thing::Prompt(name)) => Some(format!("{server}__{name}")),
        ("resources", Thing::Resource(uri)) if is_shared(uri) => Some(qualified(server, uri)),
        ("resources", Thing::Resource(uri)) => Some(uri.to_owned()),
        ("resources", Thing::Template) => Some("t://{name}".to_owned()),
        _ => None,
    });
    let mut shown: Vec<_> = shown.collect();
    shown.sort();
    shown
}

/// Somebody with a stream of each era, subscribed to everything that they may see.
struct Listener {
    streams: [Talk; 2],
    /// Keeps the session.
    _agent: Agent,
}

impl Listener {
    async fn start(house: &House, token: &str, rules: &[&str]) -> Self {
        let agent = Agent::connect_as(&house.app, "/mcp", token).await;
        let legacy = agent.listen().await;
        let (modern, granted) =
            ModernAgent::at(&house.app, "/mcp").using(token).listen(json!(1), everything()).await;
        let uris = granted["resourceSubscriptions"].as_array().cloned().unwrap_or_default();
        for (server, uri) in places() {
            let (asked, may_see) = (qualified(server, uri), is_allowed(rules, server, resource(uri)));
            let answer = agent.request("resources/subscribe", json!({"uri": asked})).await;
            assert_eq!(answer.get("result").is_some(), may_see, "{rules:?} {server} {uri}: {answer}");
            assert_eq!(uris.contains(&json!(asked)), may_see, "{rules:?} {server} {uri}: {granted}");
        }
        Self { streams: [legacy, modern], _agent: agent }
    }

    /// The next message of each stream must be this one.
    async fn expect(&mut self, what: &str, method: &str, uri: Option<&str>) {
        for stream in &mut self.streams {
            let notice = stream.next().await.unwrap_or_else(|| panic!("{what}: ended before {method}"));
            assert_eq!(notice["method"], method, "{what}: {notice}");
            assert_eq!(notice["params"]["uri"].as_str(), uri, "{what}: {notice}");
        }
    }

    /// Nothing may come before the end.
    async fn expect_end(&mut self, what: &str) {
        for stream in &mut self.streams {
            while let Some(message) = stream.next().await {
                assert!(message.get("method").is_none(), "{what}: {message}");
            }
        }
    }
}

struct Scene<'a> {
    house: &'a House,
    witness: &'a mut Listener,
    agent: Listener,
    what: String,
}

impl Scene<'_> {
    /// Every resource is updated. Only those reach the agent to which it subscribed, and which it may see.
    async fn update_resources(&mut self, subscribed: &[&str], rules: &[&str]) {
        for (number, server) in SERVERS.into_iter().enumerate() {
            for uri in URIS {
                self.house.fakes[number].notify_resource_updated(uri);
                let name = qualified(server, uri);
                self.witness.expect("witness", UPDATED, Some(&name)).await;
                let may_see = |rules: &[&str]| is_allowed(rules, server, resource(uri));
                if may_see(subscribed) && may_see(rules) {
                    self.agent.expect(&self.what, UPDATED, Some(&name)).await;
                }
            }
        }
    }

    /// A tool disappears and comes back.
    async fn change_lists(&mut self, rules: &[&str]) {
        for (server, tool) in [("alpha", "get_one"), ("beta", "delete_one")] {
            for verb in ["disable", "enable"] {
                let path = format!("/api/v0/tools/{verb}?entity={server}__{tool}");
                self.house.app.post(&path, json!({})).await.expect(200);
                self.witness.expect("witness", "notifications/tools/list_changed", None).await;
                let thing = Thing::Tool(tool);
                if is_enabled(server, thing) && is_allowed(rules, server, thing) {
                    self.agent.expect(&self.what, "notifications/tools/list_changed", None).await;
                }
            }
        }
    }

    /// What servers say beside all calls is for nobody.
    fn make_noise(&self) {
        for fake in &self.house.fakes {
            let state = fake.handle();
            state.notify("notifications/message", &json!({"level": "error", "data": "of somebody else"}));
            state.notify("notifications/progress", &json!({"progressToken": 1, "progress": 1}));
        }
    }

    async fn change_rules(&mut self, before: &[&str], after: &[&str]) {
        self.house.app.put("/api/v0/clients/agent", json!({"allow_list": after})).await.expect(200);
        for kind in KINDS {
            if shown(before, kind) != shown(after, kind) {
                let method = format!("notifications/{kind}/list_changed");
                self.agent.expect(&self.what, &method, None).await;
            }
        }
    }
}

async fn check(house: &House, witness: &mut Listener, before: &[&str], after: &[&str]) {
    let client = json!({"name": "agent", "allow_list": before});
    let made = house.app.post("/api/v0/clients", client).await.expect(201).json();
    let token = made["access_token"].as_str().unwrap();
    let agent = Listener::start(house, token, before).await;
    let what = format!("{before:?}, then {after:?}");
    let mut scene = Scene { house, witness, agent, what };
    scene.make_noise();
    scene.update_resources(before, before).await;
    scene.change_lists(before).await;
    scene.change_rules(before, after).await;
    scene.make_noise();
    scene.update_resources(before, after).await;
    scene.change_lists(after).await;
    house.app.delete("/api/v0/clients/agent").await.expect(204);
    let Scene { mut agent, what, .. } = scene;
    agent.expect_end(&what).await;
}

#[test]
fn notices_reach_those_only_who_may_see_what_they_are_about() {
    let config =
        ProptestConfig { cases: 16, max_shrink_iters: 0, failure_persistence: None, ..Default::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (house, witness) = runtime.block_on(async {
        let house = build().await;
        house.app.delete("/api/v0/clients/agent").await.expect(204);
        let token = house.app.create_client("witness", &["*"]).await;
        let witness = Listener::start(&house, &token, &["*"]).await;
        let [legacy, modern] = &house.fakes;
        eventually("the servers notify", async || {
            let listens = modern.seen_of("subscriptions/listen");
            let wanted = listens.last().map(|seen| &seen.params["notifications"]["resourceSubscriptions"]);
            let is_complete = wanted.and_then(Value::as_array).is_some_and(|uris| uris.len() == URIS.len());
            is_complete && modern.open_streams() > 0 && legacy.open_streams() > 0
        })
        .await;
        (house, std::cell::RefCell::new(witness))
    });
    let rules = || vec(select(&ENTRIES[..]), 0..4);
    let outcome = TestRunner::new(config).run(&(rules(), rules()), |(before, after)| {
        runtime.block_on(check(&house, &mut witness.borrow_mut(), &before, &after));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    runtime.block_on(async move { drop((house, witness)) });
}

/// A stream of each era.
async fn streams(app: &TestApp, token: &str) -> ([Talk; 2], Agent) {
    let agent = Agent::connect_as(app, "/mcp", token).await;
    let wanted = json!({"toolsListChanged": true});
    let modern = ModernAgent::at(app, "/mcp").using(token).listen(json!(1), wanted).await.0;
    ([agent.listen().await, modern], agent)
}

async fn expect_change(streams: &mut [Talk; 2]) {
    for stream in streams {
        stream.expect("notifications/tools/list_changed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_tool_group_reaches_those_whose_rules_name_it() {
    let app = TestApp::start_enterprise().await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "prompts": [], "resources": []}))).await;
    app.register_http("s", &fake).await;
    app.post("/api/v0/tool-groups", json!({"name": "g", "included_tools": ["s__echo"]})).await.expect(201);
    let client = async |name: &str, rules: &[&str]| {
        let token = app.create_client(name, rules).await;
        streams(&app, &token).await
    };
    let (mut named, named_agent) = client("named", &["group:g"]).await;
    let (mut denied, denied_agent) = client("denied", &["*", "!group:g"]).await;
    let (mut other, _agent) = client("other", &["s__add"]).await;
    let group = json!({"name": "g", "included_tools": ["s__echo", "s__slow"]});
    app.put("/api/v0/tool-groups/g", group).await.expect(200);
    expect_change(&mut named).await;
    expect_change(&mut denied).await;
    assert_eq!(named_agent.tools().await, ["s__echo", "s__slow"]);
    assert!(!denied_agent.tools().await.contains(&"s__slow".to_owned()));
    // The next thing that the other one hears is about its own tool, of which the first one hears nothing.
    app.post("/api/v0/tools/disable?entity=s__add", json!({})).await.expect(200);
    expect_change(&mut other).await;
    expect_change(&mut denied).await;
    app.delete("/api/v0/tool-groups/g").await.expect(204);
    expect_change(&mut named).await;
    expect_change(&mut denied).await;
    assert_eq!(named_agent.tools().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_an_idp_group_reaches_the_agents_of_its_members() {
    let provider = FakeProvider::start().await;
    let app = TestApp::start_enterprise_with(|config| provider.settings(config)).await;
    let fake = Fake::start(Behaviour::of(json!({"era": "legacy", "prompts": [], "resources": []}))).await;
    app.register_http("s", &fake).await;
    let allow = async |group: &str, rules: Value| {
        app.put(&format!("/api/v0/idp-groups/{group}"), json!({"allow_list": rules})).await.expect(200);
    };
    allow("*", json!([])).await;
    allow("eng", json!(["s__echo"])).await;
    let software = Software::register(&app, "https://agent.example/cb").await;
    let mut members = Vec::new();
    for (subject, name, group) in [("s-1", "ann", "eng"), ("s-2", "bob", "ops")] {
        let mut person = Person::default();
        provider.sign_in(&app, &mut person, (subject, name, &[group]), "").await.expect(303);
        let token = software.tokens(&app, &person, &[]).await.0;
        members.push(streams(&app, &token).await);
    }
    let [(ann, anns), (bob, bobs)] = &mut members[..] else { panic!("two") };
    allow("eng", json!(["s__echo", "s__add"])).await;
    expect_change(ann).await;
    assert_eq!(anns.tools().await, ["s__add", "s__echo"]);
    allow("ops", json!(["s__slow"])).await;
    expect_change(bob).await;
    assert_eq!(bobs.tools().await, ["s__slow"]);
    allow("*", json!(["s__fail"])).await;
    expect_change(ann).await;
    expect_change(bob).await;
    app.put("/api/v0/users/ann", json!({"allow_list": ["!s__echo"]})).await.expect(200);
    expect_change(ann).await;
    assert_eq!(anns.tools().await, ["s__add", "s__fail"]);
    app.delete("/api/v0/idp-groups/ops").await.expect(204);
    expect_change(bob).await;
    assert_eq!(bobs.tools().await, ["s__fail"]);
}
