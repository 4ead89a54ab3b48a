//! The fuzzing program behind `cargo xtask fuzz`: parses the arguments, runs targets, and reports findings with its exit
//! code.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use toolgate_fuzz::supervisor::{self, Plan};
use toolgate_fuzz::{TARGETS, Target, corpus, find, runner};

const USAGE: &str = "\
cargo xtask fuzz [TARGET...] [--seconds N] [--seed N] [--jobs N]
cargo xtask fuzz TARGET --replay FILE

  TARGET         any of head, patch, sse, template, import, body, session, state; all of them by default
  --seconds N    time for each target (default: 30)
  --seed N       repeats the inputs of an earlier run
  --jobs N       concurrent targets (default: the number of processors)
  --replay FILE  runs one input only, such as one that an earlier run saved in fuzz/artifacts";

struct Words {
    plan: Plan,
    replay: Option<PathBuf>,
    /// Whether the supervisor has started this process for one target.
    is_process: bool,
    progress: PathBuf,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let words = match read(&words) {
        Ok(words) => words,
        Err(error) => {
            eprintln!("{error:#}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&words) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the targets and returns the number of findings. A process of the supervisor prints its findings and succeeds.
fn run(words: &Words) -> Result<usize> {
    match (&words.replay, words.plan.targets.as_slice()) {
        (Some(file), [target]) => replay(target, &fs::read(file)?),
        (Some(_), _) => bail!("--replay needs one target"),
        (None, [target]) if words.is_process => {
            runner::catch_panics();
            let outcome = runner::run(target, words.plan.seed, words.plan.duration, &words.progress)?;
            for finding in outcome.findings {
                let path = corpus::keep(target.name, &finding.input)?;
                println!("finding: {}\n{}", path.display(), finding.problem);
            }
            Ok(0)
        }
        (None, _) => supervisor::run(&words.plan),
    }
}

fn replay(target: &Target, input: &[u8]) -> Result<usize> {
    runner::catch_panics();
    let problem = runner::problem_of(target, input);
    println!("{}", problem.as_deref().unwrap_or("nothing is wrong"));
    Ok(usize::from(problem.is_some()))
}

fn read(words: &[String]) -> Result<Words> {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let plan = Plan { targets: Vec::new(), duration: Duration::from_secs(30), seed, jobs };
    let mut read = Words { plan, replay: None, is_process: false, progress: PathBuf::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--seconds" => read.plan.duration = Duration::try_from_secs_f64(number(word, value()?)?)?,
            "--seed" => read.plan.seed = number(word, value()?)?,
            "--jobs" => read.plan.jobs = number::<usize>(word, value()?)?.max(1),
            "--replay" => read.replay = Some(value()?.into()),
            "--process" => read.is_process = true,
            "--progress" => read.progress = value()?.into(),
            name => {
                let target = find(name).with_context(|| format!("there is no target {name:?}"))?;
                read.plan.targets.push(target);
            }
        }
    }
    if read.plan.targets.is_empty() {
        read.plan.targets = TARGETS.iter().collect();
    }
    Ok(read)
}

fn number<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{name} takes a number, not {text:?}"))
}
