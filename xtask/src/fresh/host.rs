//! Network settings of this machine that the chroot needs as well: Debian mirror, proxies, certificates and settings
//! of package managers. Nothing else of the machine is copied.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command;

const MIRROR: &str = "http://deb.debian.org/debian";

/// Environment variables that are passed on. If one names a file, the file is copied as well.
const VARIABLES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "PIP_INDEX_URL",
    "NPM_CONFIG_REGISTRY",
    "RUSTUP_DIST_SERVER",
    "RUSTUP_UPDATE_ROOT",
];

const FILES: &[&str] =
    &["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"];
/// Files in the home folder; in the chroot that is root's.
const HOME_FILES: &[&str] = &[".npmrc", ".cargo/config.toml", ".config/pip/pip.conf"];

pub fn variables() -> Vec<(&'static str, String)> {
    VARIABLES.iter().filter_map(|name| Some((*name, env::var(name).ok()?))).collect()
}

/// Copies the settings files that exist, and apt's download settings.
pub fn copy_settings(root: &Path, chroot: &Path) -> Result<()> {
    let named = variables().into_iter().map(|(_, value)| PathBuf::from(value));
    let named = named.filter(|path| path.is_absolute());
    for path in FILES.iter().map(PathBuf::from).chain(named) {
        copy(&path, &inside(chroot, &path))?;
    }
    if let Some(home) = env::home_dir() {
        for name in HOME_FILES {
            copy(&home.join(name), &chroot.join("root").join(name))?;
        }
    }
    // Fails on a machine without apt, which has no such settings.
    if let Ok(settings) = command::read(root, &["apt-config", "dump", "Acquire"]) {
        fs::write(chroot.join("etc/apt/apt.conf.d/90acquire"), settings)?;
    }
    Ok(())
}

fn inside(chroot: &Path, path: &Path) -> PathBuf {
    chroot.join(path.strip_prefix("/").unwrap_or(path))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_file() {
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        fs::copy(from, to).with_context(|| format!("{} cannot be copied", from.display()))?;
    }
    Ok(())
}

/// The Debian mirror that apt uses here, or the default one.
pub fn mirror() -> String {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(folder) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(folder.flatten().map(|entry| entry.path()));
    }
    let found = files.iter().find_map(|file| mirror_in(&fs::read_to_string(file).ok()?));
    found.unwrap_or_else(|| MIRROR.to_owned())
}

fn mirror_in(sources: &str) -> Option<String> {
    let used = sources.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = used.flat_map(str::split_whitespace);
    let is_mirror = |word: &&str| word.contains("://") && word.trim_end_matches('/').ends_with("/debian");
    words.find(is_mirror).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_found_in_both_kinds_of_lists() {
        let one_line = "# deb http://old/debian x main\ndeb [arch=amd64] http://a/debian/ bookworm main\n";
        assert_eq!(mirror_in(one_line).as_deref(), Some("http://a/debian/"));
        let fields = "Types: deb\nURIs: https://b/debian\nSuites: bookworm\n";
        assert_eq!(mirror_in(fields).as_deref(), Some("https://b/debian"));
        assert_eq!(mirror_in("URIs: http://b/debian-security\nURIs: https://c/node_20.x\n"), None);
    }
}
