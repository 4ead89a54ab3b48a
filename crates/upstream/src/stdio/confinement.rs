//! What separates the gateway from the processes of servers, which run on the same machine and usually as the same user.

#![allow(unsafe_code)] // Resource limits and process attributes have no safe interface in std.

use std::ffi::OsString;

use super::user::ChildUser;

/// The settings of all server processes.
#[derive(Clone, Debug, Default)]
pub struct ChildSettings {
    /// The environment that they inherit; a registration adds to it.
    pub env: Vec<(OsString, OsString)>,
    /// The user that runs them; `None` for the gateway's own.
    pub user: Option<ChildUser>,
    /// The number of descriptors that each may have open, if it is not the gateway's own.
    pub descriptors: Option<u64>,
}

/// Makes the memory and the environment of this process unreadable for other processes of the same user. Only root can
/// read them, and there are no core dumps.
pub fn hide_memory() {
    // SAFETY: a plain system call without memory.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0)
    };
}

/// Raises the number of descriptors that this process may have open to the most that the system allows. Returns the
/// number before, which is for child processes: some programs do work for each possible descriptor.
pub fn raise_descriptor_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return None;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        (libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0).then_some(limit.rlim_cur)
    }
}

/// Limits the descriptors of this process. Makes only system calls, so it may run between fork and exec.
pub fn limit_descriptors(number: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = number.min(limit.rlim_max);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
