//! Which MCP endpoints a grant or an access token is for.

/// Every MCP endpoint, or that of one path, such as `/mcp` or `/v0/groups/dev/sse`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    Everything,
    Endpoint(String),
}

impl Reach {
    /// Whether requests to a path are within it. An endpoint `…/sse` includes the `…/message` to which its clients post.
    pub fn covers(&self, path: &str) -> bool {
        match self {
            Reach::Everything => true,
            Reach::Endpoint(endpoint) => {
                let posts_to = |base: &str| path.strip_suffix("/message") == Some(base);
                endpoint == path || endpoint.strip_suffix("/sse").is_some_and(posts_to)
            }
        }
    }

    /// A part of it; `None` if the other one is no part of it.
    pub fn narrowed(&self, to: &Reach) -> Option<Reach> {
        (*self == Reach::Everything || self == to).then(|| to.clone())
    }

    /// The path of the endpoint, or nothing.
    pub fn as_str(&self) -> &str {
        match self {
            Reach::Everything => "",
            Reach::Endpoint(path) => path,
        }
    }

    /// Reads what [`Reach::as_str`] returned.
    pub fn parse(text: &str) -> Self {
        match text {
            "" => Reach::Everything,
            path => Reach::Endpoint(path.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_covers_itself_and_the_messages_of_its_stream() {
        let sse = Reach::parse("/v0/groups/a/sse");
        for (path, is_covered) in [
            ("/v0/groups/a/sse", true),
            ("/v0/groups/a/message", true),
            ("/v0/groups/a/mcp", false),
            ("/v0/groups/b/message", false),
            ("/message", false),
            ("/sse", false),
        ] {
            assert_eq!(sse.covers(path), is_covered, "{path}");
            assert!(Reach::Everything.covers(path));
        }
        assert!(Reach::parse("/sse").covers("/message"));
        assert!(!Reach::parse("/mcp").covers("/message"));
        assert!(!Reach::parse("/message").covers("/sse"));
    }

    #[test]
    fn only_everything_can_be_narrowed() {
        let (mcp, sse) = (Reach::parse("/mcp"), Reach::parse("/sse"));
        assert_eq!(Reach::Everything.narrowed(&mcp), Some(mcp.clone()));
        assert_eq!(Reach::Everything.narrowed(&Reach::Everything), Some(Reach::Everything));
        assert_eq!(mcp.narrowed(&mcp), Some(mcp.clone()));
        assert_eq!(mcp.narrowed(&sse), None);
        assert_eq!(mcp.narrowed(&Reach::Everything), None);
        assert_eq!(Reach::parse(Reach::Everything.as_str()), Reach::Everything);
    }
}
