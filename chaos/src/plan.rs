//! What to run: the parts, for how long, with which seed, against which program.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::random::Random;

pub const USAGE: &str = "\
chaos [PART...] [--minutes N | --seconds N] [--seed N] [--toolgate FILE]

  PART            any of store, processes, network, soak; all of them by default
  --minutes N     duration of the whole run, shared equally by its parts (default: 1)
  --seconds N     the same in seconds
  --seed N        repeats the random choices of an earlier run
  --toolgate FILE the program under test (default: toolgate beside this program)";

#[derive(Clone, Debug)]
pub struct Plan {
    pub parts: Vec<String>,
    /// The time for each part.
    pub duration: Duration,
    pub seed: u64,
    pub program: PathBuf,
}

impl Plan {
    pub fn parse(words: &[String], known: &[&str]) -> Result<Self> {
        let mut plan = Self {
            parts: Vec::new(),
            duration: Duration::from_secs(60),
            seed: SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()),
            program: std::env::current_exe()?.with_file_name("toolgate"),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--minutes" => plan.duration = Duration::from_secs_f64(number::<f64>(word, value()?)? * 60.0),
                "--seconds" => plan.duration = Duration::from_secs_f64(number(word, value()?)?),
                "--seed" => plan.seed = number(word, value()?)?,
                "--toolgate" => plan.program = value()?.into(),
                part if known.contains(&part) => plan.parts.push(part.to_owned()),
                other => bail!("unknown word {other:?}"),
            }
        }
        if plan.parts.is_empty() {
            plan.parts = known.iter().map(|part| (*part).to_owned()).collect();
        }
        plan.duration /= u32::try_from(plan.parts.len().max(1))?;
        plan.program = plan.program.canonicalize().with_context(|| {
            format!("there is no {}; build it or name it with --toolgate", plan.program.display())
        })?;
        Ok(plan)
    }

    /// A random generator for one purpose. It depends only on the seed and the purpose, so that parts are independent.
    pub fn random(&self, purpose: &str) -> Random {
        let salt = purpose
            .bytes()
            .fold(self.seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Random::new(salt)
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{name} takes a number, not {text:?}"))
}
