//! Gateways as processes on one Postgres database, in enterprise mode, with a server and a client, behind a balancer.

use serde_json::json;
use tempfile::TempDir;

use super::support::balancer::Balancer;
use super::support::{Answer, Behaviour, Fake, Process, TestApp, bearer, database, eventually};

pub struct Gateways {
    /// The balancer, as if it was one gateway.
    pub all: TestApp,
    pub each: Vec<Gateway>,
    /// The server `s`, which all can call. The first gateway holds its lease.
    pub fake: Fake,
    /// The token of a client of that server.
    pub client: String,
}

pub struct Gateway {
    pub process: Process,
    /// The same, with the token of the admin.
    pub app: TestApp,
}

impl Gateways {
    /// Starts a gateway for each URL of the database.
    pub async fn start(urls: &[&str]) -> Self {
        Self::start_with(urls, &[]).await
    }

    /// The same with further variables.
    pub async fn start_with(urls: &[&str], variables: &[(&str, &str)]) -> Self {
        let key = database::key();
        let mut processes = Vec::new();
        for url in urls {
            let own = [("DATABASE_URL", *url), ("TOOLGATE_SECRET_KEY", key.expose())];
            let all = [&own[..], &[("SERVER_MODE", "enterprise")], variables].concat();
            processes.push(Process::start_in(TempDir::new().unwrap(), &all).await);
        }
        let made = processes[0].post("/init", &json!({})).await.expect(200).json();
        let admin = bearer(made["admin_access_token"].as_str().unwrap());
        let app = |process: &Process| TestApp::elsewhere(&process.address, Some(admin.clone()));
        let each: Vec<_> =
            processes.into_iter().map(|process| Gateway { app: app(&process), process }).collect();
        let fake = Fake::start(Behaviour::of(json!({ "era": "legacy" }))).await;
        each[0].app.register_http("s", &fake).await;
        let client = each[0].app.create_client("agent", &["s"]).await;
        for gateway in &each {
            eventually("the server is known", || async {
                gateway.app.get("/api/v0/servers/s").await.status == 200
            })
            .await;
        }
        let addresses = each.iter().map(|gateway| gateway.process.address.clone()).collect();
        let balancer = Balancer::start(addresses).await;
        let mut all = TestApp::elsewhere(&balancer.address, Some(admin));
        all.balancer = Some(balancer);
        Self { all, each, fake, client }
    }

    /// Takes a gateway out, so that it can end. The balancer still sends connections to it.
    pub fn take(&mut self, index: usize) -> Gateway {
        self.each.remove(index)
    }

    /// Waits until changes are refused by all gateways, with the reason.
    pub async fn refuse_changes(&self) {
        // At once, because each waits a while for its database.
        let [one, two, three] = self.each.as_slice() else { panic!("there are three gateways") };
        tokio::join!(one.refuses_changes(), two.refuses_changes(), three.refuses_changes());
    }

    /// Waits until all gateways work without limitation: a change on each of them counts on all.
    pub async fn heal(&self) {
        for gateway in &self.each {
            gateway.becomes("200 ok").await;
        }
        for gateway in &self.each {
            let name = format!("healed-{}", gateway.process.id());
            // 409: it was stored at once, but that could not be confirmed.
            eventually("a change is stored", || async {
                [201, 409].contains(&gateway.create_group(&name).await.status)
            })
            .await;
            for other in &self.each {
                eventually("the change is known", || other.has_group(&name)).await;
            }
            gateway.app.delete(&format!("/api/v0/tool-groups/{name}")).await.expect(204);
        }
    }
}

impl Gateway {
    /// Waits until `/ready` gives this status code and status.
    pub async fn becomes(&self, wanted: &str) {
        eventually(&format!("a gateway is {wanted}"), || async {
            let ready = self.process.get("/ready").await;
            format!("{} {}", ready.status, ready.json()["status"].as_str().unwrap()) == wanted
        })
        .await;
    }

    pub async fn refuses_changes(&self) {
        self.becomes("200 degraded").await;
        let refused = self.create_group("refused").await.expect(503).error();
        assert!(refused.contains("the database cannot be used now: "), "{refused}");
    }

    pub async fn create_group(&self, name: &str) -> Answer {
        self.app.post("/api/v0/tool-groups", json!({ "name": name, "included_tools": ["s__echo"] })).await
    }

    pub async fn has_group(&self, name: &str) -> bool {
        self.app.get(&format!("/api/v0/tool-groups/{name}")).await.status == 200
    }

    pub async fn knows_tool(&self, name: &str) -> bool {
        self.app.tools("").await.iter().any(|known| known == name)
    }
}
