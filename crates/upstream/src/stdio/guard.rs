//! `toolgate __guard [--user numbers] -- command...`: the process between the gateway and a server that it starts.
//! It leads a session of its own and holds one end of a pipe whose other end only the gateway has. When that end
//! closes, for any reason (`kill -9` included), the guard ends all its descendants, even those that left its session: a
//! pause for a voluntary exit, SIGTERM, after 2 s SIGKILL until none is left. The server uses the standard streams
//! directly; nothing is copied.

#![allow(unsafe_code)] // Sessions, signals and inherited descriptors have no safe interface in std.

use std::ffi::OsString;
use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::confinement::limit_descriptors;
use super::processes::{self, Pid};
use super::user::UserNumbers;

pub const COMMAND: &str = "__guard";
/// The argument before the numbers of the user that runs the server.
pub const USER: &str = "--user";
/// The exit code when the command itself could not be started; the reason is on standard error.
pub const NOT_STARTED: i32 = 127;

/// The descriptor under which the guard finds its end of the pipe.
const LEASH_FD: i32 = 3;
/// Many servers end by themselves when their input closes; they get this long before the first signal.
const WILLING_EXIT: Duration = Duration::from_millis(300);
/// The capabilities with which root reads processes that are not dumpable, which libc does not name: CAP_SYS_PTRACE, and
/// since Linux 6.13 also CAP_PERFMON, of which CAP_SYS_ADMIN is a superset.
#[cfg(target_os = "linux")]
const READING_CAPABILITIES: [libc::c_ulong; 3] = [19, 38, 21];
const TERM_TO_KILL: Duration = Duration::from_secs(2);

/// The gateway's end of the pipe to a guard: when it is dropped, the guard ends the server and itself.
pub struct Leash {
    _held: PipeWriter,
    /// The guard's end; not needed here once the guard has it.
    given: Option<PipeReader>,
}

impl Leash {
    pub fn started(mut self) -> Self {
        self.given = None;
        self
    }
}

/// Prepares a command that starts the guard: a session of its own, one end of a new pipe, and the number of descriptors
/// that it and the server may have open.
pub fn leash(command: &mut Command, descriptors: Option<u64>) -> std::io::Result<Leash> {
    let (given, held) = std::io::pipe()?;
    let fd = given.as_raw_fd();
    // SAFETY: runs between fork and exec and makes only async-signal-safe calls on a descriptor that is open.
    unsafe {
        command.pre_exec(move || {
            // A process group belongs to one session, so no process of a server can join a group outside of its
            // session.
            libc::setsid();
            if let Some(number) = descriptors {
                limit_descriptors(number);
            }
            // dup2 onto itself would leave the close-on-exec flag in place.
            let done =
                if fd == LEASH_FD { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, LEASH_FD) };
            if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        });
    }
    Ok(Leash { _held: held, given: Some(given) })
}

/// The main function of the guard: starts the command, waits until it or the gateway ends, and ends all descendants.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut first = arguments.next();
    let mut user = None;
    if first.as_ref().is_some_and(|first| first == USER) {
        user = arguments.next().and_then(|numbers| UserNumbers::parse(&numbers));
        // Without a user that can be understood, nothing is started.
        first = arguments.next().filter(|_| user.is_some());
    }
    let command = first.filter(|first| first == "--").and_then(|_| arguments.next());
    let Some(command) = command else {
        return ExitCode::from(2);
    };
    if let Some(user) = &user {
        user.own_streams();
    }
    prepare();
    keep_priority();
    let child = match server(&command, user).args(arguments).spawn() {
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
    let server = child.id() as Pid;
    let exits = sender.clone();
    std::thread::spawn(move || reap(server, &exits));
    std::thread::spawn(move || {
        watch_leash();
        let _ = sender.send(End::Gateway);
    });
    let mut end = ends.recv();
    if let Ok(End::Gateway) = end {
        end = ends.recv_timeout(WILLING_EXIT).map_err(|_| mpsc::RecvError);
    }
    let status = match end {
        Ok(End::Server(status)) => Some(status),
        Ok(End::Gateway | End::Everybody) | Err(_) => None,
    };
    end_everything(&ends);
    status.map_or(ExitCode::FAILURE, end_like)
}

/// An event that a guard waits for.
enum End {
    Gateway,
    Server(ExitStatus),
    /// The last descendant of the guard ended.
    Everybody,
}

/// The server's command. Must be started by the main thread: the parent-death signal is sent when the starting thread
/// ends.
fn server(command: &OsString, user: Option<UserNumbers>) -> Command {
    let mut command = Command::new(command);
    // SAFETY: runs between fork and exec and makes only async-signal-safe calls.
    unsafe {
        // First: a change of the user removes the parent-death signal.
        command.pre_exec(move || {
            // A server that runs as root must not read the memory and the environment of the gateway either.
            #[cfg(target_os = "linux")]
            for capability in READING_CAPABILITIES {
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            user.as_ref().map_or(Ok(()), UserNumbers::become_user)
        });
    }
    // SAFETY: runs between fork and exec and makes only async-signal-safe calls.
    #[cfg(target_os = "linux")]
    unsafe {
        let guard = std::process::id() as Pid;
        // In a group of its own, which can be killed as a whole.
        command.process_group(0).pre_exec(move || {
            // Ends a server that has killed its guard, if the gateway is killed before it can clean up. The server's
            // children never get this signal.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            // Set-user-id programs such as `sudo` get no privileges.
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if libc::getppid() == guard { Ok(()) } else { Err(std::io::ErrorKind::NotConnected.into()) }
        });
    }
    command
}

/// Returns when the gateway has closed its end: nothing is ever written to the pipe.
fn watch_leash() {
    // SAFETY: the gateway opened this descriptor for us, and no other code in this process uses it.
    let mut leash = unsafe { PipeReader::from_raw_fd(LEASH_FD) };
    let _ = leash.read(&mut [0]);
}

/// Reaps every descendant that ends, orphans too, and reports the end of the server and of the last descendant.
fn reap(server: Pid, ends: &mpsc::Sender<End>) {
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
        if pid == server {
            let _ = ends.send(End::Server(ExitStatus::from_raw(status)));
        }
        if pid < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            // Without children there are no further descendants: orphans would have become children.
            let _ = ends.send(End::Everybody);
            return;
        }
    }
}

fn prepare() {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: plain system calls; the handler does nothing. A handler, unlike SIG_IGN, is not inherited by the server,
    // which must react to the signals that the guard ignores.
    unsafe {
        libc::fcntl(LEASH_FD, libc::F_SETFD, libc::FD_CLOEXEC);
        let handler = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::signal(signal, handler);
        }
        #[cfg(target_os = "linux")]
        {
            // A descendant that loses its parent becomes our child, so leaving the session hides no process.
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
            // A guard that its server has stopped must still act when the gateway ends. The signal is also sent when
            // the thread that started us ends, and does nothing then.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGCONT, 0, 0, 0);
        }
    }
}

/// Gives our session the scheduling priority of the gateway's. Linux schedules sessions as groups, and a new one starts
/// with the default priority: behind a gateway with a higher one, its servers would run only while it sleeps.
fn keep_priority() {
    let gateway = std::os::unix::process::parent_id();
    let group = std::fs::read_to_string(format!("/proc/{gateway}/autogroup")).unwrap_or_default();
    if let Some((_, nice)) = group.trim_end().rsplit_once("nice ")
        && nice != "0"
    {
        let _ = std::fs::write("/proc/self/autogroup", nice);
    }
}

/// Closes our copies of the server's pipes: they must close when the server closes them, not when we do.
fn let_go_of_streams() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        // SAFETY: plain system calls on open descriptors.
        unsafe {
            libc::dup2(null.as_raw_fd(), libc::STDIN_FILENO);
            libc::dup2(null.as_raw_fd(), libc::STDOUT_FILENO);
        }
    }
}

/// Ends all remaining descendants: SIGTERM, and after 2 s SIGKILL, until none is left.
fn end_everything(ends: &mpsc::Receiver<End>) {
    let us = std::process::id() as Pid;
    // A stopped process acts on SIGTERM when it is continued.
    processes::signal_below(us, libc::SIGTERM);
    processes::signal_below(us, libc::SIGCONT);
    let begun = Instant::now();
    let mut pause = TERM_TO_KILL;
    while !is_everybody_gone(ends, pause) {
        processes::kill_below(us);
        pause = processes::pause_after(begun.elapsed().saturating_sub(TERM_TO_KILL));
    }
}

fn is_everybody_gone(ends: &mpsc::Receiver<End>, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        match ends.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(End::Gateway | End::Server(_)) => {}
            Ok(End::Everybody) => return true,
            Err(_) => return false,
        }
    }
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
