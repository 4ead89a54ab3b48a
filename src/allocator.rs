//! The allocator of the program. With glibc it is that of the system, with a larger cache for each thread
//! (`thread_cache`): apart from that cache it can return the free memory of all threads, also of those that are idle, and
//! uses little at rest.
//! Elsewhere it is mimalloc, which returns that of the calling thread only.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod thread_cache;

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub use mimalloc::MiMalloc as Allocator;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use thread_cache::Allocator;

/// The most heaps; threads share them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS: libc::c_int = 4;
/// Larger blocks are returned to the system as soon as they are free.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BLOCK: libc::c_int = 1024 * 1024;

/// Must be called before the first thread is started.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)] // The functions have no safe interface.
pub fn set_up() {
    // SAFETY: no other thread allocates yet, and both settings are known to glibc.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BLOCK);
    }
    thread_cache::set_up();
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn set_up() {}

/// Returns memory that is free to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)] // The function has no safe interface.
pub fn give_back() {
    thread_cache::give_back();
    // SAFETY: it may be called at any time by any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Returns memory that is free to the system. The allocator does so by itself only while it is used.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[allow(unsafe_code)] // The function has no safe interface.
pub fn give_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: a function of the allocator above, which may be called at any time by any thread.
    unsafe { mi_collect(true) }
}
