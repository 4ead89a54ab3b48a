//! A Postgres server of its own, in a temporary folder and on a free port, which ends with the value. `tests/replicas` uses this
//! file too, for servers that are stopped, restarted and replaced.

use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Where Debian keeps the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Tests run at the same time, each with a few connections.
const CONNECTIONS: &str = "max_connections=500";
/// The user that runs the server where the tests run as root: Postgres refuses to.
const USER: &str = "postgres";
/// The pause between two looks whether the server has started.
const LOOK: Duration = Duration::from_millis(50);
/// Ports that no system gives to connections by default: a server that is stopped must get its port again.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How many servers this process has started.
static COUNT: AtomicU16 = AtomicU16::new(0);

pub struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    is_root: bool,
    port: u16,
    child: Option<Child>,
}

/// How a server ends, in the words of `pg_ctl stop --mode`.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// Rolls back what is not committed, and ends in order.
    Fast,
    /// Ends at once, as in a crash: the next start recovers.
    Immediate,
}

impl PostgresServer {
    /// Starts a server without any data.
    pub fn start() -> Result<Self> {
        let mut server = Self::prepare()?;
        let data = server.data()?;
        server.run("initdb", &["-D", &data, "-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync"])?;
        server.resume()?;
        Ok(server)
    }

    /// Starts a standby, which follows this server until it is promoted.
    pub fn start_standby(&self) -> Result<Self> {
        let mut standby = Self::prepare()?;
        let (data, port) = (standby.data()?, self.port.to_string());
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", USER];
        let how = ["-D", &data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"];
        standby.run("pg_basebackup", &[&from[..], &how].concat())?;
        standby.resume()?;
        Ok(standby)
    }

    /// The address without the name of a database.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@{}", self.address())
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Starts the server again, on the same port and with the same data, and waits until it accepts connections.
    pub fn resume(&mut self) -> Result<()> {
        let (data, port, place) = (self.data()?, self.port.to_string(), self.place()?);
        // What survives a crash of the machine is not tested here.
        let settings = ["-c", "listen_addresses=127.0.0.1", "-c", CONNECTIONS, "-c", "fsync=off"];
        let arguments = [&["-D", data.as_str(), "-p", &port, "-k", &place][..], &settings].concat();
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        let mut postgres = self.command("postgres", &arguments);
        postgres.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(postgres.spawn().context("Postgres cannot be started")?);
        let is_ready = ["-q", "-h", "127.0.0.1", "-p", &port];
        while !self.command("pg_isready", &is_ready).status().is_ok_and(|status| status.success()) {
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                bail!("Postgres ended with {status}:\n{log}");
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Stops the server and waits until it has ended.
    pub fn stop(&mut self, how: Stop) {
        let Some(mut child) = self.child.take() else { return };
        let signal = match how {
            Stop::Fast => "-INT",
            Stop::Immediate => "-QUIT",
        };
        let _ = Command::new("kill").args([signal, &child.id().to_string()]).status();
        let _ = child.wait();
    }

    /// Makes a standby accept changes.
    pub fn promote(&self) -> Result<()> {
        self.run("pg_ctl", &["promote", "-D", &self.data()?, "--wait", "--silent"])
    }

    fn prepare() -> Result<Self> {
        let programs = programs().context("Postgres is not installed")?;
        let is_root = Command::new("id").arg("-u").output()?.stdout.trim_ascii() == b"0";
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("toolgate-postgres-{}-{number}", process::id()));
        fs::create_dir(&folder).with_context(|| format!("{} cannot be created", folder.display()))?;
        let server = Self { programs, folder, is_root, port: free_port(number)?, child: None };
        if is_root {
            let owned = Command::new("chown").args([USER, &server.place()?]).status()?;
            if !owned.success() {
                bail!("there is no user {USER}, which must run Postgres in place of root");
            }
        }
        Ok(server)
    }

    fn place(&self) -> Result<String> {
        Ok(self.folder.to_str().context("the temporary folder is not text")?.to_owned())
    }

    fn data(&self) -> Result<String> {
        Ok(format!("{}/data", self.place()?))
    }

    /// Runs a program of Postgres to its end.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let ended = self.command(program, arguments).output()?;
        if !ended.status.success() {
            bail!("{program} ended with {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
        }
        Ok(())
    }

    /// A program of Postgres, under a user that it accepts.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let program = self.programs.join(program);
        let mut command = match self.is_root {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command.args(arguments).current_dir(&self.folder);
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop(Stop::Immediate);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A port that nobody uses, another one for each server and process.
fn free_port(number: u16) -> Result<u16> {
    let first = process::id().wrapping_mul(64).wrapping_add(u32::from(number) * 8);
    let ports = (0..u32::from(PORTS.end - PORTS.start)).map(|step| first.wrapping_add(step));
    let mut ports = ports.map(|port| PORTS.start + (port % u32::from(PORTS.end - PORTS.start)) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).context("no port is free")
}

/// The folder with the programs of the newest version.
fn programs() -> Option<PathBuf> {
    let in_path =
        env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let debian = fs::read_dir(DEBIAN).into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let version = |path: &PathBuf| {
        let name = path.parent()?.file_name()?.to_str()?;
        name.parse::<u32>().ok()
    };
    let mut newest: Vec<_> = debian.collect();
    newest.sort_by_key(|path| std::cmp::Reverse(version(path)));
    newest.into_iter().chain(in_path).find(|folder| folder.join("initdb").exists())
}
