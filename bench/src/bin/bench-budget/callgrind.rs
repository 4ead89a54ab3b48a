//! Callgrind: its command line, and the totals and the names of functions in its output.

use std::collections::{BTreeMap, HashMap};
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

/// The same, with the names of functions that the linker knows.
pub fn wrapper_for_linker(output: &Path) -> Vec<String> {
    [wrapper(output), vec!["--demangle=no".to_owned()]].concat()
}

pub fn read(output: &Path) -> Result<Counts> {
    parse(&text_of(output)?).context("unexpected output of callgrind")
}

/// How often each function was called.
pub fn read_calls(output: &Path) -> Result<BTreeMap<String, f64>> {
    parse_calls(&text_of(output)?).context("unexpected output of callgrind")
}

fn text_of(output: &Path) -> Result<String> {
    fs::read_to_string(output).with_context(|| format!("callgrind wrote no {}", output.display()))
}

fn parse_calls(text: &str) -> Option<BTreeMap<String, f64>> {
    let (mut names, mut callee, mut calls) = (HashMap::new(), "", BTreeMap::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            resolve(name, &mut names)?;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = resolve(name, &mut names)?;
        } else if let Some(count) = line.strip_prefix("calls=") {
            // A function that calls itself is called `name'2` there.
            let name = callee.split('\'').next().unwrap_or(callee);
            *calls.entry(name.to_owned()).or_default() +=
                count.split_whitespace().next()?.parse::<f64>().ok()?;
        }
    }
    Some(calls)
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
    fn calls_of_functions_are_counted() {
        let text = "fn=(1) work\n3 20\ncob=(2) libc\ncfn=(2) malloc\ncalls=7 0 \n3 90\ncfn=(3) walk'2\ncalls=2 0\n3 4\n\n\
            fn=(3)\n0 4\ncfn=(4) walk\ncalls=1 0\n0 8\n";
        let calls = [("malloc", 7.0), ("walk", 3.0)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(parse_calls(text), Some(calls.into()));
    }

    #[test]
    fn a_file_without_totals_is_not_read() {
        assert_eq!(parse("events: Ir\nfn=(1) work\n3 20\n"), None);
    }
}
