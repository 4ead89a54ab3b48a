//! The folders of a target: `corpus/<target>` with the committed inputs, `artifacts` for inputs with a finding.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The inputs of a target, sorted by file name, so that a seed gives the same inputs on every machine.
pub fn read(target: &str) -> Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).with_context(|| format!("there is no {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let inputs = paths.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    ensure!(!inputs.is_empty(), "{} is empty", folder.display());
    Ok(inputs)
}

/// Saves an input with a finding.
pub fn keep(target: &str, input: &[u8]) -> Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts");
    fs::create_dir_all(&folder)?;
    let mut hash = DefaultHasher::new();
    input.hash(&mut hash);
    let path = folder.join(format!("{target}-{:016x}", hash.finish()));
    fs::write(&path, input)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_for_its_corpus() {
        for target in crate::TARGETS {
            let corpus = super::read(target.name).expect("a corpus");
            assert!(corpus.len() >= 10, "{} has a corpus of {}", target.name, corpus.len());
            corpus.iter().for_each(|input| (target.run)(input));
        }
    }
}
