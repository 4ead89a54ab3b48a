//! Random rules, held against a simple model: lists, calls, prompts, resources, completion, subscriptions, endpoints, the
//! REST API and the explanations all show and allow exactly what the model does.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::{Agent, Behaviour, Fake, TestApp};

pub const SERVERS: [&str; 2] = ["alpha", "beta"];
pub const TOOLS: [&str; 4] = ["get_one", "get_two", "delete_one", "run"];
pub const PROMPTS: [&str; 2] = ["get_one", "greet"];
pub const URIS: [&str; 2] = ["x://one", "x://two"];
/// A URI that no list has, and the template makes.
const MADE: &str = "t://made";

pub const ENTRIES: [&str; 22] = [
    "*",
    "!*",
    "alpha",
    "beta",
    "!alpha",
    "!beta",
    "alpha__get_*",
    "alpha__*",
    "alpha__run",
    "!alpha__delete_*",
    "!alpha__*",
    "*__get_one",
    "!*__*_one",
    "beta__delete_one",
    "!beta__run",
    "group:some",
    "!group:some",
    "group:all",
    "!group:all",
    "group:gone",
    "gone",
    "gone__x",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    Tool(&'static str),
    Prompt(&'static str),
    Resource(&'static str),
    Template,
}

/// Everything that each server has.
pub fn things() -> impl Iterator<Item = (&'static str, Thing)> {
    SERVERS.into_iter().flat_map(|server| {
        let tools = TOOLS.into_iter().map(Thing::Tool);
        let named = tools.chain(PROMPTS.into_iter().map(Thing::Prompt));
        let all = named.chain(URIS.into_iter().map(Thing::Resource)).chain([Thing::Template]);
        all.map(move |thing| (server, thing))
    })
}

/// `some` has one tool of each server, and one resource; `all` has everything of alpha, but one tool.
fn in_group(group: &str, server: &str, thing: Thing) -> bool {
    match group {
        "some" => match thing {
            Thing::Tool(tool) => tool == "run",
            Thing::Prompt(prompt) => server == "beta" && prompt == "greet",
            Thing::Resource(uri) => uri == "x://one",
            Thing::Template => false,
        },
        "all" => server == "alpha" && thing != Thing::Tool("get_two"),
        _ => false,
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => {
            let Some(left) = name.strip_prefix(start) else { return false };
            (0..=left.len()).any(|at| fits(rest, &left[at..]))
        }
    }
}

fn is_about(entry: &str, server: &str, thing: Thing) -> bool {
    let entry = entry.trim_start_matches('!');
    if let Some(group) = entry.strip_prefix("group:") {
        return in_group(group, server, thing);
    }
    match (entry.split_once("__"), thing) {
        (None, _) => entry == "*" || entry == server,
        (Some((of, pattern)), Thing::Tool(name) | Thing::Prompt(name)) => {
            (of == "*" || of == server) && fits(pattern, name)
        }
        (Some(_), Thing::Resource(_) | Thing::Template) => false,
    }
}

pub fn is_allowed(rules: &[&str], server: &str, thing: Thing) -> bool {
    let (denies, allows): (Vec<&str>, Vec<&str>) =
        rules.iter().copied().partition(|rule| rule.starts_with('!'));
    allows.iter().any(|rule| is_about(rule, server, thing))
        && !denies.iter().any(|rule| is_about(rule, server, thing))
}

/// Nothing is disabled but `alpha__run`.
pub fn is_enabled(server: &str, thing: Thing) -> bool {
    (server, thing) != ("alpha", Thing::Tool("run"))
}

pub fn seen(rules: &[&str]) -> BTreeSet<(&'static str, Thing)> {
    things()
        .filter(|(server, thing)| is_enabled(server, *thing) && is_allowed(rules, server, *thing))
        .collect()
}

fn sees_server(rules: &[&str], server: &str) -> bool {
    seen(rules).iter().any(|(of, _)| *of == server)
}

/// People also see what is disabled, unless only a group has it.
fn manages_server(rules: &[&str], server: &str) -> bool {
    let named: Vec<_> = rules.iter().copied().filter(|rule| !rule.starts_with("group:")).collect();
    sees_server(rules, server)
        || things().any(|(of, thing)| of == server && is_allowed(&named, server, thing))
}

/// The qualified form of a URI.
pub fn qualified(server: &str, uri: &str) -> String {
    use base64::Engine;
    format!("toolgate://res/{server}/{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(uri))
}

pub struct House {
    pub app: TestApp,
    pub fakes: [Fake; 2],
    pub client: String,
    user: String,
}

pub async fn build() -> House {
    let app = TestApp::start_enterprise().await;
    let tools: Vec<_> =
        TOOLS.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    let prompts: Vec<_> = PROMPTS
        .iter()
        .map(|name| json!({"name": name, "arguments": [{"name": "who", "required": false}]}))
        .collect();
    let resources: Vec<_> = URIS.iter().map(|uri| json!({"uri": uri, "name": uri})).collect();
    let templates = json!([{"uriTemplate": "t://{name}", "name": "made"}]);
    let rendered = PROMPTS.iter().map(|name| ((*name).to_owned(), json!({"messages": []})));
    let read = URIS.iter().chain([&MADE]);
    let read = read.map(|uri| ((*uri).to_owned(), json!({"contents": [{"uri": uri, "text": "x"}]})));
    let results: serde_json::Map<_, _> = rendered.chain(read).collect();
    let behaviour = |era: &str| {
        Behaviour::of(json!({"era": era, "tools": tools, "prompts": prompts, "resources": resources,
            "templates": templates, "results": results}))
    };
    let fakes = [Fake::start(behaviour("legacy")).await, Fake::start(behaviour("modern")).await];
    for (server, fake) in SERVERS.iter().zip(&fakes) {
        app.register_http(server, fake).await;
    }
    app.post("/api/v0/tools/disable?entity=alpha__run", json!({})).await.expect(200);
    let some = json!({"name": "some", "included_tools": ["alpha__run", "beta__run"],
        "included_prompts": ["beta__greet"], "included_resources": ["x://one"]});
    let all = json!({"name": "all", "included_servers": ["alpha"], "excluded_tools": ["alpha__get_two"],
        "included_prompts": ["*"], "included_resources": ["*"]});
    for group in [some, all] {
        app.post("/api/v0/tool-groups", group).await.expect(201);
    }
    let client = app.create_client("agent", &[]).await;
    let user = app.create_user("ann", "user").await;
    House { app, fakes, client, user }
}

impl House {
    async fn check(&self, rules: &[&str]) {
        self.app.put("/api/v0/clients/agent", json!({"allow_list": rules})).await.expect(200);
        self.app.put("/api/v0/users/ann", json!({"allow_list": rules})).await.expect(200);
        self.check_agent(rules).await;
        self.check_endpoints(rules).await;
        self.check_rest(rules).await;
        self.check_explanations(rules).await;
    }

    async fn check_agent(&self, rules: &[&str]) {
        let agent = Agent::connect_as(&self.app, "/mcp", &self.client).await;
        let seen = seen(rules);
        let full = |server: &str, name: &str| format!("{server}__{name}");
        let names = |pick: fn(Thing) -> Option<&'static str>| -> Vec<String> {
            let mut names: Vec<_> =
                seen.iter().filter_map(|(server, thing)| Some(full(server, pick(*thing)?))).collect();
            names.sort();
            names
        };
        let tools = names(|thing| if let Thing::Tool(name) = thing { Some(name) } else { None });
        let prompts = names(|thing| if let Thing::Prompt(name) = thing { Some(name) } else { None });
        assert_eq!(agent.tools().await, tools, "{rules:?}");
        assert_eq!(agent.list("prompts/list", "prompts", "name").await, prompts, "{rules:?}");
        let uris: BTreeSet<_> = agent.list("resources/list", "resources", "uri").await.into_iter().collect();
        let is_shared = |uri: &str| SERVERS.iter().all(|server| is_allowed(rules, server, resource(uri)));
        let expected = seen.iter().filter_map(|(server, thing)| match thing {
            Thing::Resource(uri) if is_shared(uri) => Some(qualified(server, uri)),
            Thing::Resource(uri) => Some((*uri).to_owned()),
            Thing::Tool(_) | Thing::Prompt(_) | Thing::Template => None,
        });
        assert_eq!(uris, expected.collect(), "{rules:?}");
        let templates = agent.list("resources/templates/list", "resourceTemplates", "uriTemplate").await;
        assert_eq!(
            templates.len(),
            seen.iter().filter(|(_, thing)| *thing == Thing::Template).count(),
            "{rules:?}"
        );
        for (server, thing) in things() {
            self.check_use(&agent, rules, server, thing).await;
        }
    }

    /// Uses something in every way. What is not allowed is answered like what does not exist.
    async fn check_use(&self, agent: &Agent, rules: &[&str], server: &str, thing: Thing) {
        let is_seen = is_enabled(server, thing) && is_allowed(rules, server, thing);
        let complete =
            |reference: Value| json!({"ref": reference, "argument": {"name": "who", "value": "a"}});
        let requests: Vec<(&str, Value, Value)> = match thing {
            Thing::Tool(name) => vec![(
                "tools/call",
                json!({"name": format!("{server}__{name}"), "arguments": {}}),
                json!({"name": format!("absent__{name}"), "arguments": {}}),
            )],
            Thing::Prompt(name) => {
                let prompt = |server: &str| format!("{server}__{name}");
                let reference =
                    |server: &str| complete(json!({"type": "ref/prompt", "name": prompt(server)}));
                vec![
                    ("prompts/get", json!({"name": prompt(server)}), json!({"name": prompt("absent")})),
                    ("completion/complete", reference(server), reference("absent")),
                ]
            }
            Thing::Resource(uri) => ["resources/read", "resources/subscribe"]
                .map(|method| {
                    (method, json!({"uri": qualified(server, uri)}), json!({"uri": qualified("absent", uri)}))
                })
                .into(),
            Thing::Template => vec![(
                "resources/read",
                json!({"uri": qualified(server, MADE)}),
                json!({"uri": qualified("absent", MADE)}),
            )],
        };
        for (method, asked, unknown) in requests {
            let answer = agent.request(method, asked.clone()).await;
            if is_seen {
                assert!(answer.get("result").is_some(), "{rules:?} {method} {asked}: {answer}");
                continue;
            }
            let unknown_answer = agent.request(method, unknown).await;
            let said = |answer: &Value, of: &str| {
                let text = match thing {
                    Thing::Resource(uri) => answer.to_string().replace(&qualified(of, uri), "<uri>"),
                    Thing::Template => answer.to_string().replace(&qualified(of, MADE), "<uri>"),
                    Thing::Tool(_) | Thing::Prompt(_) => answer.to_string().replace(of, "<server>"),
                };
                let id = answer["id"].to_string();
                text.replacen(&format!("\"id\":{id}"), "\"id\":0", 1)
            };
            assert!(answer.get("error").is_some(), "{rules:?} {method} {asked}: {answer}");
            assert_eq!(said(&answer, server), said(&unknown_answer, "absent"), "{rules:?} {method} {asked}");
        }
    }

    async fn check_endpoints(&self, rules: &[&str]) {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        for server in SERVERS {
            let path = format!("/v0/servers/{server}/mcp");
            let answer = self.app.send_as(&self.client, "POST", &path, list.clone()).await;
            let is_visible = sees_server(rules, server);
            assert_eq!(answer.status, if is_visible { 200 } else { 404 }, "{rules:?} {path}");
            if is_visible {
                let agent = Agent::connect_as(&self.app, &path, &self.client).await;
                let mut tools = agent.tools().await;
                tools.sort();
                let expected = seen(rules).into_iter().filter(|(of, _)| *of == server);
                let expected = expected.filter_map(|(_, thing)| match thing {
                    Thing::Tool(name) => Some(name.to_owned()),
                    Thing::Prompt(_) | Thing::Resource(_) | Thing::Template => None,
                });
                let mut expected: Vec<_> = expected.collect();
                expected.sort();
                assert_eq!(tools, expected, "{rules:?} {path}");
                let read = agent.request("resources/read", json!({"uri": "x://one"})).await;
                let may_read = is_allowed(rules, server, Thing::Resource("x://one"));
                assert_eq!(read.get("result").is_some(), may_read, "{rules:?} {path}: {read}");
            }
        }
        for group in ["some", "all"] {
            let path = format!("/v0/groups/{group}/mcp");
            let inside = seen(rules).into_iter().filter(|(server, thing)| in_group(group, server, *thing));
            let inside: Vec<_> = inside.collect();
            let answer = self.app.send_as(&self.client, "POST", &path, list.clone()).await;
            let is_allowed_member = |(server, thing): (&str, Thing)| {
                in_group(group, server, thing) && is_allowed(rules, server, thing)
            };
            // A group with a server that is allowed as a whole exists, whatever the server has.
            if things().any(is_allowed_member) {
                assert_eq!(answer.status, 200, "{rules:?} {path}");
                let tools = Agent::connect_as(&self.app, &path, &self.client).await.tools().await;
                let expected = inside.iter().filter_map(|(server, thing)| match thing {
                    Thing::Tool(name) => Some(format!("{server}__{name}")),
                    Thing::Prompt(_) | Thing::Resource(_) | Thing::Template => None,
                });
                let mut expected: Vec<_> = expected.collect();
                expected.sort();
                assert_eq!(tools, expected, "{rules:?} {path}");
            } else if answer.status == 200 {
                let tools = Agent::connect_as(&self.app, &path, &self.client).await.tools().await;
                assert_eq!(tools, Vec::<String>::new(), "{rules:?} {path}");
            }
        }
    }

    async fn check_rest(&self, rules: &[&str]) {
        let get = async |path: &str, key: &str| -> BTreeSet<String> {
            let list = self.app.send_as(&self.user, "GET", path, json!({})).await.expect(200).json();
            list.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
        };
        // Management shows what is disabled, too.
        let allowed: Vec<_> = things().filter(|(server, thing)| is_allowed(rules, server, *thing)).collect();
        let visible = |server: &str| manages_server(rules, server);
        let names = |pick: fn(Thing) -> Option<&'static str>| -> BTreeSet<String> {
            let shown = allowed.iter().filter(|(server, _)| visible(server));
            shown.filter_map(|(server, thing)| Some(format!("{server}__{}", pick(*thing)?))).collect()
        };
        let tools = names(|thing| if let Thing::Tool(name) = thing { Some(name) } else { None });
        let prompts = names(|thing| if let Thing::Prompt(name) = thing { Some(name) } else { None });
        assert_eq!(get("/api/v0/tools", "name").await, tools, "{rules:?}");
        assert_eq!(get("/api/v0/prompts", "name").await, prompts, "{rules:?}");
        let servers: BTreeSet<_> =
            SERVERS.iter().filter(|server| visible(server)).map(|server| (*server).to_owned()).collect();
        assert_eq!(get("/api/v0/servers", "name").await, servers, "{rules:?}");
        for (server, thing) in things() {
            let may_use = is_allowed(rules, server, thing) && visible(server);
            let (path, body) = match thing {
                Thing::Tool(name) => ("/api/v0/tools/invoke", json!({"name": format!("{server}__{name}")})),
                Thing::Prompt(name) => {
                    ("/api/v0/prompts/render", json!({"name": format!("{server}__{name}")}))
                }
                Thing::Resource(uri) => ("/api/v0/resources/read", json!({"uri": qualified(server, uri)})),
                Thing::Template => ("/api/v0/resources/read", json!({"uri": qualified(server, MADE)})),
            };
            let answer = self.app.send_as(&self.user, "POST", path, body.clone()).await;
            let status = if may_use { 200 } else { 404 };
            assert_eq!(answer.status, status, "{rules:?} {path} {body}: {}", answer.text());
        }
    }

    async fn check_explanations(&self, rules: &[&str]) {
        for (server, thing) in things() {
            let Thing::Tool(name) = thing else { continue };
            // A prompt of the same name may be allowed where the tool is not.
            let is_seen = |thing| is_enabled(server, thing) && is_allowed(rules, server, thing);
            let expected = is_seen(thing) || PROMPTS.contains(&name) && is_seen(Thing::Prompt(name));
            for subject in ["client:agent", "user:ann"] {
                let path = format!("/api/v0/access/explain?subject={subject}&name={server}__{name}");
                let told = self.app.get(&path).await.expect(200).json();
                assert_eq!(told["allowed"], expected, "{rules:?} {path}: {told}");
                if expected {
                    assert!(!told["rules"].as_array().unwrap().is_empty(), "{rules:?} {path}: {told}");
                } else {
                    let is_disabled = told["reason"].as_str().unwrap().contains("is disabled");
                    assert_eq!(is_disabled, is_allowed(rules, server, thing), "{rules:?} {path}: {told}");
                }
            }
            let path = format!("/api/v0/access/explain?subject=user:ann&name={server}__{name}");
            let told = self.app.send_as(&self.user, "GET", &path, json!({})).await.expect(200).json();
            let reason = if expected { "allowed" } else { "unknown or not allowed" };
            assert_eq!(told, json!({"allowed": expected, "reason": reason}), "{rules:?} {path}");
        }
    }
}

pub fn resource(uri: &str) -> Thing {
    Thing::Resource(URIS.into_iter().find(|known| *known == uri).unwrap())
}

#[test]
fn everybody_sees_and_uses_what_the_rules_allow() {
    let config =
        ProptestConfig { cases: 20, max_shrink_iters: 60, failure_persistence: None, ..Default::default() };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let house = runtime.block_on(build());
    let outcome = TestRunner::new(config).run(&vec(select(&ENTRIES[..]), 0..5), |rules| {
        runtime.block_on(house.check(&rules));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    runtime.block_on(async move { drop(house) });
}
