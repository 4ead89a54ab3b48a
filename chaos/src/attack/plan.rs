//! What to run: the families of attacks, the seed and size of the random part, the program under test.

use std::path::PathBuf;

use anyhow::Result;
use toolgate_chaos::choice::{Choice, number};

pub const USAGE: &str = "\
attack [FAMILY...] [--seed N] [--requests N] [--toolgate FILE]

  FAMILY          any of slow, sockets, tls, calls, quotas, messages, processes, lists, browsers, oauth, tokens,
                  signing, leaks, random; all of them by default
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
        let mut requests = 20_000;
        let Choice { parts: families, seed, program } = Choice::parse(words, known, &mut |name, value| {
            if name == "--requests" {
                requests = number(name, value)?;
            }
            Ok(name == "--requests")
        })?;
        Ok(Self { families, seed, requests, program })
    }
}
