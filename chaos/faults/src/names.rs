//! A host name whose address the harness chooses: the name and the path of a file are in the environment, and the file
//! contains the address at that moment.

use std::ffi::{CStr, c_char, c_int};
use std::mem;
use std::sync::atomic::AtomicUsize;

use crate::{control, real, variable};

/// Longer than any address.
const LONGEST_ADDRESS: usize = 64;

/// Looks up the chosen name as the address in the file, and any other name as usual.
///
/// # Safety
/// As for the function of libc with the same name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    name: *const c_char,
    service: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Call = unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const libc::addrinfo,
        *mut *mut libc::addrinfo,
    ) -> c_int;
    let mut address = [0; LONGEST_ADDRESS];
    // SAFETY: the symbol is that of the same function, which has this type; the arguments are the caller's own, or an
    // address that ends with a zero.
    unsafe {
        let name = if replace(name, &mut address) { address.as_ptr().cast() } else { name };
        mem::transmute::<usize, Call>(real(&REAL, c"getaddrinfo"))(name, service, hints, found)
    }
}

/// Reads the address into the buffer if this is the chosen name.
///
/// # Safety
/// The name is null or terminated, and no other thread changes the environment.
unsafe fn replace(name: *const c_char, address: &mut [u8; LONGEST_ADDRESS]) -> bool {
    // SAFETY: values of the environment are terminated; at most the size of the buffer less one is read.
    unsafe {
        let (chosen, path) = (variable(control::NAME_VARIABLE), variable(control::ADDRESS_VARIABLE));
        if name.is_null()
            || chosen.is_null()
            || path.is_null()
            || CStr::from_ptr(name) != CStr::from_ptr(chosen)
        {
            return false;
        }
        let file = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC);
        let count = libc::read(file, address.as_mut_ptr().cast(), LONGEST_ADDRESS - 1);
        libc::close(file);
        count > 0
    }
}
