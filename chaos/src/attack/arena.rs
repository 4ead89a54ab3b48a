//! The place of an attack: a gateway with a server behind it, a bystander, and the judgement afterwards. Whatever the
//! attack was, the gateway must answer quickly again, give its memory back and not have panicked.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;
use toolgate_chaos::gateway::{Gateway, Settings, eventually};
use toolgate_chaos::http::{Request, Response};

use crate::bystander::Bystander;
use crate::fake::Fake;
use crate::memory::Memory;
use crate::plan::Plan;
use crate::verdict::{Attack, Verdict};

/// How quickly `/health` and a plain call are answered after an attack, by the best of several tries: other programs
/// may delay any one of them.
const QUICK: Duration = Duration::from_millis(100);
/// How long recovery may take.
const RECOVERY: Duration = Duration::from_secs(20);
/// KiB that an allocator may keep.
const KEPT: u64 = 8 * 1024;
/// Longer than any attack takes.
const LIMIT: Duration = Duration::from_secs(150);

/// The server that is registered in every arena, and its plain tool.
pub const SERVER: &str = "s";
pub const ECHO: &str = "s__echo";

pub struct Arena {
    pub gateway: Gateway,
    pub fake: Fake,
    /// The token of the admin in enterprise mode.
    pub admin: Option<String>,
    pub folder: TempDir,
    bystander: Bystander,
    memory: Memory,
    /// Memory before the first attack, in KiB.
    level: u64,
    /// MiB that an attack may need at most.
    ceiling: u64,
    verdicts: Mutex<Vec<Verdict>>,
}

impl Arena {
    /// Starts a gateway in development mode.
    pub async fn development(
        plan: &Plan,
        ceiling: u64,
        adjust: impl FnOnce(Settings) -> Settings,
    ) -> Result<Self> {
        Self::open(plan, ceiling, "development", adjust).await
    }

    /// Starts and initializes a gateway in enterprise mode.
    pub async fn enterprise(
        plan: &Plan,
        ceiling: u64,
        adjust: impl FnOnce(Settings) -> Settings,
    ) -> Result<Self> {
        Self::open(plan, ceiling, "enterprise", adjust).await
    }

    async fn open(
        plan: &Plan,
        ceiling: u64,
        mode: &str,
        adjust: impl FnOnce(Settings) -> Settings,
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder")?;
        let settings = Settings::new(&plan.program, folder.path())
            .variable("SERVER_MODE", mode)
            .variable("HOST", "127.0.0.1")
            .variable("OTEL_ENABLED", "true")
            .variable("RUST_LOG", "warn");
        let gateway = adjust(settings).start().await?;
        let admin = match mode {
            "enterprise" => {
                let made = gateway.post("/init", &json!({})).await?.json()?;
                Some(made["admin_access_token"].as_str().context("no admin")?.to_owned())
            }
            _ => None,
        };
        let fake = Fake::start()?;
        let input = json!({"name": SERVER, "transport": "streamable_http", "url": fake.url("plain")});
        let register = with_token(Request::new("POST", "/api/v0/servers").json(&input), admin.as_deref());
        let made = gateway.send(register).await?;
        ensure!(made.status == 201, "the server was not registered: {}", made.text());
        let call = with_token(plain_call(), admin.as_deref());
        for _ in 0..50 {
            gateway.send(call.clone()).await?;
        }
        let bystander = Bystander::start(gateway.address.clone(), call)?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let memory = Memory::watch(gateway.id());
        let level = memory.now()?;
        let verdicts = Mutex::default();
        Ok(Self { gateway, fake, admin, folder, bystander, memory, level, ceiling, verdicts })
    }

    /// Runs one attack and judges it.
    pub async fn attack(
        &self,
        name: &'static str,
        tried: &'static str,
        run: impl AsyncFnOnce(&mut Attack) -> Result<()>,
    ) -> Result<()> {
        let mut attack = Attack::new(name, tried);
        self.begin();
        attempt(&mut attack, run).await;
        self.judge(vec![attack]).await
    }

    /// Prepares for attacks that [`Self::judge`] judges together.
    pub fn begin(&self) {
        self.bystander.look();
        self.memory.take_peak();
    }

    /// Judges attacks that ran at the same time. What cannot be told apart counts for each of them.
    pub async fn judge(&self, attacks: Vec<Attack>) -> Result<()> {
        let seen = self.bystander.look();
        let peak = self.memory.take_peak().max(self.memory.now()?);
        let mut failures: Vec<String> = Vec::new();
        let ceiling = self.level + self.ceiling * 1024;
        if peak > ceiling {
            failures.push(format!("memory rose to {} MiB, beyond {} MiB", peak / 1024, ceiling / 1024));
        }
        failures.extend(seen.failures.iter().take(3).map(|failure| format!("a bystander: {failure}")));
        for (what, request) in [("/health", Request::new("GET", "/health")), ("a plain call", self.call())] {
            if let Err(error) = self.is_quick(request).await {
                failures.push(format!("{what} afterwards: {error:#}"));
            }
        }
        let allowed = self.level + self.level / 5 + KEPT;
        let returned = eventually(RECOVERY, async || {
            let is_back = self.memory.now().is_ok_and(|now| now <= allowed);
            if !is_back {
                self.stir().await;
            }
            is_back
        })
        .await;
        let after = self.memory.now().unwrap_or_default();
        if !returned {
            failures.push(format!("memory stays at {} MiB, beyond {} MiB", after / 1024, allowed / 1024));
        }
        failures.extend(self.gateway.panic());
        for mut attack in attacks {
            failures.iter().for_each(|failure| attack.fail(failure.clone()));
            let verdict = attack.judge(seen.clone(), [self.level / 1024, peak / 1024, after / 1024]);
            println!("{verdict}");
            self.verdicts.lock().expect("no code panics while it holds the verdicts").push(verdict);
        }
        Ok(())
    }

    /// Uses every thread of the gateway: an allocator returns the memory of a thread when that thread runs.
    async fn stir(&self) {
        let mut calls = JoinSet::new();
        for _ in 0..16 {
            let (call, address) = (self.call(), self.gateway.address.clone());
            calls.spawn(async move { call.send(&address).await });
        }
        calls.join_all().await;
    }

    async fn is_quick(&self, request: Request) -> Result<()> {
        let (begun, mut best, mut last) = (Instant::now(), Duration::MAX, String::from("no response"));
        while begun.elapsed() < RECOVERY {
            let asked = Instant::now();
            match request.clone().limit(RECOVERY).send(&self.gateway.address).await {
                Ok(response) if response.status == 200 => best = best.min(asked.elapsed()),
                Ok(response) => last = format!("{} {}", response.status, response.text()),
                Err(error) => last = format!("{error:#}"),
            }
            if best <= QUICK {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(best < Duration::MAX, "{last}");
        anyhow::bail!("the best of many tries took {} ms", best.as_millis())
    }

    /// Ends the gateway and returns the verdicts.
    pub async fn close(self) -> Result<Vec<Verdict>> {
        let status = self.gateway.terminate().await?;
        ensure!(status.success(), "after SIGTERM the gateway ended with {status}");
        Ok(self.verdicts.into_inner().expect("no code panics while it holds the verdicts"))
    }

    /// A plain call with the right to make it.
    pub fn call(&self) -> Request {
        self.as_admin(plain_call())
    }

    pub fn as_admin(&self, request: Request) -> Request {
        with_token(request, self.admin.as_deref())
    }

    /// Sends a request to the REST API as admin.
    pub async fn rest(&self, method: &str, path: &str, body: &Value) -> Result<Response> {
        self.gateway.send(self.as_admin(Request::new(method, path).json(body))).await
    }

    /// Registers a server that behaves as [`Fake`] does at this path.
    pub async fn register(&self, name: &str, path: &str) -> Result<Response> {
        let input = json!({"name": name, "transport": "streamable_http", "url": self.fake.url(path)});
        self.rest("POST", "/api/v0/servers", &input).await
    }

    pub async fn remove(&self, name: &str) -> Result<()> {
        self.rest("DELETE", &format!("/api/v0/servers/{name}"), &json!({})).await?;
        Ok(())
    }

    /// How often a bound refused something.
    pub async fn refusals(&self, bound: &str) -> Result<u64> {
        let metrics = self.gateway.get("/metrics").await?.text();
        let name = format!("toolgate_refusals_total{{bound=\"{bound}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(name.as_str())?.parse().ok());
        value.with_context(|| format!("no count of refusals for {bound}"))
    }
}

/// Runs an attack within its time; an error of the attack fails it.
pub async fn attempt(attack: &mut Attack, run: impl AsyncFnOnce(&mut Attack) -> Result<()>) {
    match tokio::time::timeout(LIMIT, run(attack)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => attack.fail(format!("{error:#}")),
        Err(_) => attack.fail(format!("it did not end within {} s", LIMIT.as_secs())),
    }
}

fn plain_call() -> Request {
    Request::new("POST", "/api/v0/tools/invoke").json(&json!({"name": ECHO, "message": "hi"}))
}

fn with_token(request: Request, token: Option<&str>) -> Request {
    match token {
        Some(token) => request.token(token),
        None => request,
    }
}
