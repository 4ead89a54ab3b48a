//! Reads which scenarios a requirement set scores. It understands only the YAML that the suite's own files use: a
//! section with scenario names, and one with items of `scenario`, `leg` and `reason`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Side;
use super::exclusions::Exclusion;

#[derive(Default)]
pub struct Requirements {
    pub scored: BTreeSet<String>,
    /// What was taken out of the scored ones.
    pub excluded: Vec<&'static Exclusion>,
    /// Maps a scenario to the reason why it is not scored.
    pub not_scored: BTreeMap<String, String>,
}

impl Requirements {
    pub fn read(file: &Path, side: Side) -> Result<Requirements> {
        let text = fs::read_to_string(file).with_context(|| format!("{} is missing", file.display()))?;
        Ok(Requirements::parse(&text, side))
    }

    pub fn exclude(&mut self, exclusions: &[&'static Exclusion]) -> Result<()> {
        for exclusion in exclusions {
            if !self.scored.remove(exclusion.scenario) {
                bail!("{} is excluded, but not scored", exclusion.scenario);
            }
            self.excluded.push(exclusion);
        }
        Ok(())
    }

    fn parse(text: &str, side: Side) -> Requirements {
        let side = side.word();
        let mut requirements = Requirements::default();
        let (mut section, mut scenario, mut concerned) = ("", "", false);
        for line in text.lines() {
            let item = line.trim().trim_start_matches("- ");
            if !line.starts_with([' ', '#']) && line.ends_with(':') {
                section = line.trim_end_matches(':');
            } else if section == side && line.trim().starts_with("- ") {
                requirements.scored.insert(item.to_owned());
            } else if section == "not_scored" {
                match item.split_once(": ") {
                    Some(("scenario", name)) => (scenario, concerned) = (name, false),
                    Some(("leg", leg)) => concerned = leg == side,
                    Some(("reason", reason)) if concerned => {
                        requirements.not_scored.insert(scenario.to_owned(), reason.to_owned());
                    }
                    _ => {}
                }
            }
        }
        requirements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment: with a colon:
server:
  - ping
  - tools-list

client:
  - initialize

not_scored:
  - scenario: auth/dpop
    leg: client
    reason: extension
  - scenario: server-sse-polling
    leg: server
    reason: pending
    note: >-
      on hold: see elsewhere
";

    #[test]
    fn each_side_has_its_own_scenarios() {
        let requirements = Requirements::parse(TEXT, Side::Server);
        assert_eq!(requirements.scored, ["ping", "tools-list"].map(str::to_owned).into());
        let pending = ("server-sse-polling".to_owned(), "pending".to_owned());
        assert_eq!(requirements.not_scored, [pending].into());

        let requirements = Requirements::parse(TEXT, Side::Client);
        assert_eq!(requirements.scored, ["initialize".to_owned()].into());
        let extension = ("auth/dpop".to_owned(), "extension".to_owned());
        assert_eq!(requirements.not_scored, [extension].into());
    }
}
