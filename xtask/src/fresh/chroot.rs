//! A bare Debian 12 in a folder. Each command runs in its own mount and PID namespaces, which end with the command or
//! with this process; all its mounts and processes end with them, so only the folder has to be removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::host;
use super::interrupt::Interrupt;
use crate::command;
use crate::run::Run;

const SUITE: &str = "bookworm";
/// Packages besides the essential ones of Debian. Rust is installed later.
const PACKAGES: &str = "git,gcc,libc6-dev,curl,ca-certificates";
/// The `PATH` of root after a login, with rustup's folder first.
const PATH: &str = "/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The clone, as a path inside.
const CHECKOUT: &str = "/root/toolgate";

/// Runs a command in new namespaces. It is killed, with all its descendants, when this process ends.
const ISOLATED: &[&str] =
    &["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"];
/// Process 1 of the namespace. It does not `exec` the command, because it must reap orphans.
const ENTER: &str = r#"
    mount -t proc proc "$1/proc"
    mount --rbind /sys "$1/sys"
    mount --rbind /dev "$1/dev"
    mount -t tmpfs shm "$1/dev/shm"
    chroot "$@"
    exit $?
"#;
/// Installs rustup without a toolchain. Its usual script does the same, but comes from one more host.
const RUSTUP: &str = r#"
    curl --proto '=https' --silent --show-error --fail --output /tmp/rustup-init \
        "${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}/dist/$(uname -m)-unknown-linux-gnu/rustup-init"
    chmod +x /tmp/rustup-init
    /tmp/rustup-init -y --quiet --no-modify-path --profile minimal --default-toolchain none
    rm /tmp/rustup-init
"#;
/// Time limit for killed processes to disappear.
const UNTIL_QUIET: Duration = Duration::from_secs(30);

pub struct Chroot<'a> {
    root: PathBuf,
    folder: PathBuf,
    interrupt: &'a Interrupt,
}

impl<'a> Chroot<'a> {
    /// The chroot of this checkout, whether it exists or not.
    pub fn at(run: &Run, interrupt: &'a Interrupt) -> Chroot<'a> {
        let folder = run.root.join(".cache/fresh");
        Chroot { root: run.root.clone(), folder, interrupt }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn make_debian(&self) -> Result<()> {
        let include = format!("--include={PACKAGES}");
        let folder = self.path()?;
        let mirror = host::mirror();
        let line = ["--mount-proc", "debootstrap", "--variant=minbase", &include, SUITE, folder, &mirror];
        let mut command = command::prepare(&self.root, &[ISOLATED, &line].concat());
        let log = self.root.join(".cache/fresh-debootstrap.log");
        self.wait(command.stdin(Stdio::null()).stdout(File::create(&log)?))
            .with_context(|| format!("the output of debootstrap is in {}", log.display()))?;
        host::copy_settings(&self.root, &self.folder)
    }

    /// Installs no toolchain: the first use of cargo fetches the one that the project pins.
    pub fn install_rustup(&self) -> Result<()> {
        self.wait(self.command("/", &["sh", "-euc", RUSTUP])?.stdin(Stdio::null()))
    }

    /// Clones the current commit; uncommitted changes are left out.
    pub fn clone_head(&self, root: &Path) -> Result<()> {
        let (from, to) = (
            root.to_str().context("the path of the checkout is not text")?,
            self.folder.join(&CHECKOUT[1..]),
        );
        let to = to.to_str().context("the path of the clone is not text")?;
        command::show(root, &["git", "clone", "--quiet", "--no-hardlinks", from, to])
    }

    /// Runs a command in the clone.
    pub fn run(&self, line: &[&str], variables: &[(&str, &str)]) -> Result<()> {
        let mut command = self.command(CHECKOUT, line)?;
        self.wait(command.stdin(Stdio::null()).envs(variables.iter().copied()))
    }

    /// Runs a command in the clone, with this terminal.
    pub fn enter(&self, line: &[&str]) -> Result<()> {
        self.wait(&mut self.command(CHECKOUT, line)?)
    }

    /// Removes the folder, if it exists.
    pub fn remove(&self) -> Result<()> {
        let deadline = Instant::now() + UNTIL_QUIET;
        while self.folder.exists() {
            self.check_mounts()?;
            match fs::remove_dir_all(&self.folder) {
                // A process that is being killed has created another file.
                Err(error)
                    if error.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < deadline =>
                {
                    thread::sleep(Duration::from_millis(100));
                }
                outcome => outcome.with_context(|| format!("{} cannot be removed", self.folder.display()))?,
            }
        }
        Ok(())
    }

    /// Fails if something was mounted in the folder by hand: removal would delete its content.
    fn check_mounts(&self) -> Result<()> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        if let Some(place) = places.find(|place| Path::new(place).starts_with(&self.folder)) {
            bail!("{place} is mounted; unmount it first");
        }
        Ok(())
    }

    fn command(&self, place: &str, line: &[&str]) -> Result<Command> {
        let enter = ["sh", "-euc", ENTER, "sh", self.path()?, "env", "--chdir", place];
        let mut command = command::prepare(&self.root, &[ISOLATED, &enter, line].concat());
        command.env_clear().env("HOME", "/root").env("PATH", PATH).envs(host::variables());
        command.envs(std::env::var("TERM").map(|term| ("TERM", term)));
        Ok(command)
    }

    fn wait(&self, command: &mut Command) -> Result<()> {
        let mut child = command.spawn().context("setpriv and unshare of util-linux are needed")?;
        let status = self.interrupt.wait(&mut child)?;
        if !status.success() {
            bail!("exited with {status}");
        }
        Ok(())
    }

    fn path(&self) -> Result<&str> {
        self.folder.to_str().context("the path of the chroot is not text")
    }
}
