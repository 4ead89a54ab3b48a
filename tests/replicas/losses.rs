//! Postgres is stopped, restarted and replaced while gateways are in use: calls go on, and no change is lost or half done.

use super::gateways::Gateways;
use super::load::Load;
use super::postgres_server::{PostgresServer, Stop};
use super::relay::Relay;
use super::support::database::Database;
use super::support::request;
use super::writes::Writes;

/// Gateways in use, whose database may get lost.
struct Scene {
    gateways: Gateways,
    load: Load,
    writes: Writes,
}

impl Scene {
    async fn start(database: &str) -> Self {
        let gateways = Gateways::start(&[database; 3]).await;
        let load = Load::start(&gateways.all, &gateways.client);
        let writes = Writes::start(&gateways);
        let scene = Self { gateways, load, writes };
        scene.go_on().await;
        scene
    }

    /// Everything works: calls, changes on each gateway, and that all learn of them.
    async fn go_on(&self) {
        self.gateways.heal().await;
        self.writes.go_on().await;
        self.load.goes_on().await;
    }

    async fn check(self) {
        self.writes.check(&self.gateways).await;
        assert!(self.load.failures().is_empty(), "{:?}", self.load.failures());
        assert_eq!(self.load.lost_sessions(), 0);
        self.load.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_on_while_postgres_is_stopped() {
    let mut server = PostgresServer::start().unwrap();
    let database = Database::create(&server.url()).await;
    let scene = Scene::start(&database.url).await;
    server.stop(Stop::Fast);
    scene.gateways.refuse_changes().await;
    scene.load.goes_on().await;
    for gateway in &scene.gateways.each {
        // Nobody knows whether this token is valid.
        let unknown = [("authorization", "Bearer 0123456789abcdef")];
        request(&gateway.process.address, "GET", "/api/v0/servers", &unknown, Vec::new()).await.expect(503);
    }
    server.resume().unwrap();
    scene.go_on().await;
    scene.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_postgres_crashes_and_recovers() {
    let mut server = PostgresServer::start().unwrap();
    let database = Database::create(&server.url()).await;
    let scene = Scene::start(&database.url).await;
    for _ in 0..3 {
        server.stop(Stop::Immediate);
        server.resume().unwrap();
        scene.go_on().await;
    }
    scene.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_follow_their_database_to_another_server() {
    let mut primary = PostgresServer::start().unwrap();
    let database = Database::create(&primary.url()).await;
    let standby = primary.start_standby().unwrap();
    let relay = Relay::start(&primary.address()).await;
    let scene = Scene::start(&relay.url(&database.url)).await;
    // It sends everything to the standby before it ends.
    primary.stop(Stop::Fast);
    standby.promote().unwrap();
    relay.lead_to(&standby.address());
    scene.go_on().await;
    scene.check().await;
}
