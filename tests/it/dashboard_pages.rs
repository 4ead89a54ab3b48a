//! The dashboard's pages and the modes they exist in, that they show no secrets, and the OpenAPI document.

use std::collections::BTreeSet;

use model::Mode;
use serde_json::{Value, json};
use toolgate::routes::{AccessLevel, MCP, table};

use crate::support::{Answer, Behaviour, Fake, TestApp};

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_all_it_loads_come_from_the_gateway() {
    let app = TestApp::start().await;
    let page = app.get("/").await.expect(200);
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    assert_eq!(app.get("/index.html").await.expect(200).body, page.body);
    let html = page.text();
    assert!(!html.contains("http://") && !html.contains("https://"), "{html}");
    assert!(!html.contains("<style") && !html.contains("onclick"), "{html}");
    let loaded: Vec<_> = html.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(loaded.len() >= 3, "{html}");
    for path in loaded {
        let file = app.get(path).await.expect(200);
        assert!(!file.body.is_empty(), "{path}");
        let policy = header(&file, "content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("img-src 'self' data: blob:;"), "{policy}");
        assert!(policy.contains("media-src 'self' data: blob:;"), "{policy}");
        assert_eq!(header(&file, "x-content-type-options"), "nosniff");
        let etag = header(&file, "etag");
        let again = app.send("GET", path, &[("if-none-match", etag)], "").await.expect(304);
        assert!(again.body.is_empty());
        assert_eq!(header(&again, "etag"), etag);
        app.send("GET", path, &[("if-none-match", "W/\"other\"")], "").await.expect(200);
    }
    for missing in ["/assets/none.js", "/assets/", "/assets/../index.html", "/assets/a/b", "/assets/%2e%2e/x"]
    {
        app.get(missing).await.expect(404).error();
    }
    for method in ["POST", "PUT", "DELETE"] {
        app.send(method, "/", &[], "").await.expect(405).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_load_is_small() {
    let app = TestApp::start().await;
    let mut total = 0;
    for path in ["/", "/assets/app.js", "/assets/app.css", "/assets/icon.svg"] {
        let packed = app.send("GET", path, &[("accept-encoding", "br, gzip")], "").await.expect(200);
        total += packed.body.len();
        let plain = app.send("GET", path, &[("accept-encoding", "gzip;q=0")], "").await.expect(200);
        assert!(plain.headers.get("content-encoding").is_none());
        assert_eq!(header(&packed, "etag"), header(&plain, "etag"));
    }
    assert!(total < 150_000, "{total} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_development_mode_there_is_no_dashboard() {
    let app = TestApp::start_with(|config| config.mode = Mode::Enterprise).await;
    for route in table().iter().filter(|route| route.access == AccessLevel::Development) {
        let path = route.path.replace("{name}", "s").replace("{*path}", "app.js").replace("{id}", "0");
        let answer = app.send(route.method.as_str(), &path, &[], "{}").await;
        assert!(answer.expect(404).error().contains(&path), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_opens_an_enterprise_gateway_learns_what_it_is() {
    let app = TestApp::start_with(|config| config.mode = Mode::Enterprise).await;
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let page = app.send("GET", "/", &browser, "").await.expect(404);
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    let policy = header(&page, "content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
    let html = page.text();
    assert!(html.contains("toolgate gateway") && html.contains("init-server"), "{html}");
    assert!(html.contains(&format!("http://{}/mcp", app.address)), "{html}");
    assert!(!html.contains("<script") && html.contains("light dark"), "{html}");
    let initialized = TestApp::start_enterprise().await;
    let html = initialized.send("GET", "/", &browser, "").await.expect(404).text();
    assert!(!html.contains("init-server") && html.contains("create mcp-client"), "{html}");
    for (path, accept) in [("/", "*/*"), ("/", "application/json"), ("/api/dashboard/overview", "text/html")]
    {
        app.send("GET", path, &[("accept", accept)], "").await.expect(404).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_of_the_dashboard_has_a_secret() {
    let app = TestApp::start().await;
    let fake = Fake::start(Behaviour::of(json!({ "bearer": "quokka-0003" }))).await;
    let url = fake.url().replace("http://", "http://okapi:axolotl@") + "?key=tapir-0006#walrus-0007";
    let web = json!({ "name": "web", "transport": "streamable_http", "url": url,
        "headers": { "Authorization": "Bearer quokka-0003", "X-Key": "dugong-0004" },
        "oauth_client_id": "id", "oauth_client_secret": "narwhal-0008" });
    let (command, args) = crate::support::stdio_command(&Behaviour::of(json!({ "stderr": ["hello"] })));
    let words: Vec<_> = [command].into_iter().chain(args).map(|word| format!("'{word}'")).collect();
    // A shell, since the fake does not know such arguments.
    let args = json!([
        "-c",
        format!("exec {}", words.join(" ")),
        "--api-key",
        "gecko-0009",
        "--token=ibex-0010",
        "https://gnu:kudu@h/?k=eland-0011"
    ]);
    let local = json!({ "name": "local", "transport": "stdio", "command": "sh", "args": args,
        "env": { "TOKEN": "lemur-0001" }, "cwd": "/" });
    let mut said = String::new();
    for input in [&web, &local] {
        said += &app.post("/api/dashboard/servers", input.clone()).await.expect(201).text();
        said += &app.post("/api/dashboard/servers", input.clone()).await.expect(409).text();
    }
    let group = json!({ "name": "g", "included_servers": ["web"] });
    said += &app.post("/api/dashboard/tool-groups", group).await.expect(201).text();
    let failure = json!({ "code": -1, "message": "quokka-0003 dugong-0004 tapir-0006 axolotl" });
    fake.update(|behaviour| behaviour.fail = [("tools/call".into(), failure)].into());
    said += &app.post("/api/dashboard/tools/web__echo/invoke", json!({})).await.expect(500).text();
    for server in ["servers/web", "servers/local"] {
        let path = format!("/api/dashboard/{server}");
        said += &app.patch(&path, json!({ "description": "changed" })).await.expect(200).text();
        said += &app.get(&path).await.expect(200).text();
    }
    for page in ["overview", "servers", "tools", "prompts", "resources", "tool-groups", "diagnostics"] {
        said += &app.get(&format!("/api/dashboard/{page}")).await.expect(200).text();
    }
    assert!(said.contains("--api-key ••• --token=••• 'https://•••@h/?•••'"), "{said}");
    let secrets = ["quokka", "dugong", "tapir", "axolotl", "walrus", "narwhal", "lemur", "okapi"];
    for secret in secrets.into_iter().chain(["gecko", "ibex", "gnu", "kudu", "eland", "uthorization"]) {
        assert!(!said.contains(secret), "{secret} is in {said}");
    }
    assert!(said.contains("X-Key") && said.contains("TOKEN"), "names are no secrets");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_describes_exactly_the_routes_of_the_table() {
    let app = TestApp::start().await;
    let document = app.get("/api/v0/openapi.json").await.expect(200).json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let mut described = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let place = format!("{} {path}", method.to_uppercase());
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{place}");
            for (_, answer) in operation["responses"].as_object().unwrap() {
                assert!(answer["description"].is_string(), "{place}");
            }
            let names = path.matches('{').count();
            let parameters = operation["parameters"].as_array().map_or(0, |parameters| {
                parameters.iter().filter(|parameter| parameter["in"] == "path").count()
            });
            assert_eq!(parameters, names, "{place} names its parameters");
            described.insert((place, operation["x-access"].as_str().unwrap_or_default().to_owned()));
        }
    }
    let plain = |path: &str| path.replace("{*", "{");
    let mut routed: BTreeSet<_> = table()
        .iter()
        .map(|route| (format!("{} {}", route.method, plain(&route.path)), route.access.as_str().to_owned()))
        .collect();
    for path in MCP.map(|route| route.path) {
        routed.extend(described.iter().filter(|(place, _)| place.ends_with(&format!(" {path}"))).cloned());
        assert!(
            described
                .iter()
                .any(|(place, access)| place.ends_with(&format!(" {path}")) && access == "client")
        );
    }
    let missing: Vec<_> = routed.difference(&described).collect();
    assert!(missing.is_empty(), "in the table, not in the document: {missing:?}");
    let invented: Vec<_> = described.difference(&routed).collect();
    assert!(invented.is_empty(), "in the document, not in the table: {invented:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_reference_of_the_document_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
                object.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let app = TestApp::start().await;
    let document = app.get("/api/v0/openapi.json").await.expect(200).json();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 50);
    for reference in found {
        let target = document.pointer(reference.trim_start_matches('#'));
        assert!(target.is_some_and(Value::is_object), "{reference}");
    }
}
