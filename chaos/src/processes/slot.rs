//! One server of the run: registered, called, disabled, enabled, replaced and removed at random. Each time its processes
//! must end, it is checked that none is left.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::census::{self, Found};
use super::offspring::{BEHAVIOURS, GUARD_KILLER};
use crate::gateway::{eventually, signal};
use crate::http::{Request, Response};
use crate::random::Random;
use crate::report::Report;

/// How long processes may take to end after the gateway has reported their end; long, for a busy machine.
pub const GONE: Duration = Duration::from_secs(10);
/// Timeout of the caller, for calls of a stopped server.
const CALL: Duration = Duration::from_secs(20);
const CALL_STOPPED: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Enabled,
    Disabled,
}

pub struct Slot {
    name: String,
    /// The folder with the marks of this run; a mark is the path of a file.
    marks: PathBuf,
    serial: u32,
    state: State,
    behaviour: &'static str,
    /// The mark in the command line of every process of the current server.
    mark: String,
    /// The longest time that processes took to end.
    pub slowest: Duration,
}

/// What a slot uses during one round.
pub struct Round {
    pub address: String,
    pub random: Random,
    pub report: Report,
    /// For messages, so that the cause of a violation can be found.
    pub label: String,
}

impl Slot {
    pub fn new(marks: &Path, number: usize) -> Self {
        Self {
            name: format!("s{number}"),
            marks: marks.to_owned(),
            serial: 0,
            state: State::Absent,
            behaviour: "plain",
            mark: String::new(),
            slowest: Duration::ZERO,
        }
    }

    pub fn kills_guards(&self) -> bool {
        self.state == State::Enabled && self.behaviour == GUARD_KILLER
    }

    /// One random step.
    pub async fn step(&mut self, round: &mut Round) -> Result<()> {
        match (self.state, round.random.below(100)) {
            (State::Absent, _) => self.register(round).await,
            (State::Enabled, 0..35) => self.call(round).await,
            (State::Enabled, 35..47) => self.disable(round).await,
            (State::Enabled, 47..62) => self.replace(round).await,
            (State::Enabled, 62..74) => self.remove(round).await,
            (State::Enabled, 74..82) => self.kill(round, Victim::Server).await,
            (State::Enabled, 82..92) => self.kill(round, Victim::Guard).await,
            (State::Enabled, _) => self.starve_guard(round).await,
            (State::Disabled, 0..60) => self.enable(round).await,
            (State::Disabled, _) => self.remove(round).await,
        }
    }

    async fn register(&mut self, round: &mut Round) -> Result<()> {
        let (behaviour, mark, input) = self.draw(round)?;
        let response = round.send("POST", "/api/v0/servers", &input).await?;
        round.count("register", &response);
        if response.is_success() {
            (self.state, self.behaviour, self.mark) = (State::Enabled, behaviour, mark);
            return Ok(());
        }
        self.expect_end(round, &mark, "a refused registration", behaviour).await;
        Ok(())
    }

    /// Replaces the server: if the new processes work, the old ones must end; otherwise the new ones.
    async fn replace(&mut self, round: &mut Round) -> Result<()> {
        let (behaviour, mark, input) = self.draw(round)?;
        let response = round.send("POST", "/api/v0/servers?force=true", &input).await?;
        round.count("replace", &response);
        if response.is_success() {
            let old = std::mem::replace(&mut self.mark, mark);
            let was = std::mem::replace(&mut self.behaviour, behaviour);
            self.expect_end(round, &old, "a replacement", was).await;
        } else {
            self.expect_end(round, &mark, "a refused replacement", behaviour).await;
        }
        Ok(())
    }

    async fn disable(&mut self, round: &mut Round) -> Result<()> {
        let path = format!("/api/v0/servers/{}/disable", self.name);
        let response = round.send("POST", &path, &json!({})).await?;
        round.count("disable", &response);
        if response.is_success() {
            self.state = State::Disabled;
            self.expect_gone(round, &self.mark.clone(), "disabling", self.behaviour).await;
        } else {
            round.violate(format!("disabling failed: {}", response.text()));
        }
        Ok(())
    }

    async fn enable(&mut self, round: &mut Round) -> Result<()> {
        let path = format!("/api/v0/servers/{}/enable", self.name);
        let response = round.send("POST", &path, &json!({})).await?;
        round.count("enable", &response);
        if !response.is_success() {
            return self.remove(round).await;
        }
        self.state = State::Enabled;
        Ok(())
    }

    pub async fn remove(&mut self, round: &mut Round) -> Result<()> {
        if self.state == State::Absent {
            return Ok(());
        }
        let response = round.send("DELETE", &format!("/api/v0/servers/{}", self.name), &json!({})).await?;
        round.count("remove", &response);
        if response.is_success() {
            self.state = State::Absent;
            self.expect_end(round, &self.mark.clone(), "a removal", self.behaviour).await;
        } else {
            round.violate(format!("removing failed: {}", response.text()));
        }
        Ok(())
    }

    /// Makes some concurrent calls, each with a unique value.
    async fn call(&mut self, round: &mut Round) -> Result<()> {
        let limit = if self.behaviour == "stopper" { CALL_STOPPED } else { CALL };
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..=round.random.below(4) {
            let value = format!("{:016x}", round.random.draw());
            let body = json!({ "name": format!("{}__echo", self.name), "value": value });
            let request = Request::new("POST", "/api/v0/tools/invoke").json(&body).limit(limit);
            let address = round.address.clone();
            calls.spawn(async move { (value, request.send(&address).await) });
        }
        while let Some(called) = calls.join_next().await {
            let (value, response) = called?;
            match response {
                Ok(response) => {
                    round.count("call", &response);
                    let text = response.text();
                    if response.is_success() && !text.contains(&value) {
                        round.violate(format!("the call with {value} was answered with {text}"));
                    }
                }
                Err(_) if self.behaviour == "stopper" => round.report.operation("call: given up (stopped)"),
                Err(error) => round.violate(format!("a call got no answer: {error:#}")),
            }
        }
        Ok(())
    }

    /// Kills a process; all processes of its server must end, and the server may then be restarted.
    async fn kill(&mut self, round: &mut Round, victim: Victim) -> Result<()> {
        let all = census::marked(&self.mark);
        let Some(target) = victim.find(&all) else { return Ok(()) };
        let target = target.pid;
        round.report.fault(&format!("kill -9 of a {}", victim.word()));
        signal(target, libc::SIGKILL);
        // A stopped guard cannot reap its server, which may stay as a zombie until the gateway ends the guard.
        let is_held = self.behaviour == "guard-stopper" && matches!(victim, Victim::Server);
        let is_gone = async || is_held || !all.iter().any(Found::is_alive);
        if !self.within(GONE, is_gone).await {
            let left: Vec<_> = all.iter().filter(|found| found.is_alive()).map(ToString::to_string).collect();
            let (word, behaviour) = (victim.word(), self.behaviour);
            round.violate(format!("kill -9 of a {word} ({behaviour}) left {}", left.join(", ")));
        }
        Ok(())
    }

    /// Stops the guard for a moment, as if the machine were overloaded, and disables the server meanwhile.
    async fn starve_guard(&mut self, round: &mut Round) -> Result<()> {
        let guards: Vec<_> = census::marked(&self.mark).into_iter().filter(Found::is_guard).collect();
        round.report.fault("guard starved");
        for guard in &guards {
            signal(guard.pid, libc::SIGSTOP);
        }
        self.disable(round).await?;
        for guard in guards.iter().filter(|guard| guard.is_alive()) {
            signal(guard.pid, libc::SIGCONT);
        }
        Ok(())
    }

    /// A new server: its behaviour, its mark, and the registration.
    fn draw(&mut self, round: &mut Round) -> Result<(&'static str, String, Value)> {
        self.serial += 1;
        let behaviour = *round.random.pick(BEHAVIOURS);
        let mark = self.marks.join(format!("{}.{}.", self.name, self.serial)).display().to_string();
        fs::write(&mark, "")?;
        let delay = (50 + round.random.below(1500)).to_string();
        let program = std::env::current_exe()?.display().to_string();
        let args = [super::SERVER, behaviour, &mark, &delay];
        let input = json!({ "name": self.name, "transport": "stdio", "command": program, "args": args });
        round.report.fault(&format!("server: {behaviour}"));
        Ok((behaviour, mark, input))
    }

    /// Checks that no process is left of a server that was removed for good.
    async fn expect_end(&mut self, round: &mut Round, mark: &str, after: &str, behaviour: &str) {
        self.expect_gone(round, mark, after, behaviour).await;
        let _ = fs::remove_file(mark);
    }

    async fn expect_gone(&mut self, round: &mut Round, mark: &str, after: &str, behaviour: &str) {
        if !self.within(GONE, async || is_gone(mark)).await {
            round.violate(format!("{after} ({behaviour}) left {}", clear(mark)));
        }
    }

    async fn within(&mut self, limit: Duration, condition: impl AsyncFnMut() -> bool) -> bool {
        let begun = Instant::now();
        let came_true = eventually(limit, condition).await;
        self.slowest = self.slowest.max(begun.elapsed());
        came_true
    }
}

/// The process to kill.
enum Victim {
    Server,
    Guard,
}

impl Victim {
    fn word(&self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Guard => "guard",
        }
    }

    /// The guard, or the server right below it.
    fn find<'a>(&self, all: &'a [Found]) -> Option<&'a Found> {
        let guard = all.iter().find(|found| found.is_guard())?;
        match self {
            Self::Guard => Some(guard),
            Self::Server => {
                all.iter().filter(|found| found.parent == guard.pid).min_by_key(|found| found.pid)
            }
        }
    }
}

impl Round {
    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Response> {
        Request::new(method, path).json(body).send(&self.address).await
    }

    fn count(&mut self, kind: &str, response: &Response) {
        let outcome = if response.is_success() { "done" } else { "refused" };
        self.report.operation(&format!("{kind}: {outcome}"));
    }

    pub fn violate(&mut self, what: String) {
        self.report.violation(format!("{}: {what}", self.label));
    }
}

/// Whether no process has the mark in its command line or holds the file that it names.
pub fn is_gone(mark: &str) -> bool {
    let is_free = |file: File| file.try_lock().is_ok();
    File::open(mark).map_or(true, is_free) && census::marked(mark).is_empty()
}

/// Kills processes that should have ended, so that they are reported only once; returns what they were.
pub fn clear(mark: &str) -> String {
    let left = census::marked(mark);
    let mut words: Vec<_> = left.iter().take(5).map(ToString::to_string).collect();
    if left.len() > 5 {
        words.push(format!("and {} more", left.len() - 5));
    }
    if left.is_empty() {
        words.push("processes too short-lived to be listed".to_owned());
    }
    let _ = fs::remove_file(mark);
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline && !census::marked(mark).is_empty() {
        for found in census::marked(mark) {
            signal(found.pid, libc::SIGKILL);
        }
    }
    // Long enough for a chain of processes to notice; a disabled server needs its mark again.
    std::thread::sleep(Duration::from_millis(100));
    let _ = fs::write(mark, "");
    words.join(", ")
}
