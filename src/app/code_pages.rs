//! The pages of the program's own code. Starting uses many that serving does not, and the system maps others around each.

/// Lets go of all of them. Those that are used again are mapped again, from the system's cache of files.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // The function has no safe interface.
pub fn let_go() {
    let here = let_go as fn() as usize;
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return };
    let Some(code) = maps.lines().filter_map(code_of_file).find(|code| code.contains(&here)) else { return };
    // SAFETY: code that is mapped from a file and not writable is the same when it is read again.
    let outcome = unsafe { libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED) };
    tracing::debug!(bytes = code.len(), outcome, "let go of the pages of the program");
}

#[cfg(not(target_os = "linux"))]
pub fn let_go() {}

/// Reads the addresses of a mapping, if it is code from a file: `7f00-7fff r-xp 00000000 08:01 42 /usr/bin/toolgate`.
#[cfg(target_os = "linux")]
fn code_of_file(map: &str) -> Option<std::ops::Range<usize>> {
    let mut fields = map.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp" && fields.nth(3)?.starts_with('/');
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    is_code.then_some(address(start)?..address(end)?)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_code_from_files_is_let_go_of() {
        let code = "55d0a000-55d0c000 r-xp 00001000 08:01 42    /opt/my tools/toolgate";
        assert_eq!(code_of_file(code), Some(0x55d0_a000..0x55d0_c000));
        for other in [
            "55d0a000-55d0c000 rwxp 00001000 08:01 42 /opt/toolgate",
            "55d0a000-55d0c000 r--p 00001000 08:01 42 /opt/toolgate",
            "55d0a000-55d0c000 r-xp 00000000 00:00 0",
            "7ffd1000-7ffd2000 r-xp 00000000 00:00 0 [vdso]",
            "",
        ] {
            assert_eq!(code_of_file(other), None, "{other}");
        }
    }

    #[test]
    fn the_program_goes_on_without_its_pages() {
        let_go();
        assert_eq!("1,2".split(',').map(|digit| digit.parse::<u8>().unwrap()).sum::<u8>(), 3);
    }
}
