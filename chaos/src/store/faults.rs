//! The faults of the database: the control file of the fault layer, and SQLite's write lock held by another process.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::gateway::{Settings, eventually};
use crate::random::Random;
use toolgate_chaos::layer::control::{self, Control};
use toolgate_chaos::layer::library;

/// The file of the database; its log and index have longer names that begin with this one.
pub const DATABASE: &str = "toolgate.db";

/// The byte of the `-shm` file that SQLite's only writer locks.
const WRITE_LOCK_BYTE: i64 = 120;

/// How long SQLite waits for that lock.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time until the lock is free for a moment, however busy the gateway is.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    FullDisk,
    WriteError(Nth),
    WriteErrors,
    SyncError(Nth),
    SyncErrors,
    DeadDisk { syncs: i64 },
    ShortWrites,
    SlowSyncs { milliseconds: u32 },
    Locked { milliseconds: u64 },
}

/// Which calls fail: the nth one, and optionally every nth one after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nth {
    nth: i64,
    repeats: bool,
}

impl Nth {
    fn below(limit: u64, random: &mut Random) -> Self {
        Self { nth: 2 + random.below(limit).cast_signed(), repeats: random.chance(60) }
    }

    fn period(self) -> i64 {
        if self.repeats { self.nth } else { 0 }
    }
}

impl Fault {
    /// One of each kind in random order. The longest one, which holds the lock beyond SQLite's timeout, only on request.
    pub fn bag(random: &mut Random, with_longest: bool) -> Vec<Self> {
        let mut bag = vec![
            Self::None,
            Self::FullDisk,
            Self::WriteError(Nth::below(30, random)),
            Self::WriteErrors,
            Self::SyncError(Nth::below(6, random)),
            Self::SyncErrors,
            Self::DeadDisk { syncs: 1 + random.below(20).cast_signed() },
            Self::ShortWrites,
            Self::SlowSyncs { milliseconds: 20 + u32::try_from(random.below(180)).unwrap_or(0) },
            Self::Locked { milliseconds: 200 + random.below(1500) },
        ];
        if with_longest {
            let beyond = u64::try_from(BUSY_TIMEOUT.as_millis()).unwrap_or_default() + 1000;
            bag.push(Self::Locked { milliseconds: beyond + random.below(1500) });
        }
        for last in (1..bag.len()).rev() {
            bag.swap(last, usize::try_from(random.below(last as u64 + 1)).unwrap_or(0));
        }
        bag
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::FullDisk => "full disk",
            Self::WriteError(Nth { repeats: false, .. }) => "I/O error on the nth write",
            Self::WriteError(Nth { repeats: true, .. }) => "I/O error on every nth write",
            Self::WriteErrors => "I/O error on every write",
            Self::SyncError(Nth { repeats: false, .. }) => "I/O error on the nth sync",
            Self::SyncError(Nth { repeats: true, .. }) => "I/O error on every nth sync",
            Self::SyncErrors => "I/O error on every sync",
            Self::DeadDisk { .. } => "dying disk",
            Self::ShortWrites => "short writes",
            Self::SlowSyncs { .. } => "slow syncs",
            Self::Locked { milliseconds } if is_beyond_patience(milliseconds) => "locked beyond the timeout",
            Self::Locked { .. } => "locked for a while",
        }
    }

    /// Whether no write at all can succeed while the fault is on.
    pub fn stops_all_writes(self) -> bool {
        match self {
            Self::WriteErrors | Self::SyncErrors => true,
            Self::Locked { milliseconds } => is_beyond_patience(milliseconds),
            Self::None
            | Self::FullDisk
            | Self::WriteError(_)
            | Self::SyncError(_)
            | Self::DeadDisk { .. }
            | Self::ShortWrites
            | Self::SlowSyncs { .. } => false,
        }
    }

    /// Whether SQLite handles the fault by itself, so that no change may be refused because of it.
    pub fn is_harmless(self) -> bool {
        match self {
            Self::None | Self::ShortWrites | Self::SlowSyncs { .. } => true,
            Self::Locked { milliseconds } => !is_beyond_patience(milliseconds),
            Self::FullDisk
            | Self::WriteError(_)
            | Self::WriteErrors
            | Self::SyncError(_)
            | Self::SyncErrors
            | Self::DeadDisk { .. } => false,
        }
    }
}

fn is_beyond_patience(milliseconds: u64) -> bool {
    u128::from(milliseconds) >= BUSY_TIMEOUT.as_millis()
}

/// The fault layer of one gateway.
pub struct Faults {
    control: &'static Control,
    folder: PathBuf,
    library: PathBuf,
}

impl Faults {
    /// Makes the control file in the folder of a gateway, with every fault off.
    pub fn new(folder: &Path) -> Result<Self> {
        let library = library()?;
        let path = folder.join("faults.control");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let size = size_of::<Control>();
        file.set_len(size as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of a file of exactly this size.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), size, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map the control file");
        }
        // SAFETY: the mapping is never removed, has the size of the type, and all zeros is a value of it.
        let control = unsafe { &*mapped.cast::<Control>() };
        Ok(Self { control, folder: folder.to_owned(), library })
    }

    /// Adds the environment variables that load the layer into the program.
    pub fn under(&self, settings: Settings) -> Settings {
        settings
            .variable("LD_PRELOAD", self.library.to_string_lossy())
            .variable(control::CONTROL_VARIABLE, self.folder.join("faults.control").to_string_lossy())
            .variable(control::DATABASE_VARIABLE, DATABASE)
    }

    /// Adds the environment variables that set the clock of the program before 1970.
    pub fn before_1970(&self, settings: Settings) -> Settings {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let late = now + 100_000_000;
        let settings = settings.variable("LD_PRELOAD", self.library.to_string_lossy());
        settings.variable(control::CLOCK_VARIABLE, late.to_string())
    }

    /// Switches one fault on and all others off. The lock is not part of the layer: see [`WriteLock`].
    pub fn set(&self, fault: Fault) {
        let (mode, countdown, period, delay) = match fault {
            Fault::None | Fault::Locked { .. } => (control::OFF, 0, 0, 0),
            Fault::FullDisk => (control::FULL_DISK, 0, 0, 0),
            Fault::WriteError(which) => (control::WRITE_ERROR, which.nth, which.period(), 0),
            Fault::WriteErrors => (control::WRITE_ERRORS, 0, 0, 0),
            Fault::SyncError(which) => (control::SYNC_ERROR, which.nth, which.period(), 0),
            Fault::SyncErrors => (control::SYNC_ERRORS, 0, 0, 0),
            Fault::DeadDisk { syncs } => (control::DEAD_DISK, syncs, 0, 0),
            Fault::ShortWrites => (control::SHORT_WRITES, i64::MAX, 0, 0),
            Fault::SlowSyncs { milliseconds } => (control::SLOW_SYNCS, 0, 0, milliseconds),
        };
        self.control.mode.store(control::OFF, Ordering::SeqCst);
        self.control.countdown.store(countdown, Ordering::SeqCst);
        self.control.period.store(period, Ordering::SeqCst);
        self.control.delay_ms.store(delay, Ordering::SeqCst);
        self.control.mode.store(mode, Ordering::SeqCst);
    }

    /// Number of calls that failed, were cut short or were delayed.
    pub fn injected(&self) -> u64 {
        self.control.injected.load(Ordering::SeqCst)
    }

    /// Takes SQLite's write lock like another process would. Returns `Ok(None)` if the gateway has no index file to lock.
    pub async fn lock(&self) -> Result<Option<WriteLock>> {
        let path = self.folder.join(format!("{DATABASE}-shm"));
        let Ok(file) = OpenOptions::new().read(true).write(true).open(path) else { return Ok(None) };
        if !eventually(LONGEST_TRANSACTION, async || set_lock(&file, libc::F_WRLCK)).await {
            bail!("the write lock of the database is never free");
        }
        Ok(Some(WriteLock(file)))
    }
}

/// SQLite's write lock, held until this is dropped.
pub struct WriteLock(File);

impl Drop for WriteLock {
    fn drop(&mut self) {
        set_lock(&self.0, libc::F_UNLCK);
    }
}

fn set_lock(file: &File, kind: libc::c_int) -> bool {
    // SAFETY: all zeros is a valid `flock`; the call only reads it.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = WRITE_LOCK_BYTE;
        lock.l_len = 1;
        libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &lock) == 0
    }
}
