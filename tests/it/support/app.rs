//! A gateway for one test: in this process, on a free port, with its database in a temporary folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway::Gateway;
use gateway::audit::Auditing;
use gateway::recorder::Recording;
use model::{Mode, WallClock};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolgate::app::App;
use toolgate::config::{Bind, Config, SignInSettings};

use super::balancer::Balancer;
use super::client::{self, Answer, Events};
use super::database::{self, Database};
use super::fake::{Behaviour, Fake, stdio_command};

pub struct TestApp {
    pub address: String,
    pub folder: TempDir,
    /// Sent with every request that has no `authorization` of its own.
    pub authorization: Option<String>,
    /// On a server; `None` if it is a file in the folder.
    database: Option<Arc<Database>>,
    pub balancer: Option<Balancer>,
    gateway: Option<Arc<Gateway>>,
    config: Config,
    shutdown: CancellationToken,
    hurry: CancellationToken,
    serving: Option<JoinHandle<()>>,
}

impl TestApp {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = TempDir::new().unwrap();
        let mut config = config(folder.path());
        let mut database = None;
        if let Some(server) = database::server() {
            let created = Database::create(&server).await;
            config.database = database::address(&created.url);
            config.secret_key = Some(database::key());
            database = Some(Arc::new(created));
        }
        change(&mut config);
        Self::run(folder, database, config).await
    }

    /// Starts on a file even where the tests use Postgres, for a test of the file itself.
    pub async fn start_on_file() -> Self {
        let folder = TempDir::new().unwrap();
        let config = config(folder.path());
        Self::run(folder, None, config).await
    }

    /// Starts gateways on the same database behind a balancer, and returns the balancer as if it was one gateway.
    pub async fn start_behind_balancer(first: Self, count: usize) -> (Self, Vec<Self>) {
        let mut gateways = vec![first];
        while gateways.len() < count {
            gateways.push(Self::start_beside(&gateways[0]).await);
        }
        let addresses = gateways.iter().map(|gateway| gateway.address.clone()).collect();
        let balancer = Balancer::start(addresses).await;
        let mut all = Self::elsewhere(&balancer.address, gateways[0].authorization.clone());
        all.balancer = Some(balancer);
        (all, gateways)
    }

    /// A gateway that runs as a process, or a balancer.
    pub fn elsewhere(address: &str, authorization: Option<String>) -> Self {
        let folder = TempDir::new().unwrap();
        Self {
            address: address.to_owned(),
            config: config(folder.path()),
            folder,
            balancer: None,
            gateway: None,
            database: None,
            authorization,
            shutdown: CancellationToken::new(),
            hurry: CancellationToken::new(),
            serving: None,
        }
    }

    /// Starts another gateway on the same database.
    pub async fn start_beside(other: &Self) -> Self {
        Self::start_beside_with(other, |_| {}).await
    }

    /// The same with other settings.
    pub async fn start_beside_with(other: &Self, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = other.config.clone();
        change(&mut config);
        let mut app = Self::run(TempDir::new().unwrap(), other.database.clone(), config).await;
        app.authorization.clone_from(&other.authorization);
        app
    }

    /// Starts in enterprise mode, initialized, and uses the token of the admin.
    pub async fn start_enterprise() -> Self {
        Self::start_enterprise_with(|_| {}).await
    }

    pub async fn start_enterprise_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut app = Self::start_with(|config| {
            config.mode = Mode::Enterprise;
            change(config);
        })
        .await;
        let initialized = app.post("/init", json!({})).await.expect(200).json();
        app.authorization = Some(bearer(initialized["admin_access_token"].as_str().unwrap()));
        app
    }

    async fn run(folder: TempDir, database: Option<Arc<Database>>, config: Config) -> Self {
        let app = App::build(&config).await.expect("the gateway starts");
        let address = app.addresses()[0].to_string();
        let gateway = Some(app.gateway().clone());
        let (shutdown, hurry) = (CancellationToken::new(), CancellationToken::new());
        let serving = tokio::spawn(app.serve(shutdown.clone(), hurry.clone()));
        Self {
            address,
            folder,
            database,
            balancer: None,
            gateway,
            authorization: None,
            config,
            shutdown,
            hurry,
            serving: Some(serving),
        }
    }

    /// Stops gracefully, like SIGTERM.
    pub async fn stop(&mut self) {
        self.shutdown.cancel();
        if let Some(serving) = self.serving.take() {
            serving.await.expect("serving ends without a panic");
        }
    }

    /// Stops and starts again on the same database; the port may change.
    pub async fn restart(mut self) -> Self {
        self.stop().await;
        self.gateway = None;
        let folder = std::mem::replace(&mut self.folder, TempDir::new().unwrap());
        let mut app = Self::run(folder, self.database.clone(), self.config.clone()).await;
        app.authorization = self.authorization.take();
        app
    }

    /// The same with other settings.
    pub async fn restart_with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self.restart().await
    }

    /// The core of a gateway in this process.
    pub fn gateway(&self) -> &Arc<Gateway> {
        self.gateway.as_ref().expect("the gateway runs in this process")
    }

    /// The clock by which credentials expire.
    pub fn clock(&self) -> &WallClock {
        &self.config.clock
    }

    pub fn database(&self) -> &Path {
        self.config.database.file().expect("tests use a file")
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Vec<u8>>,
    ) -> Answer {
        client::request(&self.address, method, path, &self.signed(headers), body.into()).await
    }

    fn signed<'a>(&'a self, headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let has_own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let own = self.authorization.as_deref().filter(|_| !has_own);
        headers.iter().copied().chain(own.map(|own| ("authorization", own))).collect()
    }

    /// Another caller of the same gateway.
    pub async fn send_as(&self, token: &str, method: &str, path: &str, body: Value) -> Answer {
        self.send(method, path, &[("authorization", &bearer(token))], body.to_string()).await
    }

    /// Creates a client and returns its token.
    pub async fn create_client(&self, name: &str, allow_list: &[&str]) -> String {
        let client = json!({ "name": name, "allow_list": allow_list });
        let client = self.post("/api/v0/clients", client).await.expect(201).json();
        client["access_token"].as_str().unwrap().to_owned()
    }

    /// Creates a user and returns the token.
    pub async fn create_user(&self, username: &str, role: &str) -> String {
        let user = json!({ "username": username, "role": role });
        let user = self.post("/api/v0/users", user).await.expect(201).json();
        user["access_token"].as_str().unwrap().to_owned()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send("PATCH", path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], "").await
    }

    /// Opens an event stream with a GET.
    pub async fn events(&self, path: &str) -> Events {
        let headers = self.signed(&[("accept", "text/event-stream")]);
        Events::new(client::open(&self.address, "GET", path, &headers, vec![]).await)
    }

    /// Opens an event stream with a POST.
    pub async fn post_for_events(&self, path: &str, body: Value) -> Events {
        let headers = [("accept", "text/event-stream")];
        let headers = self.signed(&headers);
        Events::new(client::open(&self.address, "POST", path, &headers, body.to_string().into()).await)
    }

    /// Calls a tool with a body exactly as written.
    pub async fn invoke_raw(&self, body: &str) -> Answer {
        self.send("POST", "/api/v0/tools/invoke", &[], body).await
    }

    /// Calls a tool without waiting; dropping the returned stream closes the connection.
    pub async fn invoke_and_hold(&self, body: &Value) -> TcpStream {
        let body = body.to_string();
        let head = format!(
            "POST /api/v0/tools/invoke HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}",
            body.len()
        );
        client::raw(&self.address, format!("{head}\r\n\r\n{body}").as_bytes()).await
    }

    pub async fn register(&self, input: Value) -> Value {
        self.post("/api/v0/servers", input).await.expect(201).json()
    }

    pub async fn register_http(&self, name: &str, fake: &Fake) -> Value {
        self.register(json!({ "name": name, "transport": "streamable_http", "url": fake.url() })).await
    }

    pub async fn register_sse(&self, name: &str, fake: &Fake) -> Value {
        self.register(json!({ "name": name, "transport": "sse", "url": fake.sse_url() })).await
    }

    pub async fn register_stdio(&self, name: &str, behaviour: &Behaviour) -> Value {
        self.register(stdio_input(name, behaviour)).await
    }

    /// Registers one server of each transport and era, all with this behaviour; the fakes must be kept alive.
    pub async fn register_each_kind(&self, behaviour: &Value) -> (Vec<String>, Vec<Fake>) {
        let (mut names, mut fakes) = (Vec::new(), Vec::new());
        for era in ["legacy", "modern"] {
            let mut behaviour = behaviour.clone();
            behaviour["era"] = json!(era);
            let behaviour = Behaviour::of(behaviour);
            let fake = Fake::start(behaviour.clone()).await;
            names.extend([format!("http-{era}"), format!("stdio-{era}")]);
            self.register_http(&format!("http-{era}"), &fake).await;
            self.register_stdio(&format!("stdio-{era}"), &behaviour).await;
            if era == "legacy" {
                self.register_sse("sse-legacy", &fake).await;
                names.push("sse-legacy".into());
            }
            fakes.push(fake);
        }
        (names, fakes)
    }

    /// Calls a tool with the given arguments.
    pub async fn invoke(&self, tool: &str, mut arguments: Value) -> Answer {
        arguments["name"] = json!(tool);
        self.post("/api/v0/tools/invoke", arguments).await
    }

    /// The text of the first content block of a call that must work.
    pub async fn call(&self, tool: &str, arguments: Value) -> String {
        let result = self.invoke(tool, arguments).await.expect(200).json();
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}")).to_owned()
    }

    pub async fn server(&self, name: &str) -> Value {
        self.get(&format!("/api/v0/servers/{name}")).await.expect(200).json()
    }

    /// The names of the listed tools; `query` begins with `?` or is empty.
    pub async fn tools(&self, query: &str) -> Vec<String> {
        let tools = self.get(&format!("/api/v0/tools{query}")).await.expect(200).json();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.hurry.cancel();
    }
}

pub fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// The registration input of a fake that runs as a child process.
pub fn stdio_input(name: &str, behaviour: &Behaviour) -> Value {
    let (command, args) = stdio_command(behaviour);
    json!({ "name": name, "transport": "stdio", "command": command, "args": args })
}

pub fn config(folder: &Path) -> Config {
    Config {
        limits: budget::Limits::default(),
        port: 0,
        bind: Bind::Loopback,
        mode: Mode::Development,
        database: store::DatabaseAddress::File(folder.join("toolgate.db")),
        secret_key: None,
        init_timeout: Duration::from_secs(10),
        session_idle_timeout: None,
        public_url: None,
        trust_proxy: false,
        allowed_origins: Vec::new(),
        allowed_hosts: Vec::new(),
        init_secret: None,
        tls: None,
        oauth_allow_private: false,
        oauth_session_life: Duration::from_secs(600),
        clock: WallClock::default(),
        internal_url: None,
        stale_rights: Duration::from_secs(300),
        recording: Recording::default(),
        auditing: Auditing::default(),
        telemetry: false,
        sign_in: SignInSettings::default(),
        traces: None,
        child_env: std::env::vars_os().collect(),
        stdio_user: None,
        child_descriptors: None,
        program: PathBuf::from(env!("CARGO_BIN_EXE_toolgate")),
        source: "defaults".into(),
    }
}
