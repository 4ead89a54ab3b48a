//! Checks of the repository's text: which crate may depend on which, the form of sources, that the map in
//! ARCHITECTURE.md is complete, and that files and links named in pages exist. The rules are the tables below; to change
//! a rule, change its row and CONTRIBUTING.md, "Where things go". Rules about calls in code are in `clippy.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate under `crates/`, and which of the others it may depend on; CONTRIBUTING.md has the same table. The compiler
/// enforces the rest: a crate can import only what its manifest names.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("wire", &[]),
    ("seal", &[]),
    ("budget", &[]),
    ("pages", &[]),
    ("telemetry", &[]),
    ("store", &["model", "seal"]),
    ("upstream", &["budget", "model", "wire"]),
    ("gateway", &["budget", "model", "pages", "store", "telemetry", "upstream", "wire"]),
    ("mcp", &["budget", "gateway", "model", "seal", "wire"]),
];

/// Third-party crates, and the only crates under `crates/` that may depend on each.
const CONFINED: &[(&str, &[&str])] = &[
    ("sqlx", &["store"]),
    ("tokio", &["store", "upstream", "gateway", "mcp"]),
    ("hyper", &["mcp"]),
    ("httparse", &["upstream"]),
    ("axum", &[]),
    ("reqwest", &["upstream"]),
    ("rmcp", &["upstream"]),
    ("utoipa", &[]),
];

/// Crates without I/O, and the modules of the standard library that they must not name. CONFINED keeps the async runtime
/// out of them.
const WITHOUT_IO: &[&str] = &["model", "wire", "seal", "budget"];
const IO_MODULES: &[&str] = &["std::fs", "std::io", "std::net", "std::os", "std::process"];

const LONGEST_FILE: usize = 600;

/// In two halves, so that this file does not break its own rule.
const POSTPONED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

const SOURCE_FOLDERS: &[&str] =
    &["src", "crates", "tests", "xtask", "fuzz", "bench", "chaos", "migrations", "web"];
const PRODUCT_FOLDERS: &[&str] = &["src/", "crates/"];
const SOURCE_ENDINGS: &[&str] = &["rs", "sql", "ts", "js", "svelte", "css", "py", "sh"];
const NOT_OURS: &[&str] = &["target", "node_modules", "dist", "corpus", "artifacts"];

/// The prefixes of repository paths that pages name in backticks.
const PATH_BEGINNINGS: &[&str] = &[
    "src/",
    "crates/",
    "tests/",
    "docs/",
    "deploy/",
    "xtask/",
    "web/",
    "bench/",
    "chaos/",
    "migrations/",
    "fuzz/",
    ".ci/",
];

#[test]
fn dependencies_follow_the_layers() {
    let mut problems = Vec::new();
    for (layer, dependencies) in manifests() {
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
            problems.push(format!("crates/{layer} has no row in LAYERS"));
            continue;
        };
        for dependency in dependencies {
            let is_layer = LAYERS.iter().any(|(name, _)| *name == dependency);
            if is_layer && !allowed.contains(&dependency.as_str()) {
                problems.push(format!("crates/{layer} must not depend on `{dependency}`"));
            }
            let confined = CONFINED.iter().find(|(name, _)| *name == dependency);
            if confined.is_some_and(|(_, homes)| !homes.contains(&layer.as_str())) {
                problems.push(format!("crates/{layer} must not depend on the crate `{dependency}`"));
            }
        }
    }
    report(problems);
}

#[test]
fn the_contributing_page_has_the_same_layers() {
    let page = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md exists");
    let rows = page.lines().skip_while(|line| *line != "| crate | may depend on |").skip(2);
    let mut of_page = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<Vec<&str>> = row.split('|').map(|cell| code_spans(cell).collect()).collect();
        let [_, crates, allowed, _] = cells.as_slice() else { panic!("a row has not two cells: {row}") };
        for name in crates {
            of_page.insert(*name, allowed.iter().copied().collect::<BTreeSet<_>>());
        }
    }
    // The package at the root may depend on all of them.
    assert!(of_page.remove("toolgate").is_some_and(|allowed| allowed.is_empty()));
    of_page.remove("src/");
    let layers = LAYERS.iter().map(|(name, allowed)| (*name, allowed.iter().copied().collect()));
    assert_eq!(of_page, layers.collect::<BTreeMap<_, BTreeSet<_>>>());
}

#[test]
fn crates_without_io_name_no_module_for_it() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        if !WITHOUT_IO.iter().any(|name| path.starts_with(&format!("crates/{name}/"))) {
            continue;
        }
        // An import in braces would hide the name of the module.
        for module in IO_MODULES.iter().chain(&["use std::{"]) {
            if text.contains(module) {
                problems.push(format!("{path}: names `{module}`"));
            }
        }
    }
    report(problems);
}

#[test]
fn sources_are_short_introduced_and_finished() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let rust = path.ends_with(".rs");
        let lines = text.lines().count();
        if rust && lines > LONGEST_FILE {
            problems.push(format!("{path}: {lines} lines; split it by topic before {LONGEST_FILE}"));
        }
        if rust && PRODUCT_FOLDERS.iter().any(|folder| path.starts_with(folder)) && !text.starts_with("//!") {
            problems.push(format!("{path}: opens without a `//!` comment that says what it is for"));
        }
        for word in POSTPONED {
            for line in lines_with(&text, word) {
                problems.push(format!("{path}:{line}: {word}; do it, or open an issue"));
            }
        }
    }
    report(problems);
}

#[test]
fn the_architecture_page_names_every_folder_crate_and_module() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md exists");
    let mut places: Vec<String> = manifests().into_iter().map(|(name, _)| format!("crates/{name}")).collect();
    for folder in ["src", "tests"] {
        let inside = fs::read_dir(root().join(folder)).expect("a folder can be listed").flatten();
        let inside = inside.filter(|entry| !is_foreign(entry));
        places.extend(inside.map(|entry| format!("{folder}/{}", name_of(&entry).trim_end_matches(".rs"))));
    }
    let top = fs::read_dir(root()).expect("the repository can be listed").flatten();
    let top = top.filter(|entry| entry.path().is_dir() && !is_foreign(entry)).map(|entry| name_of(&entry));
    // The rows of these are about what is in them.
    let top = top.filter(|name| !["crates", "src", "tests"].contains(&name.as_str()));
    places.extend(top.map(|name| format!("{name}/")));
    places.retain(|place| place != "src/lib" && lines_with(&page, place).is_empty());
    report(places.iter().map(|place| format!("ARCHITECTURE.md does not name `{place}`")).collect());
}

#[test]
fn files_and_links_named_in_pages_exist() {
    let mut problems = Vec::new();
    for (path, text) in pages() {
        let folder = root().join(&path).parent().map(Path::to_path_buf).unwrap_or_default();
        for (number, line) in prose(&text) {
            for named in code_spans(line).filter_map(repository_path) {
                if !root().join(&named).exists() {
                    problems.push(format!("{path}:{number}: there is no `{named}`"));
                }
            }
            for link in
                links(line).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
            {
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if file.is_empty() { root().join(&path) } else { folder.join(file) };
                if !target.exists() {
                    problems.push(format!("{path}:{number}: the target of the link ({link}) does not exist"));
                } else if !anchor.is_empty() && !anchors(&target).iter().any(|known| known == anchor) {
                    problems.push(format!("{path}:{number}: ({link}) names a heading that is not there"));
                }
            }
        }
    }
    report(problems);
}

#[test]
fn paths_and_links_are_found_in_prose() {
    assert_eq!(repository_path("src/http/api/<noun>.rs").as_deref(), Some("src/http/api"));
    assert_eq!(repository_path("src/seal.rs:12").as_deref(), Some("src/seal.rs"));
    assert_eq!(repository_path("src/seal.rs::open"), Some("src/seal.rs".to_owned()));
    assert_eq!(repository_path("srcs/seal.rs"), None);
    assert_eq!(links("see [a](b.md#c) and ![d](e.png \"title\")"), ["b.md#c", "e.png"]);
}

fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The name of every crate under `crates/`, with what its product code depends on.
fn manifests() -> Vec<(String, Vec<String>)> {
    let folders = fs::read_dir(root().join("crates")).expect("the crates can be listed").flatten();
    let mut found: Vec<_> =
        folders.map(|folder| (name_of(&folder), dependencies_of(&folder.path()))).collect();
    found.sort();
    found
}

fn name_of(entry: &fs::DirEntry) -> String {
    entry.file_name().to_string_lossy().into_owned()
}

/// Whether an entry belongs to a tool: what git ignores, editors, git itself.
fn is_foreign(entry: &fs::DirEntry) -> bool {
    let name = name_of(entry);
    name.starts_with('.') || NOT_OURS.contains(&name.as_str())
}

/// The names under `[dependencies]`.
fn dependencies_of(folder: &Path) -> Vec<String> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a crate has a manifest");
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| Some(line.split(['.', ' ']).next()?.to_owned())).collect()
}

fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in SOURCE_FOLDERS {
        collect(&root().join(folder), SOURCE_ENDINGS, &mut found);
    }
    texts(found)
}

fn pages() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root()).expect("the repository can be listed").flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "md") {
            found.push(entry.path());
        }
    }
    collect(&root().join("docs"), &["md"], &mut found);
    texts(found)
}

fn collect(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let ending = path.extension().unwrap_or_default();
        if path.is_dir() && !NOT_OURS.iter().any(|name| entry.file_name() == *name) {
            collect(&path, endings, found);
        } else if path.is_file() && endings.iter().any(|known| ending == *known) {
            found.push(path);
        }
    }
}

fn texts(mut paths: Vec<PathBuf>) -> Vec<(String, String)> {
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/");
        let text = fs::read(path).unwrap_or_else(|error| panic!("{name} cannot be read: {error}"));
        (name, String::from_utf8_lossy(&text).into_owned())
    };
    paths.iter().map(read).collect()
}

/// Lines that contain the word as a whole, not as a part of a longer name.
fn lines_with(text: &str, word: &str) -> Vec<usize> {
    let part = |next: Option<char>| next.is_some_and(|next| next.is_alphanumeric() || next == '_');
    let open_ended = word.ends_with(':');
    let alone = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            !part(line[..at].chars().next_back())
                && (open_ended || !part(line[at + word.len()..].chars().next()))
        })
    };
    text.lines().enumerate().filter(|(_, line)| alone(line)).map(|(index, _)| index + 1).collect()
}

/// Lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// What a line has in backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The checkable part of a path in backticks, without placeholders, line numbers and item names.
fn repository_path(span: &str) -> Option<String> {
    if !PATH_BEGINNINGS.iter().any(|beginning| span.starts_with(beginning)) || span.contains(' ') {
        return None;
    }
    let plain = span.split(':').next().unwrap_or(span);
    let known: Vec<&str> = plain.split('/').take_while(|part| !part.contains(['<', '*', '{', '…'])).collect();
    Some(known.join("/"))
}

fn links(line: &str) -> Vec<&str> {
    let target = |(at, _): (usize, &str)| {
        let rest = &line[at + 2..];
        rest[..rest.find(')')?].split_whitespace().next()
    };
    line.match_indices("](").filter_map(target).collect()
}

/// The headings of a page as GitHub's anchors.
fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let slug = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|next| next.is_alphanumeric() || matches!(next, ' ' | '-' | '_'));
        kept.map(|next| if next == ' ' { '-' } else { next }).collect()
    };
    prose(&text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| slug(line)).collect()
}
