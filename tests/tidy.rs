//! Keeps the house in order: import directions, where dangerous things may live, and pages that speak of
//! what exists. The rules are the tables below; to change a rule, change its row and ARCHITECTURE.md.
//! Reads text only, so it is a good guard and no proof; nothing of the product is run here.

use std::fs;
use std::path::{Path, PathBuf};

/// Module of `src/`, and what of the crate it may import beside itself and `telemetry`.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("wire", &["model"]),
    ("seal", &["model"]),
    ("store", &["model", "seal"]),
    ("upstream", &["model", "wire"]),
    ("gateway", &["model", "wire", "store", "upstream"]),
    ("mcp", &["gateway", "model", "wire", "seal"]),
    ("http", &["gateway", "model", "wire", "seal"]),
    ("routes", &["http", "mcp"]),
    ("cli", &["config", "app", "http::api", "model::import"]),
    ("config", &["model"]),
    ("telemetry", &["model"]),
];

/// Modules that wire the others together and may import anything.
const WIRING: &[&str] = &["lib", "main", "app"];

/// Crates that a module must not name.
const FOREIGN: &[(&str, &[&str])] = &[
    ("model", &["tokio", "axum", "hyper", "sqlx"]),
    ("wire", &["tokio", "axum", "hyper", "sqlx"]),
    ("seal", &["tokio", "axum", "hyper", "sqlx"]),
    ("gateway", &["axum"]),
];

/// Words of code, and the only places (files, or folders with a `/`) where each may stand.
const CONFINED: &[(&str, &[&str])] = &[
    ("sqlx::", &["src/store/", "src/store.rs"]),
    ("env::var", &["src/config.rs"]),
    ("env::vars", &["src/config.rs"]),
    ("env::var_os", &["src/config.rs"]),
    ("env::vars_os", &["src/config.rs"]),
    ("StatusCode", &["src/http/", "src/http.rs", "src/mcp/reply.rs"]),
    ("unsafe", &["src/upstream/stdio/", "src/cli/signals.rs"]),
    // A task that nobody owns cannot be stopped; the command line ends with its process.
    ("tokio::spawn", &["src/cli/"]),
];

const LONGEST_FILE: usize = 600;

/// In two halves, so that this file does not break its own rule.
const POSTPONED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

const SOURCE_FOLDERS: &[&str] = &["src", "tests", "xtask", "fuzz", "bench", "chaos", "migrations", "web"];
const SOURCE_ENDINGS: &[&str] = &["rs", "sql", "ts", "js", "svelte", "css", "py", "sh"];
const NOT_OURS: &[&str] = &["target", "node_modules", "dist", "corpus", "artifacts"];

/// How a path of the repository begins when a page names it in backticks.
const PATH_BEGINNINGS: &[&str] =
    &["src/", "tests/", "docs/", "xtask/", "web/", "bench/", "chaos/", "migrations/", "fuzz/"];

#[test]
fn imports_follow_the_layers() {
    let mut problems = Vec::new();
    for (path, code) in product_code() {
        let module = module_of(&path);
        if WIRING.contains(&module.as_str()) {
            continue;
        }
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            problems.push(format!("{path}: module `{module}` has no row in LAYERS"));
            continue;
        };
        for (line, import) in imports(&code) {
            let within = |layer: &str| import == layer || import.starts_with(&format!("{layer}::"));
            if !within(&module) && !within("telemetry") && !allowed.iter().any(|layer| within(layer)) {
                problems.push(format!("{path}:{line}: `{module}` must not import `crate::{import}`"));
            }
        }
        for foreign in FOREIGN.iter().filter(|(name, _)| *name == module).flat_map(|(_, crates)| *crates) {
            for line in lines_with(&code, &format!("{foreign}::")) {
                problems.push(format!("{path}:{line}: `{module}` must not use the crate `{foreign}`"));
            }
        }
    }
    report(problems);
}

#[test]
fn dangerous_things_stay_where_they_belong() {
    let mut problems = Vec::new();
    for (path, code) in product_code() {
        for (word, places) in CONFINED {
            let home =
                places.iter().any(|place| path == *place || place.ends_with('/') && path.starts_with(place));
            for line in lines_with(&code, word).into_iter().filter(|_| !home) {
                problems.push(format!("{path}:{line}: `{word}` is only for {}", places.join(", ")));
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
        if rust && path.starts_with("src/") && !text.starts_with("//!") {
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
fn the_architecture_page_names_every_module() {
    let Ok(page) = fs::read_to_string(root().join("ARCHITECTURE.md")) else { return };
    let mut modules: Vec<String> = product_code().iter().map(|(path, _)| module_of(path)).collect();
    modules.dedup();
    modules.retain(|module| {
        module != "lib"
            && !page.contains(&format!("`{module}`"))
            && lines_with(&page, &format!("src/{module}")).is_empty()
    });
    report(modules.iter().map(|module| format!("ARCHITECTURE.md does not name `src/{module}`")).collect());
}

#[test]
fn pages_speak_of_what_exists() {
    let mut problems = Vec::new();
    for (path, text) in pages() {
        let folder = root().join(&path).parent().map(Path::to_path_buf).unwrap_or_default();
        for (number, line) in prose(&text) {
            for named in line.split('`').skip(1).step_by(2).filter_map(repository_path) {
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
                    problems.push(format!("{path}:{number}: the link ({link}) leads nowhere"));
                } else if !anchor.is_empty() && !anchors(&target).iter().any(|known| known == anchor) {
                    problems.push(format!("{path}:{number}: ({link}) names a heading that is not there"));
                }
            }
        }
    }
    report(problems);
}

#[test]
fn comments_literals_and_test_code_are_not_code() {
    let text = r##"let a = "x crate::a /*"; // crate::b
/* crate::c /* nested */ */ let q = '"'; fn f<'a>() { crate::kept::x(br#"crate::d""#) }
#[cfg(test)]
mod tests { use crate::e; fn g() { if true {} } }
#[cfg(test)]
use crate::f;
use crate::last;"##;
    let found = imports(&code_of(text));
    assert_eq!(found, [(2, "kept::x".to_owned()), (7, "last".to_owned())]);
}

#[test]
fn grouped_imports_are_unfolded() {
    let found = imports("pub use crate::{a, b::{self, c as d}, e::*};\nmycrate::x; crate::f::G<T>");
    let paths: Vec<&str> = found.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, ["a", "b::self", "b::c", "e", "f::G"]);
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

/// Every file of `src/` with its code alone. A file `tests.rs` is a test module kept apart.
fn product_code() -> Vec<(String, String)> {
    let ours = |path: &str| path.starts_with("src/") && path.ends_with(".rs") && !path.ends_with("/tests.rs");
    sources().into_iter().filter(|(path, _)| ours(path)).map(|(path, text)| (path, code_of(&text))).collect()
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

/// `src/http/api/x.rs` and `src/http.rs` are both of the module `http`.
fn module_of(path: &str) -> String {
    let inside = path.trim_start_matches("src/");
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs").to_owned()
}

/// The text with comments, literals and test items blanked; lines keep their numbers.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let length = uncoded(&text[at..]);
        blank(&mut code[at..at + length]);
        at += length.max(text[at..].chars().next().map_or(1, char::len_utf8));
    }
    for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
        while let Some(start) = find(&code, attribute.as_bytes()) {
            let end = item_end(&code, start + attribute.len());
            blank(&mut code[start..end]);
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Length of the comment or literal that begins here, or 0.
fn uncoded(rest: &str) -> usize {
    let to = |end: Option<usize>| end.unwrap_or(rest.len());
    if rest.starts_with("//") {
        return to(rest.find('\n'));
    }
    if rest.starts_with("/*") {
        let (mut depth, mut at) = (1, 2);
        while depth > 0 {
            let Some(next) = ["/*", "*/"].iter().filter_map(|mark| rest[at..].find(mark)).min() else {
                return rest.len();
            };
            if rest[at + next..].starts_with("/*") {
                depth += 1
            } else {
                depth -= 1
            }
            at += next + 2;
        }
        return at;
    }
    if let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            return to(raw[hashes + 1..].find(&close).map(|end| hashes + 2 + end + close.len()));
        }
    }
    if rest.starts_with('"') {
        let mut escaped = false;
        let closes = |byte: u8| {
            let close = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            close
        };
        return to(rest.bytes().skip(1).position(closes).map(|end| end + 2));
    }
    if rest.starts_with("'\\") {
        return to(rest.get(3..).and_then(|tail| tail.find('\'')).map(|end| end + 4));
    }
    // A lifetime has no closing quote after its first character.
    let mut after = rest.char_indices().skip(2);
    if rest.starts_with('\'') && after.next().is_some_and(|(_, next)| next == '\'') {
        return to(after.next().map(|(end, _)| end));
    }
    0
}

/// Where the item after an attribute ends: at its `;`, or at the brace that closes it.
fn item_end(code: &[u8], from: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

fn find(code: &[u8], word: &[u8]) -> Option<usize> {
    code.windows(word.len()).position(|window| window == word)
}

/// Lines on which the word stands alone, not as a part of a longer name.
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

/// Every path after `crate::` with its line, groups unfolded.
fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let mut paths = Vec::new();
        unfold(&code[at + word.len()..], "", &mut paths);
        found.extend(paths.into_iter().map(|path| (line, path)));
    }
    found
}

/// Reads one path or group; returns what follows it.
fn unfold<'a>(text: &'a str, prefix: &str, paths: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        while !rest.trim_start().starts_with('}') && !rest.trim().is_empty() {
            rest = unfold(rest, prefix, paths);
            rest = rest[rest.find([',', '}']).unwrap_or(rest.len())..].trim_start_matches(',');
        }
        return rest.trim_start().get(1..).unwrap_or_default();
    }
    let end = text.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(text.len());
    let path = if prefix.is_empty() { text[..end].to_owned() } else { format!("{prefix}::{}", &text[..end]) };
    match text[end..].strip_prefix("::") {
        Some(rest) if rest.starts_with(|next: char| next == '{' || next == '_' || next.is_alphabetic()) => {
            unfold(rest, &path, paths)
        }
        _ => {
            paths.push(path);
            &text[end..]
        }
    }
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

/// The checkable part of a path in backticks: placeholders, line numbers and item names are left off.
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

/// The headings of a page as the anchors that GitHub makes of them.
fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let slug = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|next| next.is_alphanumeric() || matches!(next, ' ' | '-' | '_'));
        kept.map(|next| if next == ' ' { '-' } else { next }).collect()
    };
    prose(&text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| slug(line)).collect()
}
