//! `toolgate __guard -- command...`: the process between the gateway and a server it starts.
//! It leads a process group of its own and holds one end of a pipe whose other end only the gateway has. When
//! that closes, for whatever reason (`kill -9` included), everything below it is ended, even what has left the
//! group: a pause for a willing exit, TERM, after 2 s KILL. Standard streams are the server's; nothing is copied.
//!
//! A parent-death signal would not do: it fires when the forking thread ends, and grandchildren never get it.

#![allow(unsafe_code)] // Process groups, signals and inherited descriptors have no safe interface in std.

use std::ffi::OsString;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

pub const COMMAND: &str = "__guard";
/// The exit code that says the command itself could not be started; the reason is on standard error.
pub const NOT_STARTED: i32 = 127;

/// The descriptor under which the guard finds its end of the pipe.
const LEASH_FD: i32 = 3;
/// Many servers end by themselves when their input closes; they get this long before the first signal.
const WILLING_EXIT: Duration = Duration::from_millis(300);
const TERM_TO_KILL: Duration = Duration::from_secs(2);

/// The gateway's hold on a guard: as long as this lives, so does the group.
pub struct Leash {
    _held: PipeWriter,
    /// The guard's end; of use to nobody here once the guard has it.
    given: Option<PipeReader>,
}

impl Leash {
    pub fn started(mut self) -> Self {
        self.given = None;
        self
    }
}

/// Prepares a command that starts the guard: its own group, and one end of a new pipe.
pub fn leash(command: &mut Command) -> std::io::Result<Leash> {
    let (given, held) = std::io::pipe()?;
    let fd = given.as_raw_fd();
    command.process_group(0);
    // SAFETY: runs between fork and exec and makes only async-signal-safe calls on a descriptor that is open.
    unsafe {
        command.pre_exec(move || {
            // dup2 onto itself would leave the close-on-exec flag in place.
            let done =
                if fd == LEASH_FD { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, LEASH_FD) };
            if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    Ok(Leash { _held: held, given: Some(given) })
}

/// Ends what is left of a group whose guard is gone. Nothing happens when there is none.
pub fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // SAFETY: a plain system call without memory.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// The guard's whole life: starts the command, waits for its end or for that of the gateway.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let command = arguments.next().filter(|first| first == "--").and_then(|_| arguments.next());
    let Some(command) = command else {
        return ExitCode::from(2);
    };
    prepare();
    let child = match Command::new(&command).args(arguments).spawn() {
        Ok(child) => child,
        Err(error) => {
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => "command not found".to_owned(),
                _ => error.to_string(),
            };
            eprintln!("{}: {reason}", command.to_string_lossy());
            return ExitCode::from(NOT_STARTED as u8);
        }
    };
    let_go_of_streams();
    let (sender, ends) = mpsc::channel();
    let server = child.id() as libc::pid_t;
    let exits = sender.clone();
    std::thread::spawn(move || reap(server, &exits));
    std::thread::spawn(move || {
        watch_leash();
        let _ = sender.send(End::Gateway);
    });
    let status = match ends.recv() {
        Ok(End::Server(status)) => Some(status),
        Ok(End::Gateway) => match ends.recv_timeout(WILLING_EXIT) {
            Ok(End::Server(status)) => Some(status),
            Ok(End::Gateway) | Err(_) => None,
        },
        Err(_) => None,
    };
    end_everything();
    status.map_or(ExitCode::FAILURE, end_like)
}

/// What a guard waits for.
enum End {
    Gateway,
    Server(ExitStatus),
}

/// Returns when the gateway let go of its end: nothing is ever written to the pipe.
fn watch_leash() {
    // SAFETY: the gateway opened this descriptor for us, and nobody else in this process uses it.
    let mut leash = unsafe { PipeReader::from_raw_fd(LEASH_FD) };
    let _ = leash.read(&mut [0]);
}

/// Collects every process that ends below us, orphans too, and reports the server's end.
fn reap(server: libc::pid_t, ends: &mpsc::Sender<End>) {
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
        if pid == server {
            let _ = ends.send(End::Server(ExitStatus::from_raw(status)));
        }
        if pid < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            // Nobody is left; one that is adopted later is not ours to wait for.
            return;
        }
    }
}

fn prepare() {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: plain system calls; the handler does nothing. A handler, unlike SIG_IGN, is not inherited by the
    // server, which must feel the signals that we outlive.
    unsafe {
        libc::fcntl(LEASH_FD, libc::F_SETFD, libc::FD_CLOEXEC);
        let handler = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, handler);
        }
        // Whoever loses its parent below us becomes our child, so leaving the group hides nobody.
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
}

/// The server's pipes must close when the server closes them, not when we do.
fn let_go_of_streams() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // SAFETY: plain system calls on open descriptors.
        unsafe {
            libc::dup2(null.as_raw_fd(), libc::STDIN_FILENO);
            libc::dup2(null.as_raw_fd(), libc::STDOUT_FILENO);
        }
    }
}

/// Ends whoever is left below us: TERM, and after 2 s KILL.
fn end_everything() {
    let deadline = Instant::now() + TERM_TO_KILL;
    signal_all(&descendants(), libc::SIGTERM);
    while Instant::now() < deadline && !descendants().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    // One that is killed may leave children behind, which then are ours: until none is left.
    for _ in 0..100 {
        let left = descendants();
        if left.is_empty() {
            return;
        }
        signal_all(&left, libc::SIGKILL);
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal_all(processes: &[libc::pid_t], signal: libc::c_int) {
    for &process in processes {
        // SAFETY: a plain system call without memory.
        unsafe { libc::kill(process, signal) };
    }
}

/// All living processes below this one.
#[cfg(target_os = "linux")]
fn descendants() -> Vec<libc::pid_t> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<libc::pid_t>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // `pid (name) state parent ...`; the name may contain anything, so count from its last bracket.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, parent) =
            (fields.next(), fields.next().and_then(|parent| parent.parse::<libc::pid_t>().ok()));
        if let Some(parent) = parent
            && state != Some("Z")
        {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![std::process::id() as libc::pid_t];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

/// Elsewhere the group is all we can name: zero stands for our own, and signals to it pass us by.
#[cfg(not(target_os = "linux"))]
fn descendants() -> Vec<libc::pid_t> {
    vec![0]
}

/// Ends this process the way the server ended, so that the gateway sees its status.
fn end_like(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // SAFETY: plain system calls; the default action of the signal ends us.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
