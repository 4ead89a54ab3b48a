//! Reads a URI template from the first line and a URI from the rest. Promises: on short inputs the matcher agrees with a
//! slow and simple one, no input takes long, and qualified URIs read back.

use std::collections::BTreeSet;

use model::ServerName;
use model::uri::{ResourceUri, has_scheme, qualify, qualify_for_agents, template_matches};

pub const DICTIONARY: &[&str] = &[
    "{a}",
    "{+path}",
    "{#frag}",
    "{.ext}",
    "{/seg*}",
    "{;p}",
    "{?q}",
    "{?q,lang}",
    "{&more}",
    "{?any*}",
    "{a:3}",
    "{,}",
    "{}",
    "{",
    "}",
    "?q=",
    "&lang=",
    ";p=1",
    "#",
    "/",
    ".",
    "file:///",
    "x://",
    "toolgate://res/",
    "aaaaaaaa",
    "?q=?q=?q=",
    "\n",
    "é",
];

/// Maximum length of a template or URI for the slow matcher.
const SHORT: usize = 256;

pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (template, uri) = text.split_once('\n').unwrap_or((&text, ""));
    let matches = template_matches(template, uri);
    if template.len() <= SHORT && uri.len() <= SHORT {
        assert_eq!(matches, slowly_matches(template, uri.as_bytes()));
    }
    if !template.contains(['{', '}']) {
        assert_eq!(matches, template == uri, "a template without expressions is a URI");
    }
    let _ = has_scheme(uri);
    match ResourceUri::parse(uri) {
        Ok(ResourceUri::Qualified { server, uri: inner }) => {
            assert!(
                [qualify(&server, &inner), qualify_for_agents(&server, &inner)]
                    .iter()
                    .any(|form| form == uri)
            );
        }
        Ok(ResourceUri::Upstream(inner)) => assert_eq!(inner, uri),
        Err(problem) => assert!(!problem.is_empty()),
    }
    let server = ServerName::parse("a").expect("a name");
    if !uri.is_empty() {
        let qualified = ResourceUri::parse(&qualify(&server, uri));
        assert_eq!(qualified, Ok(ResourceUri::Qualified { server, uri: uri.to_owned() }));
    }
}

/// The slow matcher, a direct definition of templates: computes the set of positions where each part may end.
fn slowly_matches(template: &str, uri: &[u8]) -> bool {
    let (mut ends, mut rest) = (BTreeSet::from([0]), template);
    while !rest.is_empty() {
        let next: BTreeSet<usize>;
        if let Some(expression) = rest.strip_prefix('{') {
            let Some((expression, after)) = expression.split_once('}') else { return false };
            next = ends.iter().flat_map(|from| expansions(expression, uri, *from)).collect();
            rest = after;
        } else {
            let (literal, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            let follows = |from: &&usize| uri[**from..].starts_with(literal.as_bytes());
            next = ends.iter().filter(follows).map(|from| from + literal.len()).collect();
            rest = after;
        }
        ends = next;
    }
    ends.contains(&uri.len())
}

fn expansions(expression: &str, uri: &[u8], from: usize) -> BTreeSet<usize> {
    let (first, stops, optional): (&[u8], &[u8], bool) = match expression.bytes().next() {
        Some(b'+') => (b"", b"", false),
        Some(b'#') => (b"#", b"", true),
        Some(b'.') => (b".", b"/?#", true),
        Some(b'/') => (b"/", b"?#", true),
        Some(operator @ (b';' | b'?' | b'&')) => return pairs(operator, &expression[1..], uri, from),
        _ => (b"", b"/?#", false),
    };
    let mut ends: BTreeSet<usize> = optional.then_some(from).into_iter().collect();
    if uri[from..].starts_with(first) {
        let begin = from + first.len();
        let longest = uri[begin..].iter().take_while(|byte| !stops.contains(byte)).count();
        ends.extend(begin + 1..=begin + longest);
    }
    ends
}

fn pairs(operator: u8, variables: &str, uri: &[u8], from: usize) -> BTreeSet<usize> {
    let (separator, stops): (u8, &[u8]) = if operator == b';' { (b';', b";/?#") } else { (b'&', b"&#") };
    let mut ends = BTreeSet::from([from]);
    let mut begins = vec![(from, operator)];
    while let Some((at, mark)) = begins.pop() {
        if uri.get(at) != Some(&mark) {
            continue;
        }
        let rest = &uri[at + 1..];
        let pair = &rest[..rest.iter().take_while(|byte| !stops.contains(byte)).count()];
        for variable in variables.split(',') {
            let name = variable.split(':').next().unwrap_or_default();
            let shortest = if name.ends_with('*') {
                1
            } else if name.contains([';', '?', '&']) {
                continue;
            } else if pair == name.as_bytes() {
                name.len()
            } else if pair.starts_with(name.as_bytes()) && pair[name.len()] == b'=' {
                name.len() + 1
            } else {
                continue;
            };
            for length in shortest..=pair.len() {
                if ends.insert(at + 1 + length) {
                    begins.push((at + 1 + length, separator));
                }
            }
        }
    }
    ends
}
