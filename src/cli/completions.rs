//! `toolgate completions`: completion scripts for shells. In bash, zsh and fish they also complete the names of servers,
//! tools, groups and others, which `toolgate __complete` asks the gateway for.

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
    output::page(&with_names(completions.shell, &String::from_utf8_lossy(&script)))
}

/// Names are not passed to `compgen -W`, which would expand them like a command line.
const BASH: &str = r#"
_toolgate_names() {
    local name names
    names=$("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [ -z "$names" ]; then
        _toolgate "$@"
        return
    fi
    COMPREPLY=()
    while IFS= read -r name; do
        COMPREPLY+=("$name")
    done <<< "$names"
}
complete -F _toolgate_names -o bashdefault -o default toolgate
"#;

const ZSH: &str = r#"_toolgate() {
    local -a names
    names=("${(@f)$($words[1] __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n $names[1] ]]; then
        compadd -a names
    else
        _toolgate_words "$@"
    fi
}

"#;
/// The end of the script for zsh, before which the function is inserted.
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_toolgate\" ]";

const FISH: &str = "complete -c toolgate -f -a '(toolgate __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'\n";

/// Adds the names to a script.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH}"),
        Shell::Fish => format!("{script}{FISH}"),
        Shell::Zsh => {
            let script = script.replacen("\n_toolgate() {", "\n_toolgate_words() {", 1);
            script.replacen(ZSH_END, &format!("{ZSH}{ZSH_END}"), 1)
        }
        _ => script.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_for_zsh_has_a_place_for_names() {
        let mut command = clap::Command::new("toolgate");
        let mut script = Vec::new();
        clap_complete::generate(Shell::Zsh, &mut command, "toolgate", &mut script);
        let script = with_names(Shell::Zsh, &String::from_utf8_lossy(&script));
        assert!(script.contains("\n_toolgate_words() {") && script.contains("__complete"), "{script}");
        assert!(script.find("__complete") < script.find(ZSH_END), "{script}");
    }
}
