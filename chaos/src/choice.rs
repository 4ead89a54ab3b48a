//! What every harness reads from its command line: the chosen parts, the seed, the program under test.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

#[derive(Clone, Debug)]
pub struct Choice {
    pub parts: Vec<String>,
    pub seed: u64,
    pub program: PathBuf,
}

/// Options that only one harness has: takes the value of an option by its name, and tells whether it knows the name.
pub type Options<'a> = &'a mut dyn FnMut(&str, &str) -> Result<bool>;

impl Choice {
    /// Reads the words of a command line. Without a part in them, all known parts are chosen.
    pub fn parse(words: &[String], known: &[&str], others: Options<'_>) -> Result<Self> {
        let mut choice = Self {
            parts: Vec::new(),
            seed: SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs()),
            program: std::env::current_exe()?.with_file_name("toolgate"),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if known.contains(&word.as_str()) {
                choice.parts.push(word.clone());
                continue;
            }
            let value =
                words.next().with_context(|| format!("unknown word {word:?}, or it needs a value"))?;
            match word.as_str() {
                "--seed" => choice.seed = number(word, value)?,
                "--toolgate" => choice.program = value.into(),
                other if others(other, value)? => {}
                other => bail!("unknown word {other:?}"),
            }
        }
        if choice.parts.is_empty() {
            choice.parts = known.iter().map(|part| (*part).to_owned()).collect();
        }
        choice.program = choice.program.canonicalize().with_context(|| {
            format!("there is no {}; build it or name it with --toolgate", choice.program.display())
        })?;
        Ok(choice)
    }
}

/// The number that an option takes.
pub fn number<T: FromStr>(name: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{name} takes a number, not {text:?}"))
}
