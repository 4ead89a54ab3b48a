//! What to run: the parts, for how long, with which seed, against which program.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use toolgate_chaos::choice::{Choice, number};

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
        let mut seconds = 60.0;
        let Choice { parts, seed, program } = Choice::parse(words, known, &mut |name, value| {
            seconds = match name {
                "--minutes" => number::<f64>(name, value)? * 60.0,
                "--seconds" => number(name, value)?,
                _ => return Ok(false),
            };
            Ok(true)
        })?;
        let duration = Duration::from_secs_f64(seconds) / u32::try_from(parts.len().max(1))?;
        Ok(Self { parts, duration, seed, program })
    }

    /// A random generator for one purpose. It depends only on the seed and the purpose, so that parts are independent.
    pub fn random(&self, purpose: &str) -> Random {
        let salt = purpose
            .bytes()
            .fold(self.seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Random::new(salt)
    }
}
