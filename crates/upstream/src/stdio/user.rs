//! The user that runs the processes of servers, if it is not the gateway's own.

#![allow(unsafe_code)] // Users and groups have no safe interface in std.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A user of this system, with all its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildUser {
    pub uid: libc::uid_t,
    pub gid: libc::gid_t,
    pub groups: Vec<libc::gid_t>,
    pub name: OsString,
    pub home: OsString,
}

impl ChildUser {
    /// Finds a user by its name or its number. Fails if there is none, or if this process may not run others as it.
    pub fn find(user: &str) -> Result<Self, String> {
        let found = look_up(user).ok_or_else(|| "there is no such user on this machine".to_owned())?;
        match may_change_user() {
            true => Ok(found),
            false => Err("this process may not change user; start it as root, or with the capabilities \
                          CAP_SETUID, CAP_SETGID and CAP_KILL"
                .to_owned()),
        }
    }

    /// The variables that name the user.
    pub fn variables(&self) -> [(&'static str, &OsStr); 3] {
        [("HOME", &self.home), ("USER", &self.name), ("LOGNAME", &self.name)]
    }

    /// The numbers as an argument of the guard: `uid:gid:group,group`.
    pub fn to_argument(&self) -> String {
        let groups: Vec<_> = self.groups.iter().map(ToString::to_string).collect();
        format!("{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

/// The numbers of a user, as the guard gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNumbers {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl UserNumbers {
    pub fn parse(argument: &OsStr) -> Option<Self> {
        let mut parts = argument.to_str()?.split(':');
        let (uid, gid, groups) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
        let groups = groups.split(',').filter(|group| !group.is_empty()).map(|group| group.parse().ok());
        Some(Self { uid, gid, groups: groups.collect::<Option<_>>()? })
    }

    /// Makes this process one of the user, for good. Makes only system calls, so it may run between fork and exec.
    pub fn become_user(&self) -> std::io::Result<()> {
        // SAFETY: plain system calls; the list of groups outlives the call.
        let done = unsafe {
            libc::setgroups(self.groups.len() as _, self.groups.as_ptr()) == 0
                && libc::setgid(self.gid) == 0
                && libc::setuid(self.uid) == 0
        };
        if !done {
            return Err(std::io::Error::last_os_error());
        }
        // A gateway that is not root may have passed its capabilities on to the guard.
        // SAFETY: a plain system call without memory.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        };
        Ok(())
    }

    /// Gives the standard streams to the user, so that it can also open them by name (`/dev/stderr`).
    pub fn own_streams(&self) {
        for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // SAFETY: a plain system call on an open descriptor.
            unsafe { libc::fchown(stream, self.uid, self.gid) };
        }
    }
}

fn look_up(user: &str) -> Option<ChildUser> {
    let mut buffer = vec![0; 64 * 1024];
    // SAFETY: an all-zero entry is valid; it is filled by the call.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    let (text, length) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: all pointers are valid for the call, and `length` is the size of the buffer.
    let failed = match user.parse() {
        Ok(uid) => unsafe { libc::getpwuid_r(uid, &mut entry, text, length, &mut found) },
        Err(_) => {
            let name = CString::new(user).ok()?;
            unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, text, length, &mut found) }
        }
    };
    if failed != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the call has set both to strings in `buffer`, which is still alive.
    let (name, home) = unsafe { (CStr::from_ptr(entry.pw_name), CStr::from_ptr(entry.pw_dir)) };
    Some(ChildUser {
        uid: entry.pw_uid,
        gid: entry.pw_gid,
        groups: groups_of(name, entry.pw_gid),
        name: OsStr::from_bytes(name.to_bytes()).to_owned(),
        home: OsStr::from_bytes(home.to_bytes()).to_owned(),
    })
}

#[cfg(target_os = "linux")]
fn groups_of(name: &CStr, gid: libc::gid_t) -> Vec<libc::gid_t> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: `count` is the size of the list.
        let all = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        let count = usize::try_from(count).unwrap_or_default();
        if all >= 0 || count <= groups.len() {
            groups.truncate(count);
            return groups;
        }
        groups.resize(count, 0);
    }
}

#[cfg(not(target_os = "linux"))]
fn groups_of(_: &CStr, gid: libc::gid_t) -> Vec<libc::gid_t> {
    vec![gid]
}

/// Whether this process may start processes as another user, and end them.
#[cfg(target_os = "linux")]
fn may_change_user() -> bool {
    // The numbers of CAP_KILL, CAP_SETGID and CAP_SETUID.
    const NEEDED: u64 = 1 << 5 | 1 << 6 | 1 << 7;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    effective.is_some_and(|bits| bits & NEEDED == NEEDED)
}

#[cfg(not(target_os = "linux"))]
fn may_change_user() -> bool {
    // SAFETY: a plain system call without memory.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let root = look_up("root").unwrap();
        assert_eq!((root.uid, look_up("0").as_ref()), (0, Some(&root)));
        assert!(root.groups.contains(&0) && !root.home.is_empty());
        assert!(look_up("no such user").is_none() && look_up("4000000000").is_none());
        let numbers = UserNumbers::parse(OsStr::new(&root.to_argument())).unwrap();
        assert_eq!((numbers.uid, numbers.gid, numbers.groups), (root.uid, root.gid, root.groups));
    }

    #[test]
    fn wrong_numbers_are_no_user() {
        for wrong in ["", "1", "1:2", "1:2:x", "-1:2:3", "root:0:0"] {
            assert_eq!(UserNumbers::parse(OsStr::new(wrong)), None, "{wrong}");
        }
    }
}
