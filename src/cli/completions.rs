//! `toolgate completions`: completion scripts for shells.

use clap::Args;
use clap_complete::Shell;

use super::output;

/// Print completions for a shell
#[derive(Args)]
#[command(after_help = "Examples:
  toolgate completions bash > /etc/bash_completion.d/toolgate
  toolgate completions zsh > \"${fpath[1]}/_toolgate\"
  toolgate completions fish > ~/.config/fish/completions/toolgate.fish
  toolgate completions powershell >> $PROFILE")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

pub fn run(completions: Completions, mut command: clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut command, "toolgate", &mut script);
    output::page(&String::from_utf8_lossy(&script))
}
