//! The part of `tests/conformance/README.md` that a run writes, between two markers. A run that does not write compares
//! its own results with it, so that the page always says what happens.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

const PAGE: &str = "tests/conformance/README.md";
const BEGIN: &str = "<!-- scores, written by `cargo xtask conformance --write` -->\n";
const END: &str = "<!-- end of scores -->\n";

pub fn write(root: &Path, scores: &str) -> Result<()> {
    let page = root.join(PAGE);
    let text = read(&page)?;
    Ok(fs::write(page, replace(&text, scores)?)?)
}

pub fn compare(root: &Path, scores: &str) -> Result<()> {
    let text = read(&root.join(PAGE))?;
    if replace(&text, scores)? != text {
        bail!(
            "{PAGE} has other scores; if these are right, run `cargo xtask conformance --write`:\n\n{scores}"
        );
    }
    Ok(())
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(page).with_context(|| format!("{} cannot be read", page.display()))
}

/// The page with these scores between its markers.
fn replace(page: &str, scores: &str) -> Result<String> {
    let missing = || format!("{PAGE} has no markers for the scores");
    let (before, rest) = page.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}\n{scores}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_markers_is_replaced() {
        let page = format!("above\n{BEGIN}\nold\n{END}below\n");
        assert_eq!(replace(&page, "new\n").unwrap(), format!("above\n{BEGIN}\nnew\n\n{END}below\n"));
        assert!(replace("no markers", "new\n").is_err());
    }
}
