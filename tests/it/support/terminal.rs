//! The command line on a pseudo-terminal, as a person uses it: what it asks is read from the terminal, and lines are typed.
//! Its standard output stays a pipe, so that results and questions can be told apart.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Child;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::cli::{Cli, finish};
use super::process::Ended;

const LIMIT: Duration = Duration::from_secs(60);

pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: UnboundedReceiver<Vec<u8>>,
    shown: Vec<u8>,
    /// How much of it was already waited for.
    seen: usize,
}

impl Terminal {
    /// Starts a command on a terminal of its own.
    pub fn start(cli: &Cli, arguments: &[&str]) -> Self {
        let (master, slave) = open();
        let mut command = cli.command(arguments);
        command.env("TERM", "xterm").stdin(Stdio::from(slave.try_clone().unwrap())).stderr(slave);
        // SAFETY: makes two system calls that are allowed between fork and exec. They make the terminal the controlling
        // one, so that Ctrl-C becomes a signal.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            })
        };
        let child = command.spawn().unwrap();
        // The command has descriptors of the terminal; without ours, its end is the end of the terminal.
        drop(command);
        let (send, screen) = unbounded_channel();
        let mut reader = master.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keyboard: master, screen, shown: Vec::new(), seen: 0 }
    }

    /// Waits until a text is shown, after everything that was already waited for.
    #[track_caller]
    pub fn sees(&mut self, text: &str) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            loop {
                let rest = &self.shown[self.seen..];
                if let Some(at) = rest.windows(text.len()).position(|window| window == text.as_bytes()) {
                    self.seen += at + text.len();
                    return;
                }
                let more = tokio::time::timeout(LIMIT, self.screen.recv()).await;
                let Ok(Some(more)) = more else {
                    panic!("{caller}: {text:?} is not shown after {:?}", String::from_utf8_lossy(rest));
                };
                self.shown.extend(more);
            }
        }
    }

    /// The standard output of the command, which is no terminal.
    pub fn stdout(&mut self) -> tokio::process::ChildStdout {
        self.child.stdout.take().expect("it is piped and taken once")
    }

    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the end. Standard error is everything that the terminal showed.
    pub async fn end(mut self) -> Ended {
        let ended = finish(self.child).await;
        // The reader ends with the last descriptor of the terminal, which the command had.
        while let Ok(Some(more)) = tokio::time::timeout(LIMIT, self.screen.recv()).await {
            self.shown.extend(more);
        }
        Ended { stderr: String::from_utf8_lossy(&self.shown).into_owned(), ..ended }
    }
}

/// Opens a pseudo-terminal: the side of the person, and the side of the program.
fn open() -> (File, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: writes two descriptors, which nobody else owns; the other parameters may be null.
    #[allow(unsafe_code)]
    let (master, slave) = unsafe {
        assert_eq!(libc::openpty(&mut master, &mut slave, none, none.cast(), none.cast()), 0);
        (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    };
    for descriptor in [master.as_raw_fd(), slave.as_raw_fd()] {
        // SAFETY: sets a flag of a descriptor that is open. No other child process inherits the terminal.
        #[allow(unsafe_code)]
        let set = unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        assert_eq!(set, 0);
    }
    (master, slave)
}
