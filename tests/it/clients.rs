//! MCP clients over REST: every field, every status.

use serde_json::json;

use crate::support::{Answer, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_created_and_stays_readable() {
    let app = TestApp::start_enterprise().await;
    let created = app.post("/api/v0/clients", json!({"name": "z"})).await.expect(201).json();
    let token = created["access_token"].as_str().unwrap();
    assert_eq!(token.len(), 43);
    let bare = json!({"name": "z", "description": "", "access_token": token, "is_custom_access_token": false,
        "allow_list": []});
    assert_eq!(created, bare);
    let body = json!({"name": "a b", "description": "d", "access_token": "own-token-of-a", "allow_list": ["s", "later"]});
    let own = app.post("/api/v0/clients", body).await.expect(201).json();
    let whole = json!({"name": "a b", "description": "d", "access_token": "own-token-of-a",
        "is_custom_access_token": true, "allow_list": ["s", "later"]});
    assert_eq!(own, whole);
    assert_eq!(app.get("/api/v0/clients").await.expect(200).json(), json!([whole, bare]));
    let app = app.restart().await;
    assert_eq!(app.get("/api/v0/clients").await.expect(200).json(), json!([whole, bare]));
    app.delete("/api/v0/clients/a%20b").await.expect(204);
    app.delete("/api/v0/clients/a%20b").await.expect(404).error();
    assert_eq!(app.get("/api/v0/clients").await.expect(200).json(), json!([bare]));
}

#[tokio::test(flavor = "multi_thread")]
async fn replacing_overwrites_and_keeps_exactly_what_it_should() {
    let app = TestApp::start_enterprise().await;
    let token = app.create_client("a", &["s"]).await;
    let put = async |body| app.put("/api/v0/clients/a", body).await.expect(200).json();
    let kept =
        put(json!({"name": "ignored", "description": "d", "allow_list": null, "access_token": null})).await;
    let expected = json!({"name": "a", "description": "d", "access_token": token, "is_custom_access_token": false,
        "allow_list": ["s"]});
    assert_eq!(kept, expected);
    // A response can be sent back as a request.
    assert_eq!(put(kept.clone()).await, expected);
    let emptied = put(json!({})).await;
    assert_eq!((&emptied["description"], &emptied["allow_list"]), (&json!(""), &json!([])));
    assert_eq!(emptied["access_token"], token);
    let replaced = put(json!({"access_token": "a-new-token", "allow_list": ["*"]})).await;
    assert_eq!(replaced["access_token"], "a-new-token");
    assert_eq!(replaced["is_custom_access_token"], true);
    let again = put(json!({"access_token": "a-new-token"})).await;
    assert_eq!(again["is_custom_access_token"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bodies_are_400_and_change_nothing() {
    let app = TestApp::start_enterprise().await;
    app.create_client("a", &["s"]).await;
    let before = app.get("/api/v0/clients").await.expect(200).json();
    let refused = async |answer: Answer, word: &str| {
        let error = answer.expect(400).error();
        assert!(error.contains(word), "{error}");
    };
    for (body, word) in [
        (json!({"allow_list": "s"}), "allow_list"),
        (json!({"allow_list": [1]}), "allow_list"),
        (json!({"allow_list": {"s": true}}), "allow_list"),
        (json!({"access_token": "short"}), "access_token"),
        (json!({"access_token": "with white space"}), "access_token"),
        (json!({"access_token": true}), "access_token"),
        (json!({"description": 1}), "description"),
        (json!({"allowed": []}), "allowed"),
    ] {
        refused(app.put("/api/v0/clients/a", body.clone()).await, word).await;
        let mut body = body;
        body["name"] = json!("new");
        refused(app.post("/api/v0/clients", body).await, word).await;
    }
    for name in [json!(""), json!("a/b"), json!("a\tb"), json!("x".repeat(129)), json!(1), json!(null)] {
        refused(app.post("/api/v0/clients", json!({"name": name})).await, "name").await;
    }
    for body in ["", "[]", "{"] {
        refused(app.send("POST", "/api/v0/clients", &[], body).await, "").await;
        refused(app.send("PUT", "/api/v0/clients/a", &[], body).await, "").await;
    }
    app.put("/api/v0/clients/nobody", json!({"allow_list": 1})).await.expect(404).error();
    app.post("/api/v0/clients", json!({"name": "a"})).await.expect(409).error();
    assert_eq!(app.get("/api/v0/clients").await.expect(200).json(), before);
}
