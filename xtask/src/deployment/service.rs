//! The unit of systemd: systemd reads it, and scores how much it allows.

use std::env;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use super::tools::{succeeded, text};
use crate::command;
use crate::run::Run;

/// The highest exposure that is accepted, in tenths; `systemd-analyze security` goes to 100.
const EXPOSURE: &str = "13";

pub fn check(run: &mut Run) -> Result<()> {
    let unit = fs::read_to_string(run.root.join("deploy/toolgate.service"))?;
    let folder = run.root.join(".cache/deploy");
    fs::create_dir_all(&folder)?;
    // The program of the unit is not installed here. This one is.
    let this = env::current_exe().context("the path of xtask is unknown")?;
    ensure!(unit.contains(PROGRAM), "toolgate.service does not start {PROGRAM}");
    let file = folder.join("toolgate.service");
    fs::write(&file, unit.replace(PROGRAM, text(&this)?))?;
    let verified = command::prepare(&run.root, &["systemd-analyze", "verify", text(&file)?]).output()?;
    let complaints = String::from_utf8_lossy(&verified.stderr).into_owned();
    // It succeeds even if a line of the unit is unknown to it, and complains about other units of the machine.
    let ours: Vec<&str> = complaints.lines().filter(|line| line.contains("toolgate")).collect();
    if !verified.status.success() || !ours.is_empty() {
        bail!("systemd-analyze verify: {complaints}");
    }
    let threshold = format!("--threshold={EXPOSURE}");
    let line = ["systemd-analyze", "security", "--offline=true", "--no-pager", &threshold, text(&file)?];
    let scored = succeeded("systemd-analyze security", &command::prepare(&run.root, &line).output()?)?;
    let score = scored.lines().last().unwrap_or_default().trim_start_matches(['→', ' ']);
    println!("  toolgate.service is valid. {score}");
    let user = run.root.join("deploy/toolgate.sysusers");
    let line = ["systemd-sysusers", "--dry-run", text(&user)?];
    succeeded("systemd-sysusers", &command::prepare(&run.root, &line).output()?)?;
    println!("  toolgate.sysusers is valid");
    Ok(())
}

const PROGRAM: &str = "/usr/local/bin/toolgate";
