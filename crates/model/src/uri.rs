//! URIs of resources: the qualified form, which includes the server, and matching of URIs against templates.

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::prelude::Engine;

use super::ServerName;

const QUALIFIED: &str = "toolgate://res/";
const UI: &str = "ui:";
const UI_HOST: &str = ".toolgate/";

/// The unambiguous form of a URI: `toolgate://res/<server>/<base64url of the upstream URI>`.
pub fn qualify(server: &ServerName, uri: &str) -> String {
    format!("{QUALIFIED}{server}/{}", URL_SAFE_NO_PAD.encode(uri))
}

/// The qualified form for agents: that of a `ui:` URI, `ui://<server>.toolgate/<base64url>`, keeps the scheme, since
/// hosts show a user interface only from such a URI.
pub fn qualify_for_agents(server: &ServerName, uri: &str) -> String {
    match uri.starts_with(UI) {
        true => format!("{UI}//{server}{UI_HOST}{}", URL_SAFE_NO_PAD.encode(uri)),
        false => qualify(server, uri),
    }
}

/// A URI as a caller gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceUri {
    /// The URI as the upstream wrote it; any server may have it.
    Upstream(String),
    Qualified {
        server: ServerName,
        uri: String,
    },
}

impl ResourceUri {
    /// Parses a URI. The error is a sentence fragment that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix(QUALIFIED) else {
            return Ok(parse_ui(text).unwrap_or_else(|| Self::Upstream(text.to_owned())));
        };
        let malformed = || format!("is not a qualified URI of the form {QUALIFIED}<server>/<base64url>");
        let (server, encoded) = rest.split_once('/').ok_or_else(malformed)?;
        let server = ServerName::parse(server).map_err(|_| malformed())?;
        let uri = decode(encoded).filter(|uri| !uri.is_empty());
        Ok(Self::Qualified { server, uri: uri.ok_or_else(malformed)? })
    }
}

/// Parses the qualified form of a `ui:` URI. Anything else is a URI of a server, who may use such a host too.
fn parse_ui(text: &str) -> Option<ResourceUri> {
    let (server, encoded) = text.strip_prefix(UI)?.strip_prefix("//")?.split_once(UI_HOST)?;
    let uri = decode(encoded).filter(|uri| uri.starts_with(UI))?;
    Some(ResourceUri::Qualified { server: ServerName::parse(server).ok()?, uri })
}

fn decode(encoded: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok()
}

/// Whether the text begins like a URI: a scheme and a colon.
pub fn has_scheme(uri: &str) -> bool {
    let Some((scheme, _)) = uri.split_once(':') else { return false };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// Limit for the length of the URI times the parts of the template; real ones need a few hundred.
const MOST_STEPS: usize = 32 << 20;

/// Whether the URI template (RFC 6570) can expand to this URI. All possible lengths of a part are tried at once, so the
/// time is that of one pass over the URI per part. A template with so many parts that this would still be slow matches
/// nothing.
pub fn template_matches(template: &str, uri: &str) -> bool {
    let parts = template.bytes().filter(|byte| b"{,".contains(byte)).count() + 1;
    if parts.saturating_mul(uri.len()) > MOST_STEPS {
        return false;
    }
    let uri = uri.as_bytes();
    // The positions in the URI at which the parts read so far may end.
    let mut ends = vec![false; uri.len() + 1];
    ends[0] = true;
    let mut rest = template;
    while !rest.is_empty() {
        if let Some(expression) = rest.strip_prefix('{') {
            let Some((expression, after)) = expression.split_once('}') else { return false };
            ends = expand(expression, uri, &ends);
            rest = after;
        } else {
            let (literal, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
            ends = follow(literal.as_bytes(), uri, &ends);
            rest = after;
        }
    }
    ends[uri.len()]
}

/// Finds every occurrence of the literal, including overlapping ones, in one pass (Knuth-Morris-Pratt).
fn follow(literal: &[u8], uri: &[u8], ends: &[bool]) -> Vec<bool> {
    let mut next = vec![false; ends.len()];
    if literal.len() > uri.len() {
        return next;
    }
    // For each length of a match, the longest shorter match that ends at the same position.
    let mut shorter = vec![0; literal.len()];
    let mut matched = 0;
    for at in 1..literal.len() {
        matched = longer(literal, &shorter, matched, literal[at]);
        shorter[at] = matched;
    }
    matched = 0;
    for (at, byte) in uri.iter().enumerate() {
        matched = longer(literal, &shorter, matched, *byte);
        if matched == literal.len() {
            next[at + 1] = ends[at + 1 - matched];
            matched = shorter[matched - 1];
        }
    }
    next
}

/// The length of the match after one more byte.
fn longer(literal: &[u8], shorter: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && literal[matched] != byte {
        matched = shorter[matched - 1];
    }
    if literal[matched] == byte { matched + 1 } else { matched }
}

fn expand(expression: &str, uri: &[u8], ends: &[bool]) -> Vec<bool> {
    let operator = expression.bytes().next().unwrap_or_default();
    // The first byte of an expression, the bytes that it may contain, and whether it may be omitted.
    let (first, takes, optional): (Option<u8>, fn(u8) -> bool, bool) = match operator {
        b'+' => (None, |_| true, false),
        b'#' => (Some(b'#'), |_| true, true),
        b'.' => (Some(b'.'), |b| !b"/?#".contains(&b), true),
        b'/' => (Some(b'/'), |b| !b"?#".contains(&b), true),
        b';' | b'?' | b'&' => return expand_pairs(operator, &expression[1..], uri, ends),
        _ => (None, |b| !b"/?#".contains(&b), false),
    };
    let mut next = vec![false; ends.len()];
    // Whether a value that began earlier may continue here, and whether it has content yet.
    let (mut is_inside, mut has_content) = (false, false);
    for at in 0..ends.len() {
        next[at] = has_content || optional && ends[at];
        let Some(&byte) = uri.get(at) else { break };
        match first {
            None => {
                has_content = (is_inside || ends[at]) && takes(byte);
                is_inside = has_content;
            }
            Some(first) => {
                has_content = is_inside && takes(byte);
                is_inside = has_content || ends[at] && byte == first;
            }
        }
    }
    next
}

/// Expands the forms that include names: pairs of a variable's name and any value, in any order, or none at all. An
/// exploded variable has names of its own.
fn expand_pairs(operator: u8, variables: &str, uri: &[u8], ends: &[bool]) -> Vec<bool> {
    let (separator, stops): (u8, &[u8]) = match operator {
        b';' => (b';', b";/?#"),
        _ => (b'&', b"&#"),
    };
    // A name never contains the bytes that pairs begin with, so no byte of the URI is compared with it twice.
    let is_name = |name: &&str| name.ends_with('*') || !name.contains([';', '?', '&']);
    let names = variables.split(',').map(|variable| variable.split(':').next().unwrap_or_default());
    let names: Vec<&str> = names.filter(is_name).collect();
    let mut next = ends.to_vec();
    // A pair may end anywhere from the position where it is complete (known when its start is read) to the next stop.
    let mut completes = vec![false; ends.len()];
    let (mut is_complete, mut stop) = (false, 0);
    for at in 0..=uri.len() {
        // A pair that was complete before the last stop has ended there; the position of the stop itself is still an
        // end.
        is_complete = completes[at] || is_complete && !(at > 0 && stops.contains(&uri[at - 1]));
        next[at] |= is_complete;
        let Some(&byte) = uri.get(at) else { break };
        if !(ends[at] && byte == operator || is_complete && byte == separator) {
            continue;
        }
        let begin = at + 1;
        if stop < begin {
            let length = uri[begin..].iter().position(|byte| stops.contains(byte));
            stop = length.map_or(uri.len(), |length| begin + length);
        }
        if let Some(shortest) = names.iter().filter_map(|name| shortest_pair(name, &uri[begin..stop])).min() {
            completes[begin + shortest] = true;
        }
    }
    next
}

/// The shortest length at which the pair belongs to this variable.
fn shortest_pair(name: &str, pair: &[u8]) -> Option<usize> {
    match (name.strip_suffix('*'), pair.strip_prefix(name.as_bytes())) {
        (Some(_), _) => (!pair.is_empty()).then_some(1),
        (None, Some([])) => Some(name.len()),
        (None, Some([b'=', ..])) => Some(name.len() + 1),
        (None, Some(_) | None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qualified_uri_reads_back() {
        let server = ServerName::parse("git-hub").unwrap();
        for uri in ["file:///a b", "ui://x/ü", "https://h/?q=1#f"] {
            let qualified = qualify(&server, uri);
            let expected = ResourceUri::Qualified { server: server.clone(), uri: uri.into() };
            assert_eq!(ResourceUri::parse(&qualified).unwrap(), expected);
        }
        for bad in [
            "toolgate://res/",
            "toolgate://res/a",
            "toolgate://res/a/",
            "toolgate://res/a/=",
            "toolgate://res/a__b/eA",
        ] {
            assert!(ResourceUri::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(ResourceUri::parse("file:///a").unwrap(), ResourceUri::Upstream("file:///a".into()));
    }

    #[test]
    fn agents_see_user_interfaces_under_their_scheme() {
        let server = ServerName::parse("my-server").unwrap();
        for (uri, qualified) in [
            ("ui://app/main.html", "ui://my-server.toolgate/dWk6Ly9hcHAvbWFpbi5odG1s"),
            ("file:///a", "toolgate://res/my-server/ZmlsZTovLy9h"),
        ] {
            assert_eq!(qualify_for_agents(&server, uri), qualified);
            let expected = ResourceUri::Qualified { server: server.clone(), uri: uri.to_owned() };
            assert_eq!(ResourceUri::parse(qualified).unwrap(), expected);
        }
        // URIs of servers that only look similar.
        for own in
            ["ui://a.toolgate/view.html", "ui://a__b.toolgate/dWk6YQ", "ui://a.toolgate/eDovLzE", "ui://app"]
        {
            assert_eq!(ResourceUri::parse(own).unwrap(), ResourceUri::Upstream(own.to_owned()));
        }
    }

    #[test]
    fn templates_match_what_they_can_make() {
        for (template, uri) in [
            ("file:///{name}", "file:///a.txt"),
            ("file:///{+path}", "file:///a/b/c.txt"),
            ("demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/text/12"),
            ("db://{schema}/{table}/rows", "db://public/users/rows"),
            ("x://search{?q,lang}", "x://search?q=a&lang=b"),
            ("x://search{?q,lang}", "x://search"),
            ("x://search{?q,lang}", "x://search?lang=b&q"),
            ("x://search{?q}-end", "x://search?q=a-end"),
            ("x://search{?any*}", "x://search?a=1&b=2"),
            ("x://a{;p,q:3}{?r}", "x://a;q=1;p?r=2"),
            ("x://a{/path*}", "x://a/b/c"),
            ("x://{a}-{b}", "x://1-2-3"),
        ] {
            assert!(template_matches(template, uri), "{template} {uri}");
        }
        for (template, uri) in [
            ("file:///{name}", "file:///a/b.txt"),
            ("file:///{name}", "file:///"),
            ("db://{schema}/rows", "db://public/users/rows"),
            ("x://search{?q,lang}", "x://search?id=1"),
            ("x://search{?q,lang}", "x://search?q=1&id=1"),
            ("x://search{?q}", "x://search?query=1"),
            ("x://{unclosed", "x://a"),
            ("x://a", "x://ab"),
            ("", "x://a"),
        ] {
            assert!(!template_matches(template, uri), "{template} {uri}");
        }
        assert!(!template_matches(&"{a}".repeat(500), &format!("{}/", "x".repeat(5000))));
    }

    #[test]
    fn no_uri_makes_matching_slow() {
        // If the time grew with the square of these lengths, each case would take minutes.
        let long = |piece: &str| format!("x://{}!", piece.repeat(2_000_000 / piece.len()));
        for (template, uri) in [
            ("x://{+path}{?q}", long("?q=")),
            ("x://{+path}{?q}", long("?")),
            ("x://{+path}{;any*}", long(";a")),
            ("x://{+path}{&a,b}", long("&a=&b")),
            (&format!("x://{{+path}}{}", "a".repeat(1_000_000)), long("a")),
            (&"{a}".repeat(500_000), long("a")),
            (&format!("x://{{?{}}}", "a,".repeat(500_000)), long("?")),
        ] {
            let template = format!("{template}#");
            assert!(!template_matches(&template, &uri), "{}", &template[..16]);
        }
        assert!(template_matches("x://{+path}{?q}!", &long("?q=")));
    }
}
