//! The first steps of every user, over each transport and in each era.

use serde_json::json;

use crate::support::{Behaviour, Fake, TestApp};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_each_kind_registers_lists_and_answers() {
    let app = TestApp::start().await;
    for era in ["legacy", "modern"] {
        let behaviour = Behaviour::of(json!({ "era": era }));
        let fake = Fake::start(behaviour.clone()).await;
        let mut servers = vec![format!("http-{era}"), format!("stdio-{era}")];
        app.register_http(&servers[0], &fake).await;
        app.register_stdio(&servers[1], &behaviour).await;
        if era == "legacy" {
            servers.push("sse-legacy".into());
            app.register_sse("sse-legacy", &fake).await;
        }
        for server in servers {
            let echoed = app.call(&format!("{server}__echo"), json!({ "text": "hello" })).await;
            assert!(echoed.contains("hello"), "{server}: {echoed}");
        }
    }
    let statuses = app.get("/api/v0/servers").await.expect(200).json();
    assert_eq!(statuses.as_array().unwrap().len(), 5);
}
