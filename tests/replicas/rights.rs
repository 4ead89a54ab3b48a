//! Tokens and rights count on all gateways.

use serde_json::json;

use super::support::{bearer, eventually};
use super::{enterprise_pair, epoch, get_since};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_works_at_once_and_a_deleted_one_soon_nowhere() {
    let (first, second) = enterprise_pair().await;
    for round in 0..5 {
        let user = format!("user-{round}");
        let token = first.create_user(&user, "user").await;
        second.send("GET", "/api/v0/servers", &[("authorization", &bearer(&token))], "").await.expect(200);
        let deleted = first.delete(&format!("/api/v0/users/{user}")).await;
        let headers = [("authorization", bearer(&token)), ("x-toolgate-min-epoch", epoch(&deleted))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        eventually("the token is no longer valid", || async {
            second.send("GET", "/api/v0/servers", &headers, "").await.status == 401
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_was_started_before_the_first_admin_learns_of_it() {
    let first = super::support::TestApp::start_with(|config| config.mode = ::model::Mode::Enterprise).await;
    let second = super::support::TestApp::start_beside(&first).await;
    let made = first.post("/init", json!({})).await.expect(200).json();
    let token = bearer(made["admin_access_token"].as_str().unwrap());
    eventually("the admin is known", || async {
        second.send("GET", "/api/v0/users", &[("authorization", &token)], "").await.status == 200
    })
    .await;
    second.post("/init", json!({})).await.expect(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_what_another_gateway_allows() {
    let (first, second) = enterprise_pair().await;
    let fake = super::support::fake::Fake::start(Default::default()).await;
    first.register_http("up", &fake).await;
    first.create_client("agent", &["up"]).await;
    let row = async |answer: super::support::Answer| answer.expect(200).json()[0].clone();
    eventually("the client is known", || async {
        row(second.get("/api/v0/clients").await).await["name"] == "agent"
    })
    .await;
    let change = json!({ "description": "reads only", "allow_list": [] });
    let changed = second.put("/api/v0/clients/agent", change).await.expect(200);
    let shown = row(get_since(&first, &epoch(&changed), "/api/v0/clients").await).await;
    assert_eq!((&shown["allow_list"], &shown["description"]), (&json!([]), &json!("reads only")));
}
