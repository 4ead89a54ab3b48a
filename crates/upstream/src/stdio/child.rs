//! One running server process: lines in, lines out, and its end.

use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::guard::{self, Leash};
use super::guards::Started;
use super::lines::{Line, LineReader};
use super::slot::{ProcessEnd, ProcessSlot};
use super::stderr::ProcessStderr;
use super::{Guards, processes};
use crate::Options;
use crate::error::CallError;
use crate::journal::LAST_LINES;
use crate::link::Link;
use budget::Budgets;
use model::{Process, Redactor};

/// The most messages queued for a server that does not read; beyond that callers wait.
const INBOX: usize = 1024;
/// How long output that is still in the pipe is read after a guard was killed.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// How long to wait for a process to exit after its output ended, before its end is reported without a status. Launchers
/// such as npx take a moment to follow the server that they started, and its other processes have 2 s to end.
const STATUS_GRACE: Duration = Duration::from_secs(3);
/// A guard kills after 2.3 s. Past this limit it is considered stopped or starved, and the gateway does its work.
const END_LIMIT: Duration = Duration::from_millis(3500);
const END_PAUSE: Duration = Duration::from_millis(200);
const LAST_WORDS: usize = 10;
const LAST_WORDS_GRACE: Duration = Duration::from_millis(200);

pub struct Child {
    inbox: mpsc::Sender<Bytes>,
    command: String,
    pub end: ProcessEnd,
    flushed: Arc<Notify>,
}

/// The parts that the link's task uses.
pub struct Running {
    /// The guard.
    process: tokio::process::Child,
    guard: Started,
    guards: Guards,
    leash: Leash,
    inbox: mpsc::Receiver<Bytes>,
    flushed: Arc<Notify>,
    budgets: Budgets,
    stderr: ProcessStderr,
    /// Ends when the last writer of standard error is gone.
    collecting: JoinHandle<()>,
    command: String,
    /// Dropped when the process and all its descendants are gone.
    slot: ProcessSlot,
}

impl Child {
    /// Starts the process through its guard. The exit code shows whether the command itself could be started.
    pub fn start(
        process: &Process,
        options: &Options,
        redactor: Redactor,
        stderr: ProcessStderr,
        slot: ProcessSlot,
    ) -> Result<(Self, Running), String> {
        let mut command = Command::new(&options.guard);
        let settings = &options.children;
        command.arg(guard::COMMAND);
        if let Some(user) = &settings.user {
            command.arg(guard::USER).arg(user.to_argument());
        }
        command.arg("--").arg(&process.command).args(&process.args);
        command.env_clear().envs(settings.env.iter().map(|(name, value)| (name, value)));
        command.envs(settings.user.iter().flat_map(|user| user.variables()));
        command.envs(process.env.iter().map(|(name, value)| (name, value.expose())));
        if let Some(cwd) = &process.cwd {
            command.current_dir(cwd);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let leash = guard::leash(command.as_std_mut(), settings.descriptors)
            .map_err(|error| format!("cannot create a pipe: {error}"))?;
        let (mut child, guard) = options.guards.start(&mut command).map_err(|error| match &process.cwd {
            Some(cwd) => format!("cannot start {} in the directory {cwd}: {error}", process.command),
            None => format!("cannot start {}: {error}", process.command),
        })?;
        stderr.note(&redactor.redact(&format!("starts: {}", process.command)));
        let pipe = child.stderr.take().expect("stderr is piped");
        let collecting = options.tasks.spawn(stderr.clone().collect(pipe, redactor));
        let (sender, inbox) = mpsc::channel(INBOX);
        let end = slot.end().clone();
        let flushed = Arc::new(Notify::new());
        let running = Running {
            process: child,
            guard,
            guards: options.guards.clone(),
            leash: leash.started(),
            inbox,
            flushed: flushed.clone(),
            budgets: options.budgets.clone(),
            stderr,
            collecting,
            command: process.command.clone(),
            slot,
        };
        Ok((Self { inbox: sender, command: process.command.clone(), end, flushed }, running))
    }

    pub async fn send(&self, body: Bytes) -> Result<(), CallError> {
        let gone = |_| CallError::NotSent(format!("{} is not running", self.command));
        self.inbox.send(body).await.map_err(gone)
    }

    pub fn post(&self, message: Bytes) {
        if self.inbox.try_send(message).is_err() {
            tracing::debug!(command = self.command, "a notification did not reach the server");
        }
    }
}

impl Child {
    /// Waits until everything that was sent is written to the pipe.
    pub async fn flush(&self) {
        if self.inbox.send(Bytes::new()).await.is_ok() {
            self.flushed.notified().await;
        }
    }
}

impl Running {
    /// Carries messages both ways until the process or the link ends, then ends all its processes.
    pub async fn run(mut self, link: Weak<Link>, stop: CancellationToken) {
        let stdin = self.process.stdin.take().expect("stdin is piped");
        let stdout = self.process.stdout.take().expect("stdout is piped");
        let Self { process, guard, guards, inbox, flushed, budgets, .. } = &mut self;
        // A guard that ended by itself left no processes; output that is still in the pipe is read. A killed guard may
        // leave descendants that keep the pipes open.
        let guard_end = async {
            let _ = process.wait().await;
            guards.clean_up_after(guard).await;
            tokio::time::sleep(EXIT_GRACE).await;
        };
        let end = tokio::select! {
            () = stop.cancelled() => None,
            () = write_lines(stdin, inbox, flushed) => Some("closed its standard input".to_owned()),
            end = read_lines(stdout, budgets, &link) => Some(end),
            () = guard_end => Some("lost its guard process".to_owned()),
        };
        self.slot.end().begins();
        let (stderr, is_stopped) = (self.stderr.clone(), end.is_none());
        if let Some(end) = end {
            let reason = self.describe(&end).await;
            if let Some(link) = link.upgrade() {
                // Messages still in the queue were never sent, so sending them again is safe.
                self.inbox.close();
                while let Ok(unsent) = self.inbox.try_recv() {
                    link.calls.return_unsent(&unsent, &reason);
                }
                link.calls.lose(&reason);
            }
        }
        self.inbox.close();
        self.end().await;
        if is_stopped {
            stderr.note("was stopped");
        }
    }

    /// Describes for people how the process ended.
    async fn describe(&mut self, end: &str) -> String {
        let status = tokio::time::timeout(STATUS_GRACE, self.process.wait()).await;
        let happened = match status {
            Ok(Ok(status)) if status.code() == Some(guard::NOT_STARTED) => "could not be started".to_owned(),
            Ok(Ok(status)) => format!("ended ({status})"),
            Ok(Err(_)) | Err(_) => end.to_owned(),
        };
        // Its last output may not have been read yet.
        let _ = tokio::time::timeout(LAST_WORDS_GRACE, &mut self.collecting).await;
        self.stderr.note(&happened);
        let words = self.stderr.last_words(LAST_WORDS);
        match words.is_empty() {
            true => format!("{} {happened}", self.command),
            false => format!("{} {happened}{LAST_LINES}{words}", self.command),
        }
    }

    /// Releases the guard, which then ends its descendants, and waits for that without a timeout: the code that awaits
    /// this task has one.
    async fn end(mut self) {
        drop(self.leash);
        // A stopped guard would not notice, so it is continued.
        if self.process.id().is_some() {
            processes::send(self.guard.pid, libc::SIGCONT);
        }
        let mut limit = END_LIMIT;
        while tokio::time::timeout(limit, self.process.wait()).await.is_err() {
            limit = END_PAUSE;
            let guard = self.guard.pid;
            let _ = tokio::task::spawn_blocking(move || end_in_place_of(guard)).await;
        }
        self.guards.clean_up_after(&self.guard).await;
        // The other end of standard error is closed now, unless it was passed to an unrelated process. `describe` may
        // have awaited this task already, and a task must be awaited only once.
        if !self.collecting.is_finished()
            && tokio::time::timeout(LAST_WORDS_GRACE, &mut self.collecting).await.is_err()
        {
            self.collecting.abort();
        }
    }
}

/// Kills the descendants of a guard that does not do so itself, and the guard only when none is left: processes that a
/// killed guard leaves behind are harder to find.
fn end_in_place_of(guard: processes::Pid) {
    processes::kill_below(guard);
    processes::send(guard, libc::SIGCONT);
    if !processes::has_children(guard) {
        processes::send(guard, libc::SIGKILL);
    }
}

/// Writes messages as lines. An empty one is not written: it asks to be told when all before it are.
async fn write_lines(mut stdin: ChildStdin, inbox: &mut mpsc::Receiver<Bytes>, flushed: &Notify) {
    let mut line = Vec::new();
    while let Some(message) = inbox.recv().await {
        line.clear();
        let mut is_flush = message.is_empty();
        append_line(&mut line, &message);
        while line.len() < 64 * 1024
            && let Ok(more) = inbox.try_recv()
        {
            is_flush |= more.is_empty();
            append_line(&mut line, &more);
        }
        if stdin.write_all(&line).await.is_err() {
            return;
        }
        if is_flush {
            flushed.notify_one();
        }
    }
    // The link is being dropped; `stop` ends the process.
    std::future::pending::<()>().await;
}

/// Appends a message as one line: a newline between JSON tokens is white space, and inside strings it is escaped.
pub fn append_line(out: &mut Vec<u8>, message: &[u8]) {
    if message.is_empty() {
        return;
    }
    out.extend(message.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    out.push(b'\n');
}

async fn read_lines(stdout: ChildStdout, budgets: &Budgets, link: &Weak<Link>) -> String {
    let mut reader = LineReader::new(stdout, budgets);
    loop {
        match (reader.next().await, link.upgrade()) {
            (Ok(None), _) => return "closed its standard output".to_owned(),
            (Err(error), _) => return format!("cannot be read: {error}"),
            (Ok(Some(_)), None) => return "is no longer needed".to_owned(),
            (Ok(Some(Line::Whole(line))), Some(_)) if line.is_empty() => {}
            (Ok(Some(Line::Whole(line))), Some(link)) => link.take_in(line, None),
            (Ok(Some(Line::TooLong { ends, exceeded, is_over })), Some(link)) => {
                link.calls.drop_large(&ends, is_over, exceeded, budgets);
            }
        }
    }
}
