//! What to run: the families of attacks, the seed and size of the random part, the program under test.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

pub const USAGE: &str = "\
attack [FAMILY...] [--seed N] [--requests N] [--toolgate FILE]

  FAMILY          any of slow, sockets, calls, messages, processes, lists, browsers, tokens, leaks, random;
                  all of them by default
  --seed N        repeats the random requests of an earlier run
  --requests N    number of random requests (default: 20000)
  --toolgate FILE the program under test (default: toolgate beside this program)";

#[derive(Clone, Debug)]
pub struct Plan {
    pub families: Vec<String>,
    pub seed: u64,
    pub requests: u64,
    pub program: PathBuf,
}

impl Plan {
    pub fn parse(words: &[String], known: &[&str]) -> Result<Self> {
        let mut plan = Self {
            families: Vec::new(),
            seed: SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()),
            requests: 20_000,
            program: std::env::current_exe()?.with_file_name("toolgate"),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--seed" => plan.seed = value()?.parse().context("--seed takes a number")?,
                "--requests" => plan.requests = value()?.parse().context("--requests takes a number")?,
                "--toolgate" => plan.program = value()?.into(),
                family if known.contains(&family) => plan.families.push(family.to_owned()),
                other => bail!("unknown word {other:?}"),
            }
        }
        if plan.families.is_empty() {
            plan.families = known.iter().map(|family| (*family).to_owned()).collect();
        }
        plan.program = plan.program.canonicalize().with_context(|| {
            format!("there is no {}; build it or name it with --toolgate", plan.program.display())
        })?;
        Ok(plan)
    }
}
