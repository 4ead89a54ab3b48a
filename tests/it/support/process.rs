//! The real program as a child process of the test, in its own folder.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use super::client::{self, Answer};

/// Timeout for starting and stopping.
const LIMIT: Duration = Duration::from_secs(60);

pub struct Process {
    child: Child,
    pub address: String,
    pub folder: TempDir,
    /// Its standard error so far.
    pub log: Arc<Mutex<String>>,
}

/// The exit code and the output of a program.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The error sentence of a program that refused to start.
    #[track_caller]
    pub fn sentence(&self) -> &str {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let sentence = self.stderr.trim_end_matches('\n');
        assert!(sentence.starts_with("toolgate: ") && !sentence.contains('\n'), "{self:?}");
        sentence
    }
}

/// `toolgate start` in `folder` on a free port, with an empty environment except PATH.
pub fn command(folder: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolgate"));
    command.arg("start").current_dir(folder).env_clear().env("PORT", "0").kill_on_drop(true);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a program that ends by itself.
pub async fn run(mut command: Command) -> Ended {
    let output = tokio::time::timeout(LIMIT, command.output()).await.expect("the program ends").unwrap();
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A program that listens, and has not started completely.
pub struct Unready {
    pub child: Child,
    pub address: String,
    /// Kept open: the program would fail to write to a closed pipe.
    _errors: tokio::io::Lines<BufReader<ChildStderr>>,
}

impl Unready {
    pub async fn start(mut command: Command) -> Self {
        command.env("RUST_LOG", "toolgate=debug");
        let mut child = command.spawn().expect("the program was built");
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let reading = async {
            while let Some(line) = errors.next_line().await.unwrap() {
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                if line["message"].as_str().is_some_and(|text| text.contains("not ready yet")) {
                    return line["address"].as_str().expect("the line names the address").to_owned();
                }
            }
            panic!("it has ended");
        };
        let address = tokio::time::timeout(LIMIT, reading).await.expect("it listens");
        Self { child, address, _errors: errors }
    }

    pub async fn send(&self, method: &str, path: &str) -> Answer {
        client::request(&self.address, method, path, &[], Vec::new()).await
    }

    /// Tells it to stop, and returns its exit code.
    pub async fn stop(mut self) -> Option<i32> {
        send_signal(&self.child, libc::SIGTERM);
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        ended.expect("the program ends").unwrap().code()
    }
}

impl Process {
    pub async fn start() -> Self {
        Self::start_in(TempDir::new().unwrap(), &[]).await
    }

    pub async fn start_in(folder: TempDir, variables: &[(&str, &str)]) -> Self {
        let command = command(folder.path(), variables);
        Self::start_as(command, folder).await
    }

    /// Starts with a limit on the size of files, which simulates a full disk.
    pub async fn start_limited(folder: TempDir, bytes: Option<u64>) -> Self {
        let mut command = command(folder.path(), &[]);
        // SAFETY: makes one system call that is allowed between fork and exec.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || {
                limit_file_size(0, bytes);
                // The default of every program; the test runner may have changed it.
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                Ok(())
            })
        };
        Self::start_as(command, folder).await
    }

    /// Starts with its log in a file beside the database.
    pub async fn start_with_log_file() -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = command(folder.path(), &[("RUST_LOG", "debug")]);
        command.stderr(std::fs::File::create(folder.path().join("log")).unwrap());
        Self::start_as(command, folder).await
    }

    /// Starts with SIGHUP ignored, like `nohup`.
    pub async fn start_ignoring_hangups() -> Self {
        Self::start_with_hangups(libc::SIG_IGN).await
    }

    /// Starts so that hang-ups are not ignored, even if this process was started with `nohup`.
    pub async fn start_noticing_hangups() -> Self {
        Self::start_with_hangups(libc::SIG_DFL).await
    }

    async fn start_with_hangups(handler: libc::sighandler_t) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = command(folder.path(), &[]);
        // SAFETY: makes one system call that is allowed between fork and exec.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGHUP, handler);
                Ok(())
            })
        };
        Self::start_as(command, folder).await
    }

    /// Starts from a script that has another child process when it replaces itself by the gateway.
    pub async fn start_beside(background: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let script = command(folder.path(), &[]);
        let program = script.as_std().get_program().to_owned();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{background} & exec \"$0\" start")).arg(program);
        shell.current_dir(folder.path()).env_clear().kill_on_drop(true);
        shell.envs(script.as_std().get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::start_as(shell, folder).await
    }

    pub async fn start_as(mut command: Command, folder: TempDir) -> Self {
        let mut child = command.spawn().expect("the program was built");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(LIMIT, lines.next_line()).await.expect("it says something").unwrap();
        let Some(first) = first else {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
            panic!("the program did not start: {said}");
        };
        let (_, address) = first.split_once("://").unwrap_or_else(|| panic!("no address in {first:?}"));
        // Both pipes are read to the end: the program would fail to write to a closed pipe.
        let (address, errors) = (address.to_owned(), child.stderr.take());
        let log = Arc::new(Mutex::new(String::new()));
        let kept = log.clone();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        tokio::spawn(async move {
            let Some(errors) = errors else { return };
            let mut errors = BufReader::new(errors).lines();
            while let Ok(Some(line)) = errors.next_line().await {
                kept.lock().unwrap().extend([&line, "\n"]);
            }
        });
        Self { child, address, folder, log }
    }

    pub fn id(&self) -> libc::pid_t {
        id(&self.child)
    }

    pub fn signal(&self, signal: libc::c_int) {
        send_signal(&self.child, signal);
    }

    /// Waits for its end; returns the exit code, or `None` after a signal.
    pub async fn end(mut self) -> (Option<i32>, TempDir) {
        let status = tokio::time::timeout(LIMIT, self.child.wait()).await.expect("the program ends").unwrap();
        (status.code(), self.folder)
    }

    pub async fn get(&self, path: &str) -> Answer {
        client::request(&self.address, "GET", path, &[], Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &[], body).await
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        client::request(&self.address, method, path, headers, body.to_string().into()).await
    }

    pub async fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        client::request(&self.address, method, path, headers, Vec::new()).await
    }

    /// The text of the first content block of a call that must work.
    pub async fn call(&self, tool: &str, mut arguments: Value) -> String {
        arguments["name"] = tool.into();
        let result = self.post("/api/v0/tools/invoke", &arguments).await.expect(200).json();
        result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}")).to_owned()
    }
}

pub fn send_signal(child: &Child, signal: libc::c_int) {
    send_signal_to(id(child), signal);
}

pub fn send_signal_to(process: libc::pid_t, signal: libc::c_int) {
    // SAFETY: a plain system call without memory.
    #[allow(unsafe_code)]
    let sent = unsafe { libc::kill(process, signal) };
    assert_eq!(sent, 0);
}

fn id(child: &Child) -> libc::pid_t {
    child.id().expect("it still runs").try_into().unwrap()
}

/// Limits the size of files that a process writes, or removes that limit; 0 stands for this process.
pub fn limit_file_size(process: libc::pid_t, bytes: Option<u64>) {
    // SAFETY: both calls read or write one value that outlives them.
    #[allow(unsafe_code)]
    let set = unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        libc::prlimit(process, libc::RLIMIT_FSIZE, std::ptr::null(), &mut limit);
        limit.rlim_cur = bytes.map_or(limit.rlim_max, |bytes| bytes.min(limit.rlim_max));
        libc::prlimit(process, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
}

/// Whether a process exists and is not a zombie.
pub fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().next());
    state.is_some_and(|state| state != "Z" && state != "X")
}
