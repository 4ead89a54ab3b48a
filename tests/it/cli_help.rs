//! Every help text of the command line, and its errors for typos.

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use tokio::process::Command;

use crate::support::cli::{Cli, finish};
use crate::support::snapshot;

/// The names under `Commands:` of a help text.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| line.starts_with("  "));
    let names =
        listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The help texts of all commands, each after the command that shows it.
async fn all_help(cli: &Cli) -> String {
    let (mut page, mut waiting) = (String::new(), vec![Vec::new(), vec!["read".to_owned()]]);
    while let Some(path) = waiting.pop() {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = cli.ok(&arguments).await;
        assert!(help.contains("\nExample"), "{path:?} shows no example:\n{help}");
        let too_long = help.lines().find(|line| line.chars().count() > 120);
        assert_eq!(too_long, None, "{path:?} has a line that no terminal shows whole");
        writeln!(page, "$ toolgate {}\n{help}", arguments.join(" ")).unwrap();
        let inner = commands(&help).into_iter().map(|name| [path.clone(), vec![name]].concat());
        waiting.extend(inner.collect::<Vec<_>>().into_iter().rev());
    }
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_help_text_with_examples() {
    snapshot::compare("help.txt", &all_help(&Cli::new("127.0.0.1:1")).await);
}

/// The commands under `Example:` or `Examples:` of all help texts.
fn examples(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line.starts_with("Example")) {
        found.extend(lines.by_ref().take_while(|line| line.starts_with("  ")).map(str::trim));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_is_a_command_that_a_shell_and_the_program_accept() {
    let cli = Cli::new("127.0.0.1:1");
    // Notes how each command ends, since the shell tells only how the last one did. A gateway would not end.
    let program = "#!/bin/sh\n[ \"$1\" = start ] && set -- \"$@\" --help\n\"$PROGRAM\" \"$@\"\ncode=$?\necho $code >> \"$HOME/codes\"\nexit $code\n";
    cli.write("toolgate", program);
    let path = cli.home.path().join("toolgate");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(cli.home.path().to_owned()).chain(std::env::split_paths(&others));
    let folders = std::env::join_paths(folders).unwrap();
    cli.write("token.txt", "a-token");
    let page = all_help(&cli).await;
    let examples = examples(&page);
    assert!(examples.len() > 100, "{examples:?}");
    for example in examples {
        cli.write("codes", "");
        // Output stays in the home folder, and no other machine is asked.
        let line = example.split(" > ").next().unwrap_or_default();
        let line = line.split(" >> ").next().unwrap_or_default();
        let line = line.replace("https://gate.example.com", "http://127.0.0.1:1");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).current_dir(cli.home.path()).env_clear().kill_on_drop(true);
        shell.env("PATH", &folders).env("HOME", cli.home.path()).env("TOOLGATE_REGISTRY", &cli.registry);
        shell
            .env("PROGRAM", env!("CARGO_BIN_EXE_toolgate"))
            .env("TOKEN", "a-token")
            .env("NEW_TOKEN", "a-token");
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = finish(shell.spawn().unwrap()).await;
        let codes = cli.read("codes");
        let is_accepted = !codes.is_empty() && codes.lines().all(|code| code == "0" || code == "1");
        assert!(is_accepted, "{example}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_command_is_wrong_usage_and_gets_a_tip() {
    let cli = Cli::new("127.0.0.1:1");
    for (arguments, tip) in [
        (&["lst", "tools"][..], "'list'"),
        (&["list", "tols"], "'tools'"),
        (&["list", "tools", "--sever", "x"], "'--server'"),
        (&["create", "grup"], "'group'"),
        (&["--output", "yaml", "list", "tools"], "table, json"),
        (&["completions", "bsh"], "'bash'"),
    ] {
        let ended = cli.run(arguments).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(ended.stderr.contains(tip), "{arguments:?}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_do_not_fit_together_are_wrong_usage() {
    let cli = Cli::new("127.0.0.1:1");
    for arguments in [
        &["register"][..],
        &["register", "--name", "a"],
        &["register", "--name", "a", "--url", "http://h/", "--", "npx"],
        &["register", "--name", "a", "--url", "http://h/", "--header", "nothing"],
        &["register", "--name", "a", "--env", "A", "--", "npx"],
        &["register", "--name", "a", "--url", "http://h/", "--transport", "pigeon"],
        &["list", "tools", "--server", "a", "--group", "b"],
        &["invoke"],
        &["invoke", "a__b", "--input", "{"],
        &["invoke", "a__b", "--input", "[1]"],
        &["get", "prompt", "a__b", "--arg", "novalue"],
        &["enable"],
        &["create", "group"],
        &["create", "mcp-client"],
        &["create", "user"],
        &["create", "user", "a", "--role", "king"],
        &["update", "server", "a"],
        &["update", "server", "a", "--env", "A=1", "--unset-env", "A"],
        &["update", "server", "a", "--header", "X-Key: 1", "--unset-header", "x-key"],
        &["register", "--name", "a", "--url", "http://h/", "--unset-header", "x-key"],
        &["update", "group", "a"],
        &["update", "mcp-client", "a"],
        &["update", "user", "a"],
        &["import"],
        &["login"],
        &["--registry", "localhost:8080", "list", "servers"],
        &["--registry", "ftp://h", "list", "servers"],
    ] {
        let ended = cli.run(arguments).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shells_get_completions_for_every_command() {
    let cli = Cli::new("127.0.0.1:1");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = cli.ok(&["completions", shell]).await;
        for word in ["init-server", "mcp-client", "with-secrets", "reset-admin"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}
