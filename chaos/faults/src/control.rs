//! The control file that the fault layer and the harness both map: which fault is on, and what was injected so far.
//! The harness includes this file by its path, so that both sides agree on the layout.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// The environment variable with the path of the control file.
pub const CONTROL_VARIABLE: &str = "TOOLGATE_FAULTS_CONTROL";

/// The environment variable with the file name by which database files are recognized.
pub const DATABASE_VARIABLE: &str = "TOOLGATE_FAULTS_DATABASE";

/// The environment variable with the seconds by which the clock of the program is set back.
pub const CLOCK_VARIABLE: &str = "TOOLGATE_FAULTS_CLOCK";

/// The environment variables with a host name, and with the path of the file that contains its address.
pub const NAME_VARIABLE: &str = "TOOLGATE_FAULTS_NAME";
pub const ADDRESS_VARIABLE: &str = "TOOLGATE_FAULTS_ADDRESS";

/// No fault.
pub const OFF: u32 = 0;
/// Writes that would make a file longer fail with ENOSPC.
pub const FULL_DISK: u32 = 1;
/// The write at which the countdown reaches zero fails with EIO.
pub const WRITE_ERROR: u32 = 2;
/// Every write fails with EIO.
pub const WRITE_ERRORS: u32 = 3;
/// The sync at which the countdown reaches zero fails with EIO.
pub const SYNC_ERROR: u32 = 4;
/// Every sync fails with EIO.
pub const SYNC_ERRORS: u32 = 5;
/// One write in four stores only half of its bytes and returns that length.
pub const SHORT_WRITES: u32 = 6;
/// Every sync takes `delay_ms` longer.
pub const SLOW_SYNCS: u32 = 7;

/// From the sync at which the countdown reaches zero on, every write and sync fails with EIO.
pub const DEAD_DISK: u32 = 8;

/// The layout of the control file. A file of zeros is a valid one, with every fault off.
#[repr(C)]
pub struct Control {
    pub mode: AtomicU32,
    pub delay_ms: AtomicU32,
    /// Counts down to the call that fails.
    pub countdown: AtomicI64,
    /// The value at which the countdown starts again; 0 if it does not.
    pub period: AtomicI64,
    /// Calls on database files that failed, were cut short or were delayed.
    pub injected: AtomicU64,
}
