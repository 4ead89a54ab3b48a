//! The parameter `resource` (RFC 8707): which MCP endpoints a token is for. Also the paths of those endpoints.

use url::Url;

use super::OAuthProblem;
use crate::{GroupName, Reach, ServerName};

/// Whether a token can be for this path alone: an MCP endpoint, other than a `…/message`. Whether its group or server exists
/// does not matter.
pub fn is_endpoint(path: &str) -> bool {
    if matches!(path, "/mcp" | "/sse") {
        return true;
    }
    let Some((name, end)) =
        path.strip_prefix("/v0/").and_then(|rest| rest.split_once('/')?.1.split_once('/'))
    else {
        return false;
    };
    match path.starts_with("/v0/groups/") {
        true => matches!(end, "mcp" | "sse") && GroupName::parse(name).is_ok(),
        false => path.starts_with("/v0/servers/") && end == "mcp" && ServerName::parse(name).is_ok(),
    }
}

/// The endpoint whose metadata document a request to this path is told about: itself, or the `…/sse` of a `…/message`.
pub fn documented_path(path: &str) -> String {
    match path.strip_suffix("/message") {
        Some(start) => format!("{start}/sse"),
        None => path.to_owned(),
    }
}

/// Reads every `resource` of a request to the gateway at this address. `None` if there is none; several must agree.
pub fn requested_reach(base: &Url, resources: &[String]) -> Result<Option<Reach>, OAuthProblem> {
    let mut found = None;
    for resource in resources {
        let reach = reach_of(base, resource).ok_or_else(OAuthProblem::invalid_target)?;
        if found.get_or_insert_with(|| reach.clone()) != &reach {
            return Err(OAuthProblem::invalid_target());
        }
    }
    Ok(found)
}

fn reach_of(base: &Url, resource: &str) -> Option<Reach> {
    // Not only parsed as a URL: that would resolve dot segments and accept other spellings.
    if !resource.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') || resource.contains('#') {
        return None;
    }
    let (scheme, rest) = resource.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(end);
    let origin = Url::parse(&format!("{scheme}://{authority}")).ok()?;
    let place = |url: &Url| (url.host_str().map(str::to_owned), url.port_or_known_default());
    if origin.scheme() != base.scheme() || place(&origin) != place(base) || authority.contains('@') {
        return None;
    }
    if matches!(path_and_query, "" | "/") {
        return Some(Reach::Everything);
    }
    let path = path_and_query.split('?').next().unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    is_endpoint(path).then(|| Reach::Endpoint(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(resource: &str) -> Option<Reach> {
        let base = Url::parse("https://gate.example.com").unwrap();
        requested_reach(&base, &[resource.to_owned()]).ok().flatten()
    }

    #[test]
    fn the_origin_is_everything_and_a_path_one_endpoint() {
        for all in ["https://gate.example.com", "https://gate.example.com/", "HTTPS://Gate.Example.com:443"] {
            assert_eq!(reach(all), Some(Reach::Everything), "{all}");
        }
        for (one, path) in [
            ("https://gate.example.com/mcp", "/mcp"),
            ("https://GATE.example.com/mcp/", "/mcp"),
            ("https://gate.example.com/mcp?x=1", "/mcp"),
            ("https://gate.example.com/mcp/?x=/y", "/mcp"),
            ("https://gate.example.com:443/sse", "/sse"),
            ("https://gate.example.com/v0/groups/g-1/mcp", "/v0/groups/g-1/mcp"),
            ("https://gate.example.com/v0/groups/servers/sse", "/v0/groups/servers/sse"),
            ("https://gate.example.com/v0/servers/s_1/mcp", "/v0/servers/s_1/mcp"),
        ] {
            assert_eq!(reach(one), Some(Reach::Endpoint(path.to_owned())), "{one}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for bad in [
            "https://gate.example.com//",
            "https://gate.example.com?x",
            "https://gate.example.com/MCP",
            "https://gate.example.com/mcp//",
            "https://gate.example.com//mcp",
            "https://gate.example.com/mcp#f",
            "https://gate.example.com/x/../mcp",
            "https://gate.example.com/%6dcp",
            "https://gate.example.com/message",
            "https://gate.example.com/api/v0/servers",
            "https://gate.example.com/v0/groups//mcp",
            "https://gate.example.com/v0/groups/a/b/mcp",
            "https://gate.example.com/v0/groups/-a/mcp",
            "https://gate.example.com/v0/groups/a/message",
            "https://gate.example.com/v0/servers/a/sse",
            "https://gate.example.com/v0/servers/a__b/mcp",
            "https://gate.example.com/v0/servers/a/mcp/x",
            "https://gate.example.com:8443/mcp",
            "https://gate.example.com:x/mcp",
            "http://gate.example.com/mcp",
            "https://u@gate.example.com/mcp",
            "https://@gate.example.com/mcp",
            "https://gate.example.com.evil/mcp",
            "https://evil/?https://gate.example.com/mcp",
            "https:/gate.example.com/mcp",
            "https:\\\\gate.example.com/mcp",
            "https://gate.example.com /mcp",
            "/mcp",
            "mcp",
        ] {
            assert_eq!(reach(bad), None, "{bad}");
        }
    }

    #[test]
    fn several_resources_must_agree() {
        let base = Url::parse("http://localhost:8080").unwrap();
        let read = |resources: &[&str]| {
            requested_reach(&base, &resources.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(read(&[]), Ok(None));
        let mcp = Reach::Endpoint("/mcp".to_owned());
        assert_eq!(read(&["http://localhost:8080/mcp", "http://localhost:8080/mcp/"]), Ok(Some(mcp)));
        assert!(read(&["http://localhost:8080/mcp", "http://localhost:8080"]).is_err());
        assert!(read(&["http://localhost:8080/mcp", "http://evil"]).is_err());
    }

    #[test]
    fn a_message_is_documented_with_its_stream() {
        assert_eq!(documented_path("/message"), "/sse");
        assert_eq!(documented_path("/v0/groups/message/message"), "/v0/groups/message/sse");
        assert_eq!(documented_path("/mcp"), "/mcp");
    }
}
