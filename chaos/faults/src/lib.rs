//! A fault layer between a program and its database files. Loaded with LD_PRELOAD, it replaces the libc functions that
//! change files and makes some calls fail, as the mapped `Control` says. Nothing here allocates or locks, and calls on
//! other files (sockets, logs, keys) are never changed. It can also give one host name an address that changes.
#![allow(unsafe_code)]

mod control;
mod names;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicUsize, Ordering};

use control::Control;

/// Longer than any path that a test uses.
const LONGEST_PATH: usize = 4096;

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(ptr::null_mut());
static DATABASE: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
/// The seconds by which the clock is set back.
static LATE: AtomicI64 = AtomicI64::new(0);

/// The effect of a call on a file.
#[derive(Clone, Copy)]
enum Act {
    /// A write at a position, or at that of the descriptor.
    Write {
        from: Option<i64>,
        count: usize,
    },
    Resize {
        end: i64,
    },
    Sync,
}

/// What to do with a call.
enum Verdict {
    Pass,
    Fail(c_int),
    /// Store half of the bytes only.
    Halve,
}

/// Runs when the library is loaded, before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

extern "C" fn load() {
    // SAFETY: the names are terminated, `getenv` is called before any other thread exists, and the mapping has the
    // size of the type that it is read as, every bit pattern of which is valid.
    unsafe {
        let late = variable(control::CLOCK_VARIABLE);
        if !late.is_null() {
            LATE.store(libc::atoll(late), Ordering::SeqCst);
        }
        let path = variable(control::CONTROL_VARIABLE);
        let database = variable(control::DATABASE_VARIABLE);
        if path.is_null() || database.is_null() {
            return;
        }
        let file = libc::open(path, libc::O_RDWR | libc::O_CLOEXEC);
        if file < 0 {
            return;
        }
        let size = mem::size_of::<Control>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = libc::mmap(ptr::null_mut(), size, access, libc::MAP_SHARED, file, 0);
        libc::close(file);
        if mapped == libc::MAP_FAILED {
            return;
        }
        let mapped = mapped.cast::<Control>();
        DATABASE.store(database, Ordering::SeqCst);
        CONTROL.store(mapped, Ordering::SeqCst);
    }
}

/// The value of a variable, or null.
///
/// # Safety
/// No other thread may change the environment meanwhile.
unsafe fn variable(name: &str) -> *mut c_char {
    let mut terminated = [0_u8; 64];
    terminated[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the buffer ends with zeros, since the names are shorter than it.
    unsafe { libc::getenv(terminated.as_ptr().cast()) }
}

fn judge(file: c_int, act: Act) -> Verdict {
    // SAFETY: null, or a mapping that stays until the process ends.
    let Some(control) = (unsafe { CONTROL.load(Ordering::SeqCst).as_ref() }) else { return Verdict::Pass };
    let mode = control.mode.load(Ordering::SeqCst);
    // Descriptors are checked only while a fault is on, and each time again, because their numbers are reused.
    if mode == control::OFF || !concerns(mode, act) || !is_of_database(file) {
        return Verdict::Pass;
    }
    let is_due = || {
        let is_due = control.countdown.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_due {
            control.countdown.store(control.period.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        is_due
    };
    let verdict = match mode {
        control::FULL_DISK => match act {
            Act::Write { from, count } if end(file, from, count) > length(file) => {
                Verdict::Fail(libc::ENOSPC)
            }
            Act::Resize { end } if end > length(file) => Verdict::Fail(libc::ENOSPC),
            Act::Write { .. } | Act::Resize { .. } | Act::Sync => Verdict::Pass,
        },
        control::WRITE_ERRORS | control::SYNC_ERRORS => Verdict::Fail(libc::EIO),
        control::WRITE_ERROR | control::SYNC_ERROR if is_due() => Verdict::Fail(libc::EIO),
        control::DEAD_DISK => match act {
            Act::Sync if control.countdown.fetch_sub(1, Ordering::SeqCst) <= 1 => Verdict::Fail(libc::EIO),
            Act::Write { .. } | Act::Resize { .. } if control.countdown.load(Ordering::SeqCst) <= 0 => {
                Verdict::Fail(libc::EIO)
            }
            Act::Write { .. } | Act::Resize { .. } | Act::Sync => Verdict::Pass,
        },
        control::SHORT_WRITES if control.countdown.fetch_sub(1, Ordering::SeqCst) % 4 == 0 => Verdict::Halve,
        control::SLOW_SYNCS => {
            control.injected.fetch_add(1, Ordering::SeqCst);
            sleep(control.delay_ms.load(Ordering::SeqCst));
            Verdict::Pass
        }
        _ => Verdict::Pass,
    };
    if !matches!(verdict, Verdict::Pass) {
        control.injected.fetch_add(1, Ordering::SeqCst);
    }
    verdict
}

fn concerns(mode: u32, act: Act) -> bool {
    match act {
        Act::Sync => matches!(
            mode,
            control::SYNC_ERROR | control::SYNC_ERRORS | control::SLOW_SYNCS | control::DEAD_DISK
        ),
        Act::Write { .. } => {
            !matches!(mode, control::SYNC_ERROR | control::SYNC_ERRORS | control::SLOW_SYNCS)
        }
        Act::Resize { .. } => {
            matches!(
                mode,
                control::FULL_DISK | control::WRITE_ERROR | control::WRITE_ERRORS | control::DEAD_DISK
            )
        }
    }
}

/// Whether the path of a descriptor contains the name of the database; its log and index count too.
fn is_of_database(file: c_int) -> bool {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0_u8; 10];
    let mut rest = file.unsigned_abs();
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    link[14..14 + digits.len() - from].copy_from_slice(&digits[from..]);
    let mut path = [0_u8; LONGEST_PATH];
    // SAFETY: the link is terminated, and the buffer has the size that is given. The name of the database is a
    // terminated string that stays, since nothing changes the environment after the start.
    let (length, name) = unsafe {
        let length = libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len());
        (length, CStr::from_ptr(DATABASE.load(Ordering::SeqCst)))
    };
    let path = path.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
    path.windows(name.to_bytes().len().max(1)).any(|window| window == name.to_bytes())
}

/// The file position at which a write would end.
fn end(file: c_int, from: Option<i64>, count: usize) -> i64 {
    // SAFETY: a plain system call without memory.
    let from = from.unwrap_or_else(|| unsafe { libc::lseek(file, 0, libc::SEEK_CUR) });
    from.saturating_add(i64::try_from(count).unwrap_or(i64::MAX))
}

fn length(file: c_int) -> i64 {
    // SAFETY: all zeros is a valid `stat`, which the call fills in.
    unsafe {
        let mut status: libc::stat = mem::zeroed();
        if libc::fstat(file, &mut status) == 0 { status.st_size } else { i64::MAX }
    }
}

fn sleep(milliseconds: u32) {
    let time = libc::timespec {
        tv_sec: i64::from(milliseconds / 1000),
        tv_nsec: i64::from(milliseconds % 1000) * 1_000_000,
    };
    // SAFETY: the time is read, and nothing is written back.
    unsafe { libc::nanosleep(&time, ptr::null_mut()) };
}

fn fail(error: c_int) -> c_int {
    // SAFETY: the address of this thread's error number is always valid.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// The real function that this library replaces; looked up once.
fn real(cache: &AtomicUsize, name: &CStr) -> usize {
    let known = cache.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: the name is terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    if found == 0 {
        // SAFETY: ends the process; without the real function nothing else is possible.
        unsafe { libc::abort() };
    }
    cache.store(found, Ordering::Relaxed);
    found
}

/// Defines a function of libc that asks [`judge`] first and then calls the real one.
macro_rules! stand_in {
    ($name:ident = $symbol:literal, ($($argument:ident: $type:ty),*) -> $result:ty,
     $file:ident, $act:expr, $halve:expr) => {
        /// # Safety
        /// As for the function of libc with the same name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static REAL: AtomicUsize = AtomicUsize::new(0);
            // SAFETY: the symbol is that of the same function, which has this type.
            let call = unsafe {
                mem::transmute::<usize, unsafe extern "C" fn($($type),*) -> $result>(real(&REAL, $symbol))
            };
            #[allow(clippy::redundant_closure_call)]
            match judge($file, $act) {
                // SAFETY: the caller's own arguments.
                Verdict::Pass => unsafe { call($($argument),*) },
                Verdict::Fail(error) => fail(error) as $result,
                // SAFETY: the caller's own arguments, with no more bytes than it has.
                Verdict::Halve => unsafe { $halve(call) },
            }
        }
    };
}

fn half(count: usize) -> usize {
    (count / 2).max(1)
}

type PWrite = unsafe extern "C" fn(c_int, *const c_void, usize, i64) -> isize;

stand_in!(pwrite = c"pwrite", (file: c_int, bytes: *const c_void, count: usize, from: i64) -> isize,
    file, Act::Write { from: Some(from), count }, |call: PWrite| call(file, bytes, half(count), from));
stand_in!(pwrite64 = c"pwrite64", (file: c_int, bytes: *const c_void, count: usize, from: i64) -> isize,
    file, Act::Write { from: Some(from), count }, |call: PWrite| call(file, bytes, half(count), from));
stand_in!(write = c"write", (file: c_int, bytes: *const c_void, count: usize) -> isize,
    file, Act::Write { from: None, count },
    |call: unsafe extern "C" fn(c_int, *const c_void, usize) -> isize| call(file, bytes, half(count)));
stand_in!(ftruncate = c"ftruncate", (file: c_int, length: i64) -> c_int,
    file, Act::Resize { end: length }, |call: unsafe extern "C" fn(c_int, i64) -> c_int| call(file, length));
stand_in!(ftruncate64 = c"ftruncate64", (file: c_int, length: i64) -> c_int,
    file, Act::Resize { end: length }, |call: unsafe extern "C" fn(c_int, i64) -> c_int| call(file, length));
stand_in!(fallocate = c"fallocate", (file: c_int, mode: c_int, from: i64, length: i64) -> c_int,
    file, Act::Resize { end: from.saturating_add(length) },
    |call: unsafe extern "C" fn(c_int, c_int, i64, i64) -> c_int| call(file, mode, from, length));
stand_in!(fallocate64 = c"fallocate64", (file: c_int, mode: c_int, from: i64, length: i64) -> c_int,
    file, Act::Resize { end: from.saturating_add(length) },
    |call: unsafe extern "C" fn(c_int, c_int, i64, i64) -> c_int| call(file, mode, from, length));
stand_in!(fsync = c"fsync", (file: c_int) -> c_int,
    file, Act::Sync, |call: unsafe extern "C" fn(c_int) -> c_int| call(file));
stand_in!(fdatasync = c"fdatasync", (file: c_int) -> c_int,
    file, Act::Sync, |call: unsafe extern "C" fn(c_int) -> c_int| call(file));

/// Sets the time of day back by what the environment says; monotonic clocks stay unchanged.
///
/// # Safety
/// As for the function of libc with the same name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Call = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;
    // SAFETY: the symbol is that of the same function, which has this type; the caller's own arguments.
    let done = unsafe { mem::transmute::<usize, Call>(real(&REAL, c"clock_gettime"))(clock, time) };
    if done == 0 && clock == libc::CLOCK_REALTIME {
        // SAFETY: the call succeeded, so it has filled in a valid time.
        unsafe { (*time).tv_sec -= LATE.load(Ordering::Relaxed) };
    }
    done
}
