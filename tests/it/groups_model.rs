//! Random changes by users and upstreams in any order: a group's effective tools are always those of a simple model.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::{Answer, Behaviour, Fake, TestApp, eventually};

/// One sorts before the other by server name and after it by full names.
const SERVERS: [&str; 3] = ["s", "s-b", "t"];
const TOOLS: [&str; 4] = ["a", "b", "c__c", "d"];
const GROUPS: [&str; 2] = ["g", "h"];

type Names = BTreeSet<&'static str>;

#[derive(Clone, Debug)]
enum Step {
    Register(&'static str),
    Replace(&'static str),
    Remove(&'static str),
    SwitchServer(&'static str, bool),
    SwitchTool(&'static str, &'static str, bool),
    SwitchTools(&'static str, bool),
    /// The upstream's tools change, and it announces that or is refreshed.
    Change(&'static str, Names, Tell),
    Create(&'static str, Group),
    Configure(&'static str, Group),
    Delete(&'static str),
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Tell {
    Notice,
    Refresh,
}

#[derive(Clone, Debug, Default)]
struct Group {
    servers: Names,
    tools: BTreeSet<(&'static str, &'static str)>,
    excluded: BTreeSet<(&'static str, &'static str)>,
}

fn step() -> impl Strategy<Value = Step> {
    let server = || select(&SERVERS[..]);
    let tool = || select(&TOOLS[..]);
    let name = || select(&GROUPS[..]);
    let tell = prop_oneof![Just(Tell::Notice), Just(Tell::Refresh)];
    prop_oneof![
        3 => server().prop_map(Step::Register),
        1 => server().prop_map(Step::Replace),
        1 => server().prop_map(Step::Remove),
        2 => (server(), any::<bool>()).prop_map(|(server, on)| Step::SwitchServer(server, on)),
        3 => (server(), tool(), any::<bool>()).prop_map(|(server, tool, on)| Step::SwitchTool(server, tool, on)),
        1 => (server(), any::<bool>()).prop_map(|(server, on)| Step::SwitchTools(server, on)),
        3 => (server(), btree_set(tool(), 0..=4), tell).prop_map(|(server, tools, tell)| Step::Change(server, tools, tell)),
        3 => (name(), group()).prop_map(|(name, group)| Step::Create(name, group)),
        2 => (name(), group()).prop_map(|(name, group)| Step::Configure(name, group)),
        1 => name().prop_map(Step::Delete),
        1 => Just(Step::Restart),
    ]
}

fn group() -> impl Strategy<Value = Group> {
    let server = || select(&SERVERS[..]);
    let tools = || btree_set((server(), select(&TOOLS[..])), 0..=3);
    (btree_set(server(), 0..=2), tools(), tools()).prop_map(|(servers, tools, excluded)| Group {
        servers,
        tools,
        excluded,
    })
}

/// The expected state, in its simplest form.
#[derive(Default)]
struct Model {
    /// What each upstream would list now, registered or not.
    upstreams: BTreeMap<&'static str, Names>,
    servers: BTreeMap<&'static str, Server>,
    groups: BTreeMap<&'static str, Group>,
}

struct Server {
    enabled: bool,
    listed: Names,
    disabled: Names,
}

impl Model {
    fn effective(&self, group: &Group) -> Vec<String> {
        let mut names = BTreeSet::new();
        for (server, known) in self.servers.iter().filter(|(_, server)| server.enabled) {
            for tool in known.listed.difference(&known.disabled) {
                let included = group.servers.contains(server) || group.tools.contains(&(*server, *tool));
                if included && !group.excluded.contains(&(*server, *tool)) {
                    names.insert(format!("{server}__{tool}"));
                }
            }
        }
        names.into_iter().collect()
    }

    fn accepts(&self, new: &Group, old: &Group) -> bool {
        let knows = |server: &&'static str| self.servers.contains_key(server) || old.servers.contains(server);
        let lists = |tool: &(&'static str, &'static str)| {
            self.servers.get(tool.0).is_some_and(|server| server.listed.contains(tool.1))
                || old.tools.contains(tool)
        };
        let is_empty = new.servers.is_empty() && new.tools.is_empty();
        !is_empty && new.servers.iter().all(knows) && new.tools.iter().all(lists)
    }
}

/// The gateway and the model, side by side.
struct Pair {
    app: TestApp,
    fakes: BTreeMap<&'static str, Fake>,
    model: Model,
}

impl Pair {
    async fn start() -> Self {
        let (mut fakes, mut model) = (BTreeMap::new(), Model::default());
        for (server, era) in SERVERS.into_iter().zip(["legacy", "modern", "legacy"]) {
            let fake = Fake::start(Behaviour::of(
                json!({"era": era, "prompts": [], "resources": [], "templates": []}),
            ));
            let fake = fake.await;
            fake.set_tools(&TOOLS[..2]);
            fakes.insert(server, fake);
            model.upstreams.insert(server, TOOLS[..2].iter().copied().collect());
        }
        Self { app: TestApp::start().await, fakes, model }
    }

    async fn take(mut self, step: Step) -> Self {
        let model = &mut self.model;
        match step {
            Step::Register(server) => {
                let status = if model.servers.contains_key(server) { 409 } else { 201 };
                self.register(server, "").await.expect(status);
                let listed = self.model.upstreams[server].clone();
                let new = Server { enabled: true, listed, disabled: Names::new() };
                self.model.servers.entry(server).or_insert(new);
            }
            Step::Replace(server) => {
                self.register(server, "?force=true").await.expect(201);
                let disabled = self.model.servers.remove(server).map(|old| old.disabled).unwrap_or_default();
                let listed = self.model.upstreams[server].clone();
                self.model.servers.insert(server, Server { enabled: true, listed, disabled });
            }
            Step::Remove(server) => {
                let status = if model.servers.remove(server).is_some() { 204 } else { 404 };
                self.app.delete(&format!("/api/v0/servers/{server}")).await.expect(status);
            }
            Step::SwitchServer(server, on) => {
                let known = model.servers.get_mut(server);
                let status = if known.is_some() { 200 } else { 404 };
                if let Some(known) = known {
                    known.enabled = on;
                }
                self.post(&format!("servers/{server}/{}", verb(on))).await.expect(status);
                self.catch_up(server).await;
            }
            Step::SwitchTool(server, tool, on) => {
                let known = model.servers.get_mut(server).filter(|known| known.listed.contains(tool));
                let status = if known.is_some() { 200 } else { 404 };
                if let Some(known) = known {
                    set(&mut known.disabled, tool, on);
                }
                self.post(&format!("tools/{}?entity={server}__{tool}", verb(on))).await.expect(status);
            }
            Step::SwitchTools(server, on) => {
                let known = model.servers.get_mut(server);
                let status = if known.is_some() { 200 } else { 404 };
                if let Some(known) = known {
                    for tool in &known.listed {
                        set(&mut known.disabled, tool, on);
                    }
                }
                self.post(&format!("tools/{}?entity={server}", verb(on))).await.expect(status);
            }
            Step::Change(server, tools, tell) => {
                self.fakes[server].set_tools(&tools.iter().copied().collect::<Vec<_>>());
                model.upstreams.insert(server, tools);
                let is_live = model.servers.get(server).is_some_and(|known| known.enabled);
                if let (true, Tell::Refresh) = (is_live, tell) {
                    self.post(&format!("servers/{server}/refresh")).await.expect(200);
                    self.relist(server);
                    self.check().await;
                }
                self.catch_up(server).await;
            }
            Step::Create(name, group) => {
                let is_empty = group.servers.is_empty() && group.tools.is_empty();
                let status = match model.groups.contains_key(name) {
                    true if !is_empty => 409,
                    false if model.accepts(&group, &Group::default()) => 201,
                    true | false => 400,
                };
                self.app.post("/api/v0/tool-groups", body(name, &group)).await.expect(status);
                if status == 201 {
                    self.model.groups.insert(name, group);
                }
            }
            Step::Configure(name, group) => {
                let status = match self.model.groups.get(name) {
                    None => 404,
                    Some(old) if self.model.accepts(&group, old) => 200,
                    Some(_) => 400,
                };
                self.app.put(&format!("/api/v0/tool-groups/{name}"), body(name, &group)).await.expect(status);
                if status == 200 {
                    self.model.groups.insert(name, group);
                }
            }
            Step::Delete(name) => {
                let status = if model.groups.remove(name).is_some() { 204 } else { 404 };
                self.app.delete(&format!("/api/v0/tool-groups/{name}")).await.expect(status);
            }
            Step::Restart => self.app = self.app.restart().await,
        }
        self.check().await;
        self
    }

    /// Checks the effective tools immediately, without waiting.
    async fn check(&self) {
        for name in GROUPS {
            let answer = self.app.get(&format!("/api/v0/tool-groups/{name}/effective-tools")).await;
            match self.model.groups.get(name) {
                None => drop(answer.expect(404)),
                Some(group) => {
                    let tools = self.model.effective(group);
                    assert_eq!(answer.expect(200).json(), json!({ "tools": tools }), "group {name}");
                }
            }
        }
    }

    /// Waits until a live server shows what its upstream lists; there is no event for that.
    async fn catch_up(&mut self, server: &'static str) {
        if !self.model.servers.get(server).is_some_and(|known| known.enabled) {
            return;
        }
        self.relist(server);
        let listed = self.model.upstreams[server].iter().map(|tool| format!("{server}__{tool}"));
        let (listed, query): (Vec<_>, _) = (listed.collect(), format!("?server={server}"));
        eventually("the list of the upstream", || async { self.app.tools(&query).await == listed }).await;
    }

    fn relist(&mut self, server: &'static str) {
        if let Some(known) = self.model.servers.get_mut(server) {
            known.listed = self.model.upstreams[server].clone();
        }
    }

    async fn register(&self, server: &str, query: &str) -> Answer {
        let input = json!({"name": server, "transport": "streamable_http", "url": self.fakes[server].url()});
        self.app.post(&format!("/api/v0/servers{query}"), input).await
    }

    async fn post(&self, path: &str) -> Answer {
        self.app.post(&format!("/api/v0/{path}"), json!({})).await
    }
}

fn body(name: &str, group: &Group) -> Value {
    let full = |tools: &BTreeSet<(&str, &str)>| {
        tools.iter().map(|(server, tool)| format!("{server}__{tool}")).collect::<Vec<_>>()
    };
    let (tools, excluded) = (full(&group.tools), full(&group.excluded));
    json!({"name": name, "included_servers": group.servers, "included_tools": tools, "excluded_tools": excluded})
}

fn verb(on: bool) -> &'static str {
    if on { "enable" } else { "disable" }
}

fn set(disabled: &mut Names, tool: &'static str, on: bool) {
    if on {
        disabled.remove(tool);
    } else {
        disabled.insert(tool);
    }
}

#[test]
fn effective_tools_are_what_a_simple_model_says() {
    let config =
        ProptestConfig { cases: 32, max_shrink_iters: 100, failure_persistence: None, ..Default::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcome = TestRunner::new(config).run(&vec(step(), 1..30), |steps| {
        runtime.block_on(async {
            let mut pair = Pair::start().await;
            for step in steps {
                pair = pair.take(step).await;
            }
        });
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
