//! The functions that an operation runs through, in the file from which the linker gets them (`build.rs`). Some of their
//! names change with the compiler and with dependencies, and then they are placed somewhere; so the file is written again
//! when too many of them are no longer in the program.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The part of the functions in the file that the program must have.
const LEAST: f64 = 2.0 / 3.0;

/// The functions that each operation calls, from the calls in a run with so many operations more than another one.
pub fn of_operation(
    more: &BTreeMap<String, f64>,
    base: &BTreeMap<String, f64>,
    operations: usize,
) -> Vec<String> {
    let least = operations as f64 / 2.0;
    let is_used = |name: &str, calls: f64| calls - base.get(name).copied().unwrap_or_default() >= least;
    more.iter().filter(|(name, calls)| is_used(name, **calls)).map(|(name, _)| name.clone()).collect()
}

/// Writes those that are in the program, and not in one of its libraries.
pub fn write(file: &Path, toolgate: &Path, functions: &BTreeSet<String>) -> Result<usize> {
    let program = fs::read(toolgate).with_context(|| format!("{} cannot be read", toolgate.display()))?;
    let symbols = symbols(&program);
    let lines: Vec<_> = functions.iter().filter(|name| symbols.contains(name.as_bytes())).collect();
    let text: String = lines.iter().map(|name| format!("{name}\n")).collect();
    fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(lines.len())
}

/// Checks that the program still has most of the functions in the file.
pub fn compare(file: &Path, toolgate: &Path) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let program = fs::read(toolgate).with_context(|| format!("{} cannot be read", toolgate.display()))?;
    let symbols = symbols(&program);
    let (all, known) =
        (text.lines().count(), text.lines().filter(|name| symbols.contains(name.as_bytes())).count());
    println!("  {known} of the {all} functions in {} are in the program", file.display());
    ensure!(
        known as f64 >= all as f64 * LEAST,
        "too few of them: write the file with `cargo xtask budget --functions`"
    );
    Ok(())
}

/// Every text of the program that ends with a zero; among them are the names of all its functions.
fn symbols(program: &[u8]) -> HashSet<&[u8]> {
    program.split(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_base_calls_is_not_part_of_an_operation() {
        let calls =
            |counts: &[(&str, f64)]| counts.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        let (base, more) = (
            calls(&[("start", 900.0), ("parse", 20.0), ("flush", 1.0)]),
            calls(&[("start", 900.0), ("parse", 1020.0), ("answer", 1000.0), ("flush", 9.0)]),
        );
        assert_eq!(of_operation(&more, &base, 1000), ["answer", "parse"]);
    }

    #[test]
    fn a_program_without_its_functions_is_told() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (program, list) = (folder.path().join("program"), folder.path().join("list"));
        fs::write(&program, b"\x7fELF\0main\0parse\0answer\0")?;
        let functions = ["answer", "malloc", "parse"].map(str::to_owned).into();
        assert_eq!(write(&list, &program, &functions)?, 2);
        assert_eq!(fs::read_to_string(&list)?, "answer\nparse\n");
        assert!(compare(&list, &program).is_ok());
        fs::write(&program, b"\x7fELF\0main\0parse2\0answer\0")?;
        assert!(compare(&list, &program).is_err());
        Ok(())
    }
}
