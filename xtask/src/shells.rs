//! Completion of names in shells: zsh and fish themselves complete the name of a server of a running gateway. For bash this
//! is a test of the program, since every machine has it.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::conformance::gateway::{self, Gateway};
use crate::run::Run;

/// Types the beginning of a name and a tab in an interactive zsh, and runs the line: only the whole name is that of a server.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'fpath=($HOME $fpath); autoload -Uz compinit && compinit -u -D && print re""ady'
zpty -r shell seen '*ready*'
zpty -n -w shell $'toolgate get server fix\t\n'
zpty -r shell seen '*connected*'
print -r -- $seen
"#;
const FISH: &str = "source toolgate.fish; complete -C 'toolgate get server fix'";

pub fn complete(run: &mut Run) -> Result<()> {
    command::show(&run.root, &["cargo", "build", "--workspace", "--bins", "--locked", "--quiet"])?;
    let folder = run.root.join(".cache/shells");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let toolgate = command::program("toolgate")?;
    let gateway = Gateway::start(&folder, &toolgate)?;
    gateway.register(&gateway::stdio("fixture", &command::program("conformance-fixture")?, &["--stdio"]))?;
    for (shell, file) in [("zsh", "_toolgate"), ("fish", "toolgate.fish")] {
        fs::write(folder.join(file), command::read(&folder, &[&toolgate, "completions", shell])?)?;
    }
    for line in [["zsh", "-f", "-c", ZSH], ["fish", "--no-config", "-c", FISH]] {
        let seen = in_home(&folder, &gateway.url(), &toolgate, &line)?;
        if !seen.contains("fixture") {
            bail!("{} does not complete the name of a server: {seen}", line[0]);
        }
        println!("  {} completes names", line[0]);
    }
    Ok(())
}

/// Runs a shell in its own home, with `toolgate` in its path. A shell that does not complete the name is ended.
fn in_home(folder: &Path, registry: &str, toolgate: &str, line: &[&str]) -> Result<String> {
    let programs = Path::new(toolgate).parent().context("the program is in no folder")?;
    let others = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([programs.to_owned()].into_iter().chain(env::split_paths(&others)))?;
    let mut shell = command::prepare(folder, &[&["timeout", "60"], line].concat());
    shell.env("HOME", folder).env("PATH", path).env("TOOLGATE_REGISTRY", registry);
    let output = shell.output().with_context(|| format!("{} could not be started", line[0]))?;
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("{} ended with {}: {seen}{}", line[0], output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(seen)
}
