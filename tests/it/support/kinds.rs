//! One server of each kind: every transport in every era that has it, each with its own fake.

use serde_json::json;

use super::{Behaviour, Fake, TestApp};

pub struct Kinds {
    pub servers: Vec<String>,
    _fakes: Vec<Fake>,
}

impl Kinds {
    pub async fn register(app: &TestApp) -> Self {
        let mut kinds = Self { servers: Vec::new(), _fakes: Vec::new() };
        for era in ["legacy", "modern"] {
            let behaviour = Behaviour::of(json!({ "era": era }));
            let fake = Fake::start(behaviour.clone()).await;
            kinds.servers.push(format!("http-{era}"));
            app.register_http(&kinds.servers[kinds.servers.len() - 1], &fake).await;
            kinds._fakes.push(fake);
            kinds.servers.push(format!("stdio-{era}"));
            app.register_stdio(&kinds.servers[kinds.servers.len() - 1], &behaviour).await;
        }
        let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
        kinds.servers.push("sse-legacy".into());
        app.register_sse("sse-legacy", &fake).await;
        kinds._fakes.push(fake);
        kinds
    }
}
