//! Counts what an operation costs: instructions and allocations with callgrind, system calls with strace. Compares the
//! counts with `bench/budget.toml`, and fails if one exceeds its budget. Counts hardly depend on how busy the machine is.
//!
//! bench-budget [--write] [--functions] [--toolgate FILE] [--file bench/budget.toml] [ROW...]

mod budget;
mod callgrind;
mod counts;
mod functions;
mod rows;
mod strace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use budget::{Budget, Verdict};
use counts::Counts;

/// The functions that an operation runs through, for the linker.
const FUNCTIONS: &str = "bench/functions.txt";

struct Plan {
    toolgate: PathBuf,
    file: PathBuf,
    is_writing: bool,
    /// Only writes the list of functions.
    lists_functions: bool,
    /// Measures only these rows, if there are any.
    only: Vec<String>,
}

impl Plan {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut plan = Self {
            toolgate: sibling("toolgate")?,
            file: "bench/budget.toml".into(),
            is_writing: false,
            lists_functions: false,
            only: Vec::new(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--write" => plan.is_writing = true,
                "--functions" => plan.lists_functions = true,
                "--toolgate" => plan.toolgate = words.next().context("--toolgate needs a file")?.into(),
                "--file" => plan.file = words.next().context("--file needs a file")?.into(),
                flag if flag.starts_with('-') => bail!("unknown flag {flag}"),
                row => plan.only.push(row.to_owned()),
            }
        }
        if let Some(unknown) = plan.only.iter().find(|name| !rows::names().any(|row| row == name.as_str())) {
            bail!("there is no row {unknown}; the rows are {}", rows::names().collect::<Vec<_>>().join(", "));
        }
        let writes_all = plan.is_writing || plan.lists_functions;
        ensure!(!writes_all || plan.only.is_empty(), "--write and --functions measure all rows");
        Ok(plan)
    }

    fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == row)
    }
}

/// A program that was built together with this one.
fn sibling(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe().context("the path of this program is unknown")?.with_file_name(name))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    if plan.lists_functions {
        let used = rows::functions(&plan).await?;
        let count = functions::write(Path::new(FUNCTIONS), &plan.toolgate, &used)?;
        println!("{count} functions written to {FUNCTIONS}");
        return Ok(ExitCode::SUCCESS);
    }
    let budget = if plan.is_writing { Budget::default() } else { Budget::read(&plan.file)? };
    if !plan.is_writing && budget.processor != std::env::consts::ARCH {
        println!(
            "not compared: the budget is for {}, and this is {}",
            budget.processor,
            std::env::consts::ARCH
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut verdict = Verdict::default();
    let mut seen = Vec::new();
    let note = |name: &'static str, counts: Counts| {
        let line = verdict.judge(name, &counts, budget.row(name), plan.is_writing);
        println!("  {name:16} {line}");
        seen.push((name, counts));
    };
    rows::measure(&plan, &budget, note).await?;
    if plan.is_writing {
        budget::write(&plan.file, &seen)?;
        println!("written to {}", plan.file.display());
        return Ok(ExitCode::SUCCESS);
    }
    if plan.only.is_empty() {
        functions::compare(Path::new(FUNCTIONS), &plan.toolgate)?;
        verdict.note_stale(&budget, |name| seen.iter().any(|(row, _)| *row == name));
    }
    print!("{verdict}");
    Ok(if verdict.is_over() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
