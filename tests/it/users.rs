//! Users over REST: every field, every status.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{TestApp, client};

async fn status_of(app: &TestApp, token: &str) -> u16 {
    app.send_as(token, "GET", "/api/v0/users/whoami", json!({})).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_created_listed_and_recognized() {
    let app = TestApp::start_enterprise().await;
    let created = app.post("/api/v0/users", json!({"username": "zoe"})).await.expect(201).json();
    let token = created["access_token"].as_str().unwrap();
    let expected = json!({"username": "zoe", "role": "user", "access_token": token, "allow_list": ["*"],
        "disabled": false});
    assert_eq!(created, expected);
    assert!(token.len() == 43 && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
    let own = json!({"username": "ada", "role": "admin", "access_token": "ada's-own-token"});
    let created = app.post("/api/v0/users", own.clone()).await.expect(201).json();
    for key in ["username", "role", "access_token"] {
        assert_eq!(created[key], own[key]);
    }
    let mut list = app.get("/api/v0/users").await.expect(200).json();
    // Only the admin has sent requests so far.
    let seen = list.as_array_mut().unwrap().iter_mut().map(|user| user["last_seen_at"].take());
    assert_eq!(seen.map(|at| at.is_string()).collect::<Vec<_>>(), [false, true, false]);
    let row = |username: &str, role: &str| {
        json!({"username": username, "role": role, "allow_list": ["*"], "source": "local", "disabled": false,
            "last_seen_at": null})
    };
    assert_eq!(list, json!([row("ada", "admin"), row("admin", "admin"), row("zoe", "user")]));
    let whoami = app.send_as(token, "GET", "/api/v0/users/whoami", json!({})).await.expect(200).json();
    assert_eq!(whoami, json!({"username": "zoe", "role": "user", "allow_list": ["*"]}));
    app.send_as(token, "GET", "/api/v0/users", json!({})).await.expect(403).error();
    app.send_as("ada's-own-token", "GET", "/api/v0/users", json!({})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bodies_are_400_and_leave_nothing_behind() {
    let app = TestApp::start_enterprise().await;
    for (body, word) in [
        (json!({}), "username"),
        (json!({"username": ""}), "username"),
        (json!({"username": "a/b"}), "username"),
        (json!({"username": "a\u{0}b"}), "username"),
        (json!({"username": "x".repeat(129)}), "username"),
        (json!({"username": 7}), "username"),
        (json!({"username": "a", "role": "root"}), "role"),
        (json!({"username": "a", "role": "ADMIN"}), "role"),
        (json!({"username": "a", "role": ["admin"]}), "role"),
        (json!({"username": "a", "access_token": "1234567"}), "access_token"),
        (json!({"username": "a", "access_token": "1234 5678"}), "access_token"),
        (json!({"username": "a", "access_token": ""}), "access_token"),
        (json!({"username": "a", "access_token": 12345678}), "access_token"),
        (json!({"username": "a", "name": "b"}), "name"),
    ] {
        let error = app.post("/api/v0/users", body.clone()).await.expect(400).error();
        assert!(error.contains(word), "{body}: {error}");
    }
    for body in ["", "[]", "null", "{", "{\"username\":\"a\",}"] {
        app.send("POST", "/api/v0/users", &[], body).await.expect(400).error();
        app.send("PUT", "/api/v0/users/admin", &[], body).await.expect(400).error();
    }
    assert_eq!(app.get("/api/v0/users").await.expect(200).json().as_array().unwrap().len(), 1);
    let longest = "ä".repeat(128);
    app.post("/api/v0/users", json!({"username": longest, "role": null})).await.expect(201);
    app.delete(&format!("/api/v0/users/{}", "%C3%A4".repeat(128))).await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_tokens_are_unique() {
    let app = TestApp::start_enterprise().await;
    let agent = app.create_client("agent", &[]).await;
    app.create_user("a", "user").await;
    app.create_user("b", "user").await;
    let conflict = async |answer: crate::support::Answer, word: &str| {
        let error = answer.expect(409).error();
        assert!(error.contains(word), "{error}");
    };
    conflict(app.post("/api/v0/users", json!({"username": "a"})).await, "\"a\"").await;
    conflict(app.put("/api/v0/users/b", json!({"username": "a"})).await, "\"a\"").await;
    app.put("/api/v0/users/a", json!({"access_token": "token-of-a"})).await.expect(200);
    let taken = json!({"username": "c", "access_token": "token-of-a"});
    conflict(app.post("/api/v0/users", taken).await, "access_token").await;
    conflict(app.put("/api/v0/users/b", json!({"access_token": agent})).await, "access_token").await;
    let taken = json!({"name": "other", "access_token": "token-of-a"});
    conflict(app.post("/api/v0/clients", taken.clone()).await, "access_token").await;
    conflict(app.put("/api/v0/clients/agent", taken).await, "access_token").await;
    // A refused change has no effect.
    assert_eq!(status_of(&app, "token-of-a").await, 200);
    let users = app.get("/api/v0/users").await.expect(200).json();
    assert_eq!(users.as_array().unwrap().len(), 3);
    // A client may have the same name; a released token may be used again.
    app.create_client("a", &[]).await;
    app.delete("/api/v0/users/a").await.expect(204);
    app.post("/api/v0/users", json!({"username": "c", "access_token": "token-of-a"})).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_keeps_what_it_does_not_name_and_counts_at_once() {
    let app = TestApp::start_enterprise().await;
    let token = app.create_user("a", "user").await;
    let answer = app.put("/api/v0/users/a", json!({})).await.expect(200).json();
    let user = |role: &str| json!({"username": "a", "role": role, "access_token": token, "allow_list": ["*"], "disabled": false});
    assert_eq!(answer, user("user"));
    let answer =
        app.put("/api/v0/users/a", json!({"role": "admin", "username": null})).await.expect(200).json();
    assert_eq!(answer, user("admin"));
    app.send_as(&token, "GET", "/api/v0/users", json!({})).await.expect(200);
    let answer = app.put("/api/v0/users/a", json!({"username": "b c"})).await.expect(200).json();
    assert_eq!((&answer["username"], &answer["access_token"]), (&json!("b c"), &json!(token)));
    app.put("/api/v0/users/a", json!({})).await.expect(404).error();
    let whoami = app.send_as(&token, "GET", "/api/v0/users/whoami", json!({})).await.expect(200).json();
    assert_eq!(whoami["username"], "b c");
    let change = json!({"access_token": "another-token", "role": "user"});
    let answer = app.put("/api/v0/users/b%20c", change).await.expect(200).json();
    assert_eq!((&answer["role"], &answer["access_token"]), (&json!("user"), &json!("another-token")));
    assert_eq!(status_of(&app, &token).await, 401);
    assert_eq!(status_of(&app, "another-token").await, 200);
    app.send_as("another-token", "GET", "/api/v0/users", json!({})).await.expect(403).error();
    // Repeating the same values changes nothing.
    app.put("/api/v0/users/b%20c", json!({"username": "b c", "access_token": "another-token"}))
        .await
        .expect(200);
    assert_eq!(status_of(&app, "another-token").await, 200);
    for body in [
        json!({"role": "root"}),
        json!({"username": "a/b"}),
        json!({"access_token": "short"}),
        json!({"x": 1}),
    ] {
        app.put("/api/v0/users/b%20c", body).await.expect(400).error();
    }
    let app = app.restart().await;
    assert_eq!(status_of(&app, "another-token").await, 200);
    assert_eq!(status_of(&app, &token).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_user_is_404() {
    let app = TestApp::start_enterprise().await;
    for name in ["nobody", "%00", "a%2Fb", "Admin"] {
        app.put(&format!("/api/v0/users/{name}"), json!({"role": "root"})).await.expect(404).error();
        app.delete(&format!("/api/v0/users/{name}")).await.expect(404).error();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_always_an_admin_left() {
    let app = TestApp::start_enterprise().await;
    let last = async |answer: crate::support::Answer| {
        let error = answer.expect(400).error();
        assert!(error.contains("last admin"), "{error}");
    };
    last(app.delete("/api/v0/users/admin").await).await;
    last(app.put("/api/v0/users/admin", json!({"role": "user"})).await).await;
    // The change is atomic: the token did not change either.
    last(app.put("/api/v0/users/admin", json!({"role": "user", "access_token": "a-new-token"})).await).await;
    app.put("/api/v0/users/admin", json!({"username": "root"})).await.expect(200);
    last(app.delete("/api/v0/users/root").await).await;
    let other = app.create_user("other", "admin").await;
    app.delete("/api/v0/users/root").await.expect(204);
    app.get("/api/v0/users").await.expect(401);
    let deleted = app.send_as(&other, "DELETE", "/api/v0/users/other", Value::Null).await;
    last(deleted).await;
    app.send_as(&other, "GET", "/api/v0/users", json!({})).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_may_take_their_own_token_away() {
    let app = TestApp::start_enterprise().await;
    app.create_user("other", "admin").await;
    app.put("/api/v0/users/admin", json!({"access_token": "my-new-token"})).await.expect(200);
    app.get("/api/v0/users").await.expect(401);
    app.send_as("my-new-token", "DELETE", "/api/v0/users/admin", json!({})).await.expect(204);
    assert_eq!(status_of(&app, "my-new-token").await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_role_user_sees_and_calls_but_not_the_arguments_of_processes() {
    let app = TestApp::start_enterprise().await;
    let behaviour = crate::support::Behaviour::default();
    app.register_stdio("s", &behaviour).await;
    let user = app.create_user("user", "user").await;
    let args = app.server("s").await["args"].clone();
    assert_eq!(args[0], "--stdio");
    let one = app.send_as(&user, "GET", "/api/v0/servers/s", json!({})).await.expect(200).json();
    let all = app.send_as(&user, "GET", "/api/v0/servers", json!({})).await.expect(200).json();
    for record in [&one, &all[0]] {
        assert_eq!(record["args"], json!(["***", "***", "***"]));
        assert_eq!(record["command"], app.server("s").await["command"]);
    }
    let called =
        app.send_as(&user, "POST", "/api/v0/tools/invoke", json!({"name": "s__add", "a": 1, "b": 2}));
    assert_eq!(called.await.expect(200).json()["content"][0]["text"], "3");
    app.send_as(&user, "POST", "/api/v0/tools/disable", json!({"entity": "s"})).await.expect(403).error();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheme_of_the_header_is_read_in_any_case() {
    let app = TestApp::start_enterprise().await;
    let token = app.create_user("a", "user").await;
    for (value, status) in [
        (format!("bearer {token}"), 200),
        (format!("BEARER  {token}"), 200),
        (format!("Bearer {token} "), 200),
        (format!("Bearer {token}x"), 401),
        (format!("Bearer {}", &token[1..]), 401),
        (format!("Bearer {token},{token}"), 401),
        (format!("Bearer \"{token}\""), 401),
        (format!("Bearer {}", token.to_uppercase()), 401),
    ] {
        let headers = [("authorization", value.as_str())];
        let answer = client::request(&app.address, "GET", "/api/v0/tools", &headers, Vec::new()).await;
        assert_eq!(answer.status, status, "{value}");
    }
    let odd = json!({"username": "b", "access_token": "tökén-ñ-名前"});
    app.post("/api/v0/users", odd).await.expect(201);
    let value = hyper::header::HeaderValue::from_bytes("Bearer tökén-ñ-名前".as_bytes()).unwrap();
    let raw = [
        b"GET /api/v0/users/whoami HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: ",
        value.as_bytes(),
        b"\r\n\r\n",
    ]
    .concat();
    let said = client::rest(client::raw(&app.address, &raw).await).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_lost_while_the_body_is_sent_no_longer_apply() {
    let app = TestApp::start_enterprise().await;
    for (name, take_away) in [("demoted", Some(json!({"role": "user"}))), ("deleted", None)] {
        let token = app.create_user(name, "admin").await;
        let body = json!({"username": "sneaked-in"}).to_string();
        let (first, rest) = body.split_at(5);
        let head = format!(
            "POST /api/v0/users HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
             expect: 100-continue\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = client::raw(&app.address, head.as_bytes()).await;
        // The gateway asks for the body, so the first access check has passed.
        let mut said = [0; 12];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"HTTP/1.1 100");
        stream.write_all(first.as_bytes()).await.unwrap();
        let path = format!("/api/v0/users/{name}");
        match take_away {
            Some(change) => drop(app.put(&path, change).await.expect(200)),
            None => drop(app.delete(&path).await.expect(204)),
        }
        stream.write_all(rest.as_bytes()).await.unwrap();
        let said = client::rest(stream).await;
        assert!(said.contains("HTTP/1.1 403") || said.contains("HTTP/1.1 401"), "{name}: {said}");
    }
    let users = app.get("/api/v0/users").await.expect(200).text();
    assert!(!users.contains("sneaked-in"), "{users}");
}
