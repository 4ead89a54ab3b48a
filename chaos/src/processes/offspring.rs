//! Child processes of badly behaved servers, which hide, fork, stop, flood pipes or attack their guard.
//! Every process ends by itself after a while, and forks only a limited number of times.

#![allow(unsafe_code)] // Forking without `exec`, sessions and signals have no safe interface in std.

use std::io::Write;
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// All behaviours of a server, by their name on the command line.
pub const BEHAVIOURS: &[&str] = &[
    "plain",
    "family",
    "daemon",
    "clinging",
    "bare",
    "stubborn",
    "respawner",
    "chain",
    "swarm",
    "stopper",
    "flooder",
    GUARD_KILLER,
    "guard-stopper",
];
pub const GUARD_KILLER: &str = "guard-killer";
/// Only waits; started by the behaviour `bare`.
const SLEEPER: &str = "sleeper";

/// Maximum lifetime of a process in seconds, so that none is left when the harness itself is killed.
const LIFE: u32 = 150;

/// Identity of the server; set before the first fork, so that all child processes have it.
#[derive(Clone, Copy)]
pub struct Family<'a> {
    pub behaviour: &'a str,
    /// The path of a file, which is unique to the registration.
    pub mark: &'a str,
    /// Delay before the behaviour starts.
    pub delay: Duration,
}

impl Family<'_> {
    /// Whether the server outlives its standard input.
    pub fn is_stubborn(&self) -> bool {
        matches!(self.behaviour, "stubborn" | SLEEPER)
    }

    /// Locks the mark file. All child processes share the lock, so the lock shows whether any of them lives, even if the
    /// list of processes shows none.
    fn hold_mark(&self) {
        let Ok(file) = std::fs::File::open(self.mark) else { exit() };
        let _ = file.lock_shared();
        // SAFETY: a plain system call on an open descriptor, which from then on outlives `exec`.
        unsafe { libc::fcntl(file.into_raw_fd(), libc::F_SETFD, 0) };
    }

    /// Starts the offspring. Must be called while the process has one thread.
    pub fn unleash(&self) {
        let (server, guard) = (own_pid(), parent_pid());
        limit_life();
        self.hold_mark();
        // Children are not waited for.
        set_signal(libc::SIGCHLD, libc::SIG_IGN);
        match self.behaviour {
            "family" => {
                for _ in 0..3 {
                    fork(|| {
                        fork(sleep_on);
                        sleep_on();
                    });
                }
            }
            "daemon" => daemonize(Streams::Closed, sleep_on),
            "clinging" => daemonize(Streams::Kept, sleep_on),
            "bare" => daemonize(Streams::Closed, || self.exec_bare()),
            "stubborn" => {
                ignore_requests();
                fork(sleep_on);
                daemonize(Streams::Closed, sleep_on);
            }
            "respawner" => daemonize(Streams::Closed, || {
                ignore_requests();
                respawn(500);
            }),
            "chain" => {
                daemonize(Streams::Closed, || chain(self.mark, 20_000, Duration::from_millis(2)));
            }
            "swarm" => {
                for _ in 0..4 {
                    fork(|| chain(self.mark, 10_000, Duration::from_millis(4)));
                }
            }
            "stopper" => {
                daemonize(Streams::Closed, || {
                    let daemon = own_pid();
                    fork(|| stop(daemon));
                    sleep_on();
                });
                self.later(|| stop(server));
            }
            "flooder" => self.later(flood),
            GUARD_KILLER => {
                self.hide();
                self.later(|| send(guard, libc::SIGKILL));
            }
            "guard-stopper" => {
                self.hide();
                self.later(|| stop(guard));
            }
            SLEEPER => sleep_on(),
            _ => {}
        }
    }

    /// One process of each kind that is hard to find.
    fn hide(&self) {
        fork(sleep_on);
        daemonize(Streams::Kept, sleep_on);
        daemonize(Streams::Closed, || self.exec_bare());
    }

    /// Runs `act` in a separate process after the delay.
    fn later(&self, act: impl FnOnce()) {
        let delay = self.delay;
        fork(move || {
            std::thread::sleep(delay);
            act();
            sleep_on();
        });
    }

    /// Executes another program with an empty environment; only the command line still has the mark.
    fn exec_bare(&self) {
        if let Ok(program) = std::env::current_exe() {
            let _ = Command::new(program).args([super::SERVER, SLEEPER, self.mark, "0"]).env_clear().exec();
        }
    }
}

/// How a daemon treats the standard streams of its server.
enum Streams {
    Closed,
    Kept,
}

/// Leaves parent, group and session, like a classic daemon.
fn daemonize(streams: Streams, act: impl FnOnce()) {
    fork(move || {
        // SAFETY: plain system calls on descriptors that are not used afterwards.
        unsafe {
            libc::setsid();
            if let Streams::Closed = streams {
                (0..3).for_each(|fd| {
                    libc::close(fd);
                });
            }
        }
        fork(move || {
            act();
            sleep_on();
        });
    });
}

/// Stops a process for nearly the lifetime of this one: a stopped process cannot end at its own time limit.
fn stop(pid: libc::pid_t) {
    send(pid, libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(u64::from(LIFE) - 30));
    send(pid, libc::SIGCONT);
}

/// A chain of short-lived processes: each forks the next one, sometimes in a new session, and ends.
/// The harness ends the chain by deleting its mark.
fn chain(mark: &str, links: u32, every: Duration) {
    ignore_requests();
    for link in 0..links {
        std::thread::sleep(every);
        if !std::fs::exists(mark).unwrap_or_default() {
            exit();
        }
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => limit_life(),
            -1 => {}
            _ => exit(),
        }
        if link % 10 == 0 {
            // SAFETY: a plain system call.
            unsafe { libc::setsid() };
        }
    }
    exit();
}

/// Two processes that watch each other: if one ends, the other replaces it.
fn respawn(mut lives: u32) {
    let pause = Duration::from_millis(5);
    while lives > 0 {
        lives -= 1;
        let keeper = own_pid();
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            limit_life();
            while parent_pid() == keeper {
                std::thread::sleep(pause);
            }
            continue;
        }
        // SAFETY: a plain system call that only checks whether the process exists; ended children are reaped at once.
        while child > 0 && unsafe { libc::kill(child, 0) } == 0 {
            std::thread::sleep(pause);
        }
    }
    exit();
}

/// Fills both pipes with meaningless lines, short enough to be written atomically.
fn flood() {
    let (mut stdout, mut stderr) = (std::io::stdout(), std::io::stderr());
    let noise = "x".repeat(500);
    for number in 0..20_000 {
        let _ = writeln!(
            stdout,
            r#"{{"jsonrpc":"2.0","method":"noise","params":{{"n":{number},"x":"{noise}"}}}}"#
        );
        let _ = writeln!(stderr, "noise {number} {noise}");
        if number % 100 == 0 {
            let _ = writeln!(stdout, "not JSON {noise}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs `act` in a new process, which then ends.
fn fork(act: impl FnOnce()) {
    // SAFETY: servers and their offspring have one thread.
    if unsafe { libc::fork() } == 0 {
        limit_life();
        act();
        exit();
    }
}

fn exit() -> ! {
    // SAFETY: ends this process without running the exit handlers of its parent.
    unsafe { libc::_exit(0) }
}

/// Waits until the time limit ends this process.
fn sleep_on() {
    std::thread::sleep(Duration::from_secs(u64::from(LIFE) + 10));
}

/// Sets a timer with which the kernel ends this process; a fork must set its own.
fn limit_life() {
    // SAFETY: a plain system call.
    unsafe { libc::alarm(LIFE) };
}

fn ignore_requests() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        set_signal(signal, libc::SIG_IGN);
    }
}

fn set_signal(signal: libc::c_int, action: libc::sighandler_t) {
    // SAFETY: only predefined actions are passed.
    unsafe { libc::signal(signal, action) };
}

fn send(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: a plain system call without memory.
    unsafe { libc::kill(pid, signal) };
}

fn own_pid() -> libc::pid_t {
    // SAFETY: a plain system call.
    unsafe { libc::getpid() }
}

fn parent_pid() -> libc::pid_t {
    // SAFETY: a plain system call.
    unsafe { libc::getppid() }
}
