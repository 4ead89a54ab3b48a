//! Resources and templates over REST: listing and reading.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use serde_json::{Value, json};

use crate::support::{Answer, Behaviour, Fake, TestApp, eventually};

async fn app_with(behaviour: Value) -> (TestApp, Fake) {
    let (app, fake) = (TestApp::start().await, Fake::start(Behaviour::of(behaviour)).await);
    app.register_http("s", &fake).await;
    (app, fake)
}

fn qualified(server: &str, uri: &str) -> String {
    format!("toolgate://res/{server}/{}", BASE64_URL_SAFE_NO_PAD.encode(uri))
}

async fn get(app: &TestApp, uri: &str) -> Answer {
    app.post("/api/v0/resources/get", json!({ "uri": uri })).await
}

async fn read(app: &TestApp, uri: &str) -> Answer {
    app.post("/api/v0/resources/read", json!({ "uri": uri })).await
}

/// Server and URI of each listed resource; `query` begins with `?` or is empty.
async fn listed(app: &TestApp, query: &str) -> Vec<(String, String)> {
    let resources = app.get(&format!("/api/v0/resources{query}")).await.expect(200).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    resources.as_array().unwrap().iter().map(|one| (text(&one["server"]), text(&one["uri"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_every_kind_of_server_are_listed_and_read() {
    let app = TestApp::start().await;
    let (servers, _fakes) = app.register_each_kind(&json!({ "page_size": 2 })).await;
    for server in servers {
        let record = |uri: &str, known: Value| {
            let mut record = json!({
                "uri": uri, "qualified_uri": qualified(&server, uri), "name": "", "title": "", "enabled": true,
                "description": "", "mime_type": "", "annotations": {}, "meta": {}, "server": server,
            });
            record.as_object_mut().unwrap().extend(known.as_object().unwrap().clone());
            record
        };
        let (mime_type, description) = ("application/octet-stream", "Four bytes");
        let blob = json!({"name": "blob", "description": description, "mime_type": mime_type});
        let annotations = json!({"audience": ["user"], "priority": 0.5});
        let text = json!({"name": "text", "title": "A text", "description": "Plain text",
            "mime_type": "text/plain", "annotations": annotations});
        let notes =
            json!({"name": "notes", "mime_type": "text/markdown", "meta": {"example.com/kept": true}});
        let records = json!([
            record("fake://blob", blob),
            record("fake://text", text),
            record("file:///fake/notes.md", notes),
        ]);
        let path = format!("/api/v0/resources?server={server}");
        assert_eq!(app.get(&path).await.expect(200).json(), records, "{server}");

        let path = format!("/api/v0/resource_templates?server={server}");
        let item = json!({"uri_template": "fake://item/{id}", "name": "item", "description": "One item",
            "mime_type": "text/plain", "server": server});
        let pair = json!({"uri_template": "fake://pair/{left}/{right}", "name": "pair", "description": "",
            "mime_type": "", "server": server});
        assert_eq!(app.get(&path).await.expect(200).json(), json!([item, pair]), "{server}");

        let uri = qualified(&server, "fake://text");
        assert_eq!(get(&app, &uri).await.expect(200).json(), records[1], "{server}");
        for (uri, content) in [
            ("fake://text", json!({"mimeType": "text/plain", "text": "content of fake://text"})),
            ("fake://blob", json!({"mimeType": mime_type, "blob": "AAH+/w=="})),
            ("fake://item/7", json!({"mimeType": "text/plain", "text": "content of fake://item/7"})),
        ] {
            let mut content = content;
            content["uri"] = json!(uri);
            let answer = read(&app, &qualified(&server, uri)).await.expect(200).json();
            assert_eq!(answer, json!({"contents": [content]}), "{server}");
        }
        let refused = read(&app, &qualified(&server, "fake://nothing")).await.expect(404);
        assert!(refused.error().contains("Resource not found"), "{server}: {}", refused.error());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uri_of_one_server_needs_no_qualifying() {
    let (app, fake) = app_with(json!({})).await;
    let by_upstream_uri = get(&app, "fake://text").await.expect(200).json();
    assert_eq!(by_upstream_uri, get(&app, &qualified("s", "fake://text")).await.expect(200).json());
    for uri in ["fake://text", "fake://item/1", "fake://pair/a/b%2Fc"] {
        let contents = read(&app, uri).await.expect(200).json();
        assert_eq!(contents["contents"][0]["uri"], uri);
    }
    assert_eq!(fake.seen_of("resources/read").len(), 3);
    // A URI of a template can be read but has no record.
    get(&app, "fake://item/1").await.expect(404).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_upstream_wrote_in_a_resource_is_passed_on_as_written() {
    let meta = r#"{"example.com/big":12345678901234567890123,"z":1.0,"a":[2.50]}"#;
    let contents =
        r#"[{"x-first":1.0,"text":"\u00e9","uri":"ui:\/\/other","_meta":{"b":1e2}},{"blob":"AA=="},7]"#;
    let resource = format!(
        r#"{{"_meta":{meta},"uri":"ui://panel/ü?a=1#b","annotations":{meta},"title":"\u00e9","name":"n"}}"#
    );
    let template = r#"{"uriTemplate":"ui://{+rest}","name":"\u00e9","mimeType":"text/html;profile=mcp-app"}"#;
    let result = format!(r#"{{"_meta":{meta},"contents":{contents}}}"#);
    let fragment = format!(
        r#"{{"resources":[{resource}],"templates":[{template}],"results":{{"ui://panel/ü?a=1#b":{result}}}}}"#
    );
    for era in ["legacy", "modern"] {
        let mut behaviour = Behaviour::of(json!({ "era": era }));
        behaviour.merge(&fragment).unwrap();
        let (mut app, fake) = (TestApp::start().await, Fake::start(behaviour).await);
        app.register_http("s", &fake).await;
        for _ in ["as registered", "as stored"] {
            let record = app.get("/api/v0/resources").await.expect(200).text();
            for kept in [
                format!(r#""annotations":{meta},"meta":{meta}"#),
                r#""title":"\u00e9""#.into(),
                r#""uri":"ui://panel/ü?a=1#b""#.into(),
            ] {
                assert!(record.contains(&kept), "{record}");
            }
            let templates = app.get("/api/v0/resource_templates").await.expect(200).text();
            assert!(templates.contains(r#""name":"\u00e9""#), "{templates}");
            let answer = read(&app, "ui://panel/ü?a=1#b").await.expect(200).text();
            assert_eq!(answer, format!(r#"{{"contents":{contents}}}"#), "{era}");
            app = app.restart().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_lists_are_sorted_and_cover_enabled_servers_unless_all_is_asked_for() {
    let templates =
        json!([{"uriTemplate": "x://b/{n}", "name": "a"}, {"uriTemplate": "x://a/{n}", "name": "b"}]);
    let resources = json!([{"uri": "x://z", "name": "a"}, {"uri": "x://a", "name": "z"}]);
    let (app, fake) = app_with(json!({"resources": resources, "templates": templates})).await;
    app.register_http("s-b", &fake).await;
    app.register_http("t", &fake).await;
    app.post("/api/v0/servers/t/disable", json!({})).await.expect(200);
    let of = |server: &str| ["x://a", "x://z"].map(|uri| (server.to_owned(), uri.to_owned())).to_vec();
    assert_eq!(listed(&app, "").await, [of("s"), of("s-b")].concat(), "by server, then URI");
    assert_eq!(listed(&app, "?all=true").await, [of("s"), of("s-b"), of("t")].concat());
    assert_eq!(listed(&app, "?server=s").await, of("s"));
    assert!(listed(&app, "?server=t").await.is_empty());
    assert_eq!(listed(&app, "?server=t&all=true").await, of("t"));
    for list in ["resources", "resource_templates"] {
        assert!(app.get(&format!("/api/v0/{list}?server=gone")).await.expect(404).error().contains("gone"));
        app.get(&format!("/api/v0/{list}?all=perhaps")).await.expect(400).error();
        app.post(&format!("/api/v0/{list}"), json!({})).await.expect(405).error();
    }
    let templates = app.get("/api/v0/resource_templates").await.expect(200).json();
    let templates: Vec<_> = templates.as_array().unwrap().iter().collect();
    let order: Vec<_> =
        templates.iter().map(|one| (one["server"].as_str(), one["uri_template"].as_str())).collect();
    let of = |server| [(Some(server), Some("x://a/{n}")), (Some(server), Some("x://b/{n}"))];
    assert_eq!(order, [of("s"), of("s-b")].concat());
    let record = get(&app, &qualified("t", "x://a")).await.expect(200).json();
    assert_eq!(record["enabled"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uri_that_several_servers_have_is_never_guessed() {
    let (app, fake) = app_with(json!({})).await;
    app.register_http("t", &fake).await;
    fake.forget_seen();
    for (uri, has_record) in [("fake://text", true), ("fake://item/1", false)] {
        let choices = [qualified("s", uri), qualified("t", uri)];
        let mut refusals = vec![read(&app, uri).await];
        if has_record {
            refusals.push(get(&app, uri).await);
        }
        for refused in refusals {
            let said = refused.expect(400).error();
            assert!(choices.iter().all(|choice| said.contains(choice)), "{said}");
        }
        assert!(fake.seen_of("resources/read").is_empty());
        for choice in &choices {
            read(&app, choice).await.expect(200);
        }
        fake.forget_seen();
    }
    // When only one of them is in service, the URI is not ambiguous.
    app.post("/api/v0/servers/t/disable", json!({})).await.expect(200);
    read(&app, "fake://text").await.expect(200);
    read(&app, "fake://item/1").await.expect(200);
    assert_eq!(get(&app, "fake://text").await.expect(200).json()["server"], "s");
    assert!(read(&app, &qualified("t", "fake://text")).await.expect(400).error().contains("disabled"));
    app.delete("/api/v0/servers/t").await.expect(204);
    read(&app, &qualified("t", "fake://text")).await.expect(404).error();
    get(&app, &qualified("t", "fake://text")).await.expect(404).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_uri_goes_to_its_server_although_a_template_of_another_makes_it() {
    let app = TestApp::start().await;
    let lister = json!({"resources": [{"uri": "fake://item/7", "name": "seven"}], "templates": []});
    let (lists, makes) = (Fake::start(Behaviour::of(lister)).await, Fake::start(Behaviour::default()).await);
    app.register_http("lists", &lists).await;
    app.register_http("makes", &makes).await;
    read(&app, "fake://item/7").await.expect(200);
    read(&app, "fake://item/8").await.expect(200);
    let uris = |fake: &Fake| {
        let seen = fake.seen_of("resources/read").into_iter();
        seen.map(|seen| seen.params["uri"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((uris(&lists), uris(&makes)), (vec!["fake://item/7".into()], vec!["fake://item/8".into()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_template_makes_the_uris_it_should() {
    let forms = [
        ("x://{id}", vec!["x://1", "x://a%20b", "x://ü"], vec!["x://", "x://a/b", "x://a?b", "y://1"]),
        ("x://{a,b}/end", vec!["x://1,2/end"], vec!["x://1,2", "x://1/2/end"]),
        ("x://{id:3}", vec!["x://abc"], vec!["x://"]),
        ("x://{list*}", vec!["x://a,b,c"], vec!["x://a/b"]),
        ("x://{+path}", vec!["x://a/b?c#d"], vec!["x://"]),
        ("x://a{#part}", vec!["x://a#b/c", "x://a"], vec!["x://ab"]),
        ("x://a{.ext}", vec!["x://a.md", "x://a"], vec!["x://a.md/b", "x://amd"]),
        ("x://a{/path*}", vec!["x://a/b/c", "x://a"], vec!["x://ab", "x://a/b?c"]),
        ("x://a{;p,q}", vec!["x://a;p=1;q=2", "x://a;q=2", "x://a"], vec!["x://a?p=1", "x://a;p=1/b"]),
        (
            "x://a{?q,lang}",
            vec!["x://a?q=1&lang=en", "x://a?lang=en", "x://a"],
            vec!["x://a&q=1", "x://a?id=1"],
        ),
        ("x://a?v=2{&q}", vec!["x://a?v=2&q=1", "x://a?v=2"], vec!["x://a?q=1", "x://a?v=2&id=1"]),
        ("x://a{?all*}", vec!["x://a?anything=1&else=2"], vec!["x://a#b"]),
        ("x://{a}/{b}.{c}", vec!["x://1/2.3", "x://1/2.3.4"], vec!["x://1/2", "x://1/2/3.4"]),
        ("x://plain", vec!["x://plain"], vec!["x://plain/", "x://plai"]),
        ("x://{unclosed", vec![], vec!["x://unclosed", "x://{unclosed"]),
    ];
    let (app, fake) = app_with(json!({})).await;
    for (template, made, others) in forms {
        let results: serde_json::Map<_, _> =
            made.iter().map(|uri| ((*uri).to_owned(), json!({"contents": []}))).collect();
        let templates = json!([{"uriTemplate": template, "name": "form"}]);
        let fragment = json!({"templates": templates, "results": results}).to_string();
        fake.update(|behaviour| behaviour.merge(&fragment).unwrap());
        app.post("/api/v0/servers/s/refresh", json!({})).await.expect(200);
        fake.forget_seen();
        for uri in &made {
            assert_eq!(read(&app, uri).await.status, 200, "{template} makes {uri}");
        }
        for uri in others {
            assert_eq!(read(&app, uri).await.status, 404, "{template} does not make {uri}");
        }
        assert_eq!(fake.seen_of("resources/read").len(), made.len(), "{template}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uri_that_is_missing_malformed_or_unknown_is_refused() {
    let (app, fake) = app_with(json!({})).await;
    fake.forget_seen();
    let bare = qualified("s", "fake://text");
    for (body, status, said) in [
        (json!({}), 400, "uri"),
        (json!({"uri": null}), 400, "uri"),
        (json!({"uri": 7}), 400, "uri"),
        (json!({"uri": ""}), 400, "uri"),
        (json!({"uri": " "}), 400, "uri"),
        (json!({"uri": "not a uri"}), 400, "uri"),
        (json!({"uri": "/etc/passwd"}), 400, "uri"),
        (json!({"uri": "://text"}), 400, "uri"),
        (json!({"uri": "1x://text"}), 400, "uri"),
        (json!({"uri": "toolgate://res/"}), 400, "uri"),
        (json!({"uri": "toolgate://res/s"}), 400, "uri"),
        (json!({"uri": "toolgate://res/s/"}), 400, "uri"),
        (json!({"uri": "toolgate://res/s/%%"}), 400, "uri"),
        (json!({"uri": "toolgate://res/a__b/eA"}), 400, "uri"),
        (json!({"uri": format!("{bare}=")}), 400, "uri"),
        (json!({"uri": "toolgate://res/s/_w"}), 400, "uri"),
        (json!({"uri": "fake://text", "server": "s"}), 400, "server"),
        (json!(["fake://text"]), 400, "object"),
        (json!({"uri": "fake://nothing"}), 404, "fake://nothing"),
        (json!({"uri": "toolgate://nothing"}), 404, "toolgate://nothing"),
        (json!({"uri": qualified("gone", "fake://text")}), 404, "gone"),
    ] {
        for route in ["get", "read"] {
            let refused = app.post(&format!("/api/v0/resources/{route}"), body.clone()).await;
            assert_eq!(refused.status, status, "{route} {body}");
            assert!(refused.error().contains(said), "{route} {body}: {}", refused.error());
        }
    }
    for route in ["get", "read"] {
        let path = format!("/api/v0/resources/{route}");
        app.send("POST", &path, &[], "").await.expect(400).error();
        app.send("POST", &path, &[], "{\"uri\":").await.expect(400).error();
        app.get(&path).await.expect(405).error();
    }
    assert!(fake.seen_of("resources/read").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_while_reading_is_a_500_with_the_reason() {
    let failure = json!({"code": -32050, "message": "the shelf fell down"});
    let (app, mut fake) = app_with(json!({ "fail": {"resources/read": failure} })).await;
    let refused = read(&app, "fake://text").await.expect(500);
    assert!(refused.error().contains("the shelf fell down"));
    fake.update(|behaviour| behaviour.merge(r#"{"fail":{},"stall":["resources/read"]}"#).unwrap());
    app.patch("/api/v0/servers/s", json!({"timeout_ms": 100})).await.expect(200);
    assert!(read(&app, "fake://text").await.expect(500).error().contains("0.1 s"));
    fake.stop().await;
    assert!(read(&app, "fake://text").await.expect(500).error().contains("fake://text"));
    assert_eq!(listed(&app, "").await.len(), 3, "the stored list stays");
    app.post("/api/v0/servers/s/disable", json!({})).await.expect(200);
    for uri in ["fake://text", "fake://item/1"] {
        assert!(read(&app, uri).await.expect(400).error().contains("disabled"));
    }
    assert_eq!(get(&app, "fake://text").await.expect(200).json()["enabled"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_the_words_of_an_upstream_is_masked() {
    let (app, fake) = (TestApp::start().await, Fake::start(Behaviour::default()).await);
    let server = json!({"name": "s", "transport": "streamable_http", "url": fake.url(),
        "bearer_token": "planted-token"});
    app.register(server).await;
    for (code, status) in [(-32002, 404), (-32602, 404), (-32603, 500)] {
        let failure =
            json!({"code": code, "message": "not for planted-token", "data": {"uri": "fake://text"}});
        let fail = json!({"fail": {"resources/read": failure}}).to_string();
        fake.update(|behaviour| behaviour.merge(&fail).unwrap());
        let said = read(&app, "fake://text").await.expect(status).error();
        assert!(said.contains("not for ***") && !said.contains("planted"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_follow_what_the_upstream_announces() {
    let app = TestApp::start().await;
    let fakes = app.register_each_kind(&json!({})).await.1;
    for fake in &fakes {
        let fragment = r#"{"resources":[{"uri":"x://fresh","name":"fresh"}],"templates":[]}"#;
        fake.update(|behaviour| behaviour.merge(fragment).unwrap());
        fake.notify_resources_changed();
    }
    for server in ["http-legacy", "http-modern", "sse-legacy"] {
        let query = format!("?server={server}");
        eventually("the new resource is listed", || async {
            listed(&app, &query).await == [(server.to_owned(), "x://fresh".to_owned())]
        })
        .await;
        let templates = app.get(&format!("/api/v0/resource_templates{query}")).await.expect(200).json();
        assert_eq!(templates, json!([]));
    }
}
