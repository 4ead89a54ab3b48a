//! Random changes of users, clients and servers in any order: in every session, old or new, each caller sees and calls
//! exactly what a simple model allows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::{Agent, Answer, Behaviour, Fake, TestApp, bearer, client};

const SERVERS: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 2] = ["one", "two"];
/// Few tokens, so that they are released and used again.
const TOKENS: [&str; 4] = ["token-number-1", "token-number-2", "token-number-3", "token-number-4"];

#[derive(Clone, Debug)]
enum Step {
    CreateClient(&'static str, &'static str, Allowed),
    /// With a new token, or the current one.
    ReplaceClient(&'static str, Option<&'static str>, Allowed),
    DeleteClient(&'static str),
    CreateUser(&'static str, &'static str, bool),
    ChangeUser(&'static str, Option<&'static str>, bool),
    DeleteUser(&'static str),
    Register(&'static str),
    Remove(&'static str),
    /// A caller with that token opens a session and keeps it.
    Connect(&'static str),
    Restart,
}

/// `None` means everything.
type Allowed = Option<BTreeSet<&'static str>>;

fn step() -> impl Strategy<Value = Step> {
    let server = || select(&SERVERS[..]);
    let name = || select(&NAMES[..]);
    let token = || select(&TOKENS[..]);
    let maybe = || proptest::option::of(select(&TOKENS[..]));
    let allowed = || prop_oneof![1 => Just(None), 4 => btree_set(select(&SERVERS[..]), 0..=2).prop_map(Some)];
    prop_oneof![
        4 => (name(), token(), allowed()).prop_map(|(name, token, allowed)| Step::CreateClient(name, token, allowed)),
        3 => (name(), maybe(), allowed()).prop_map(|(name, token, allowed)| Step::ReplaceClient(name, token, allowed)),
        2 => name().prop_map(Step::DeleteClient),
        3 => (name(), token(), any::<bool>()).prop_map(|(name, token, admin)| Step::CreateUser(name, token, admin)),
        2 => (name(), maybe(), any::<bool>()).prop_map(|(name, token, admin)| Step::ChangeUser(name, token, admin)),
        2 => name().prop_map(Step::DeleteUser),
        3 => server().prop_map(Step::Register),
        1 => server().prop_map(Step::Remove),
        3 => token().prop_map(Step::Connect),
        1 => Just(Step::Restart),
    ]
}

#[derive(Clone, Debug)]
struct Client {
    token: &'static str,
    allowed: Allowed,
    /// Increases with every new client: a session belongs to one, whatever its token is.
    identity: usize,
}

/// The expected state, in its simplest form.
#[derive(Default)]
struct Model {
    servers: BTreeSet<&'static str>,
    clients: BTreeMap<&'static str, Client>,
    users: BTreeMap<&'static str, (&'static str, bool)>,
    identities: usize,
}

impl Model {
    fn is_taken(&self, token: &str) -> bool {
        self.clients.values().any(|client| client.token == token)
            || self.users.values().any(|(of_user, _)| *of_user == token)
    }

    fn client_of(&self, token: &str) -> Option<&Client> {
        self.clients.values().find(|client| client.token == token)
    }

    fn seen_by(&self, client: &Client) -> Vec<String> {
        let is_allowed =
            |server: &&&str| client.allowed.as_ref().is_none_or(|allowed| allowed.contains(**server));
        self.servers.iter().filter(is_allowed).map(|server| format!("{server}__add")).collect()
    }
}

/// An open session, with the token it was opened with, and whose that was.
struct Kept {
    token: &'static str,
    identity: usize,
    session: String,
}

struct Pair {
    app: TestApp,
    fake: Fake,
    model: Model,
    kept: Vec<Kept>,
    asked: AtomicU32,
}

fn written(allowed: &Allowed) -> Value {
    allowed.as_ref().map_or(json!(["*"]), |servers| json!(servers))
}

impl Pair {
    async fn take(mut self, step: Step) -> Self {
        let (app, model) = (&self.app, &mut self.model);
        match step {
            Step::CreateClient(name, token, allowed) => {
                let body = json!({"name": name, "access_token": token, "allow_list": written(&allowed)});
                let is_free = !model.clients.contains_key(name) && !model.is_taken(token);
                app.post("/api/v0/clients", body).await.expect(if is_free { 201 } else { 409 });
                if is_free {
                    model.identities += 1;
                    model.clients.insert(name, Client { token, allowed, identity: model.identities });
                }
            }
            Step::ReplaceClient(name, token, allowed) => {
                let body = json!({"access_token": token, "allow_list": written(&allowed)});
                let answer = app.put(&format!("/api/v0/clients/{name}"), body).await;
                let Some(before) = model.clients.get(name).cloned() else {
                    answer.expect(404);
                    return self;
                };
                let is_new = token.is_some_and(|token| token != before.token);
                if is_new && model.is_taken(token.unwrap()) {
                    answer.expect(409);
                    return self;
                }
                answer.expect(200);
                let token = token.unwrap_or(before.token);
                model.clients.insert(name, Client { token, allowed, identity: before.identity });
            }
            Step::DeleteClient(name) => {
                let status = if model.clients.remove(name).is_some() { 204 } else { 404 };
                app.delete(&format!("/api/v0/clients/{name}")).await.expect(status);
            }
            Step::CreateUser(name, token, is_admin) => {
                let role = if is_admin { "admin" } else { "user" };
                let body = json!({"username": name, "access_token": token, "role": role});
                let is_free = !model.users.contains_key(name) && !model.is_taken(token);
                app.post("/api/v0/users", body).await.expect(if is_free { 201 } else { 409 });
                if is_free {
                    model.users.insert(name, (token, is_admin));
                }
            }
            Step::ChangeUser(name, token, is_admin) => {
                let role = if is_admin { "admin" } else { "user" };
                let answer = app
                    .put(&format!("/api/v0/users/{name}"), json!({"access_token": token, "role": role}))
                    .await;
                let Some((before, _)) = model.users.get(name).copied() else {
                    answer.expect(404);
                    return self;
                };
                if token.is_some_and(|token| token != before && model.is_taken(token)) {
                    answer.expect(409);
                    return self;
                }
                answer.expect(200);
                model.users.insert(name, (token.unwrap_or(before), is_admin));
            }
            Step::DeleteUser(name) => {
                let status = if model.users.remove(name).is_some() { 204 } else { 404 };
                app.delete(&format!("/api/v0/users/{name}")).await.expect(status);
            }
            Step::Register(server) => {
                let body = json!({"name": server, "transport": "streamable_http", "url": self.fake.url()});
                let status = if model.servers.insert(server) { 201 } else { 409 };
                app.post("/api/v0/servers", body).await.expect(status);
            }
            Step::Remove(server) => {
                let status = if model.servers.remove(server) { 204 } else { 404 };
                app.delete(&format!("/api/v0/servers/{server}")).await.expect(status);
            }
            Step::Connect(token) => {
                if let Some(client) = model.client_of(token) {
                    let session = Agent::connect_as(app, "/mcp", token).await.session;
                    self.kept.push(Kept { token, identity: client.identity, session });
                }
            }
            Step::Restart => self.app = self.app.restart().await,
        }
        self
    }

    async fn check(&self) {
        for token in TOKENS {
            self.check_agent(token).await;
            let status = self.ask(token, "GET", "/api/v0/tools", &[], "").await.status;
            let admin_status = self.ask(token, "GET", "/api/v0/clients", &[], "").await.status;
            let role =
                self.model.users.values().find(|(of_user, _)| *of_user == token).map(|(_, admin)| *admin);
            let expected = match role {
                None => (401, 401),
                Some(false) => (200, 403),
                Some(true) => (200, 200),
            };
            assert_eq!((status, admin_status), expected, "{token} as a user");
        }
        for kept in &self.kept {
            let headers = [("mcp-session-id", kept.session.as_str())];
            let (status, tools) = self.list(kept.token, "/mcp", &headers).await;
            match self.model.client_of(kept.token) {
                None => assert_eq!(status, 401),
                Some(client) if client.identity == kept.identity => {
                    assert_eq!(tools, self.model.seen_by(client))
                }
                Some(_) => assert_eq!(status, 404, "a session of an earlier holder"),
            }
        }
    }

    async fn check_agent(&self, token: &'static str) {
        let (status, tools) = self.list(token, "/mcp", &[]).await;
        let Some(client) = self.model.client_of(token) else {
            assert_eq!(status, 401, "{token} as an agent");
            return;
        };
        let seen = self.model.seen_by(client);
        assert_eq!(tools, seen, "{token}");
        for server in SERVERS {
            let may = seen.contains(&format!("{server}__add"));
            let params = json!({"name": format!("{server}__add"), "arguments": {"a": 1, "b": 1}});
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let answer = self.app.send_as(token, "POST", "/mcp", body).await.expect(200).json();
            assert_eq!(answer.get("result").is_some(), may, "{token} {server}: {answer}");
            let (status, _) = self.list(token, &format!("/v0/servers/{server}/mcp"), &[]).await;
            assert_eq!(status, if may { 200 } else { 404 }, "{token} {server}");
        }
    }

    /// Each request has another client address, because this test sends many wrong tokens.
    async fn ask(&self, token: &str, method: &str, path: &str, more: &[(&str, &str)], body: &str) -> Answer {
        let source = Ipv4Addr::from(self.asked.fetch_add(1, Ordering::Relaxed)).to_string();
        let authorization = bearer(token);
        let mut headers =
            vec![("authorization", authorization.as_str()), ("x-forwarded-for", source.as_str())];
        headers.extend(more);
        client::request(&self.app.address, method, path, &headers, body.into()).await
    }

    /// The status and the names of `tools/list`.
    async fn list(&self, token: &str, path: &str, more: &[(&str, &str)]) -> (u16, Vec<String>) {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
        let answer = self.ask(token, "POST", path, more, &body).await;
        if answer.status != 200 {
            return (answer.status, Vec::new());
        }
        let tools = answer.json()["result"]["tools"].as_array().unwrap().clone();
        (200, tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect())
    }
}

#[test]
fn callers_see_and_call_only_what_they_may() {
    let config =
        ProptestConfig { cases: 16, max_shrink_iters: 100, failure_persistence: None, ..Default::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcome = TestRunner::new(config).run(&vec(step(), 1..25), |steps| {
        runtime.block_on(async {
            let fake =
                Fake::start(Behaviour::of(json!({"prompts": [], "resources": [], "templates": []}))).await;
            fake.set_tools(&["add"]);
            let app = TestApp::start_enterprise_with(|config| config.trust_proxy = true).await;
            let mut pair =
                Pair { app, fake, model: Model::default(), kept: Vec::new(), asked: AtomicU32::new(0) };
            for step in steps {
                pair = pair.take(step).await;
                pair.check().await;
            }
        });
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
