//! The package that a command starts, for people who look for it: `npx -y @scope/server` starts `@scope/server`.

/// Flags of launchers that are followed by a value.
const WITH_VALUE: [&str; 19] = [
    "--with",
    "--python",
    "--env",
    "--env-file",
    "--volume",
    "--publish",
    "--name",
    "--network",
    "--mount",
    "--user",
    "--workdir",
    "--entrypoint",
    "--platform",
    "--directory",
    "-e",
    "-v",
    "-w",
    "-u",
    "-c",
];

/// The package, image, module or script that a command starts; `None` if the command is not a known launcher.
pub fn package_of<'a>(command: &str, args: &'a [String]) -> Option<&'a str> {
    let program = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let program = program.strip_suffix(".exe").or_else(|| program.strip_suffix(".cmd")).unwrap_or(program);
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match (program, words.as_slice()) {
        ("npx" | "bunx" | "pnpx" | "uvx", rest)
        | ("npm", ["exec" | "x", rest @ ..])
        | ("pnpm" | "yarn", ["dlx", rest @ ..])
        | ("pipx", ["run", rest @ ..])
        | ("uv", ["tool", "run", rest @ ..])
        | ("uv" | "deno" | "bun", ["run", rest @ ..])
        | ("docker" | "podman", ["run", rest @ ..]) => {
            named(rest, &["--package", "--from"]).or_else(|| first(rest))
        }
        ("node" | "deno" | "bun", rest) => first(rest),
        (python, rest) if python.starts_with("python") => named(rest, &["-m"]).or_else(|| first(rest)),
        _ => None,
    }
}

/// The value of one of these flags.
fn named<'a>(words: &[&'a str], flags: &[&str]) -> Option<&'a str> {
    words.iter().enumerate().find_map(|(at, word)| match word.split_once('=') {
        Some((flag, value)) if flags.contains(&flag) => Some(value),
        Some(_) | None if flags.contains(word) => words.get(at + 1).copied(),
        Some(_) | None => None,
    })
}

/// The first word that is neither a flag nor the value of one.
fn first<'a>(words: &[&'a str]) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_of_a_usual_command_is_found() {
        for (line, package) in [
            ("npx -y @modelcontextprotocol/server-everything", "@modelcontextprotocol/server-everything"),
            ("/usr/bin/npx --package=@a/b server --flag", "@a/b"),
            ("npx.cmd -y pkg@1.2", "pkg@1.2"),
            ("uvx mcp-server-time --local-timezone UTC", "mcp-server-time"),
            ("uvx --python 3.12 --from git+https://h/x tool", "git+https://h/x"),
            ("uv run --directory /srv server.py", "server.py"),
            (
                "docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server",
                "ghcr.io/github/github-mcp-server",
            ),
            ("python3.11 -m mcp_server", "mcp_server"),
            ("node /srv/index.js", "/srv/index.js"),
        ] {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(package_of(&words[0], &words[1..]), Some(package), "{line}");
        }
        assert_eq!(package_of("/opt/server", &["--stdio".to_owned()]), None);
        assert_eq!(package_of("npx", &[]), None);
    }
}
