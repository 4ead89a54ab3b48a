//! Callgrind: its command line, and the totals in its output.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::counts::Counts;

/// The functions that allocate: those of libc, and of the cache in front of it (`src/allocator/thread_cache.rs`).
const ALLOCATORS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "<toolgate::allocator::thread_cache::Allocator as core::alloc::global::GlobalAlloc>::alloc",
];

/// The command line in front of a program. The output is written when the program ends.
pub fn wrapper(output: &Path) -> Vec<String> {
    let file = format!("--callgrind-out-file={}", output.display());
    // Its messages are about system calls that it does not know.
    ["valgrind", "--tool=callgrind", "--log-file=/dev/null", &file].map(str::to_owned).into()
}

pub fn read(output: &Path) -> Result<Counts> {
    let text =
        fs::read_to_string(output).with_context(|| format!("callgrind wrote no {}", output.display()))?;
    parse(&text).context("unexpected output of callgrind")
}

fn parse(text: &str) -> Option<Counts> {
    // A name is written once, with a number: `fn=(12) malloc`; then only the number: `cfn=(12)`.
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut caller, mut callee, mut allocations) = ("", "", 0.0);
    let mut instructions = None;
    for line in text.lines() {
        if let Some(total) = line.strip_prefix("totals: ") {
            instructions = total.split_whitespace().next()?.parse().ok();
        } else if let Some(name) = line.strip_prefix("fn=") {
            caller = resolve(name, &mut names)?;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = resolve(name, &mut names)?;
        } else if let Some(calls) = line.strip_prefix("calls=") {
            // One may call another: that is one allocation.
            if ALLOCATORS.contains(&callee) && !ALLOCATORS.contains(&caller) {
                allocations += calls.split_whitespace().next()?.parse::<f64>().ok()?;
            }
        }
    }
    Some(Counts { instructions: instructions?, allocations, system_calls: None })
}

fn resolve<'a>(text: &'a str, names: &mut HashMap<&'a str, &'a str>) -> Option<&'a str> {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            Some(name)
        }
        None => names.get(text).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_and_calls_of_allocators_are_read() {
        let text = "events: Ir\n\nob=(1) a\nfn=(1) work\n3 20\ncob=(2) libc\ncfn=(2) malloc\ncalls=7 0 \n3 90\n\
            cfn=(3) realloc\ncalls=2 0\n3 4\n\nfn=(3)\n0 4\ncfn=(2)\ncalls=2 0\n0 8\n\ntotals: 126\n";
        let counts = Counts { instructions: 126.0, allocations: 9.0, system_calls: None };
        assert_eq!(parse(text), Some(counts));
    }

    #[test]
    fn a_file_without_totals_is_not_read() {
        assert_eq!(parse("events: Ir\nfn=(1) work\n3 20\n"), None);
    }
}
