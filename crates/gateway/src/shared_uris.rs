//! URIs that more than one server of a view lists. Agents see them in their qualified form, and so are links to them in
//! what those servers say. Servers without such URIs are not looked at.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use memchr::memmem;

use super::Gateway;
use super::caller::Viewer;
use super::catalog::Catalog;
use super::view::View;
use model::{ServerName, uri};
use wire::{Patch, Span, text, walk};

/// The shared URIs of one view, by server.
#[derive(Debug, Default)]
pub struct SharedUris(HashMap<ServerName, Arc<ServerLinks>>);

/// The URIs of one server that another one has too.
#[derive(Debug)]
pub struct ServerLinks {
    server: ServerName,
    uris: HashSet<String>,
}

impl SharedUris {
    pub fn of(view: &View<'_>) -> Self {
        let mut seen = HashSet::new();
        let uris = view.resources.iter().map(|(_, resource)| resource.uri.as_str());
        let shared: HashSet<_> = uris.filter(|uri| !seen.insert(*uri)).collect();
        let mut by_server: HashMap<ServerName, HashSet<String>> = HashMap::new();
        for (entry, resource) in view.resources.iter().filter(|(_, resource)| shared.contains(&*resource.uri))
        {
            by_server.entry(entry.name().clone()).or_default().insert(resource.uri.clone());
        }
        let links =
            |(server, uris): (ServerName, _)| (server.clone(), Arc::new(ServerLinks { server, uris }));
        Self(by_server.into_iter().map(links).collect())
    }

    /// The shared URIs of a server; `None` if it has none.
    pub fn of_server(&self, server: &ServerName) -> Option<&Arc<ServerLinks>> {
        self.0.get(server)
    }
}

impl Gateway {
    /// The shared URIs of a server in the view of a viewer. Almost always there are none, which costs one lookup.
    pub(super) fn shared_uris(
        &self,
        catalog: &Catalog,
        viewer: &Viewer,
        server: &ServerName,
    ) -> Option<Arc<ServerLinks>> {
        if viewer.scope.server().is_some() || !catalog.shares_uris(server) {
            return None;
        }
        let lens = catalog.lens(viewer)?;
        self.lists.shared_uris(catalog, &viewer.scope, &lens).of_server(server).cloned()
    }
}

impl ServerLinks {
    /// The form of a URI that agents see, if it is another one than the server's.
    pub fn qualified(&self, uri: &str) -> Option<String> {
        self.uris.contains(uri).then(|| uri::qualify_for_agents(&self.server, uri))
    }

    /// The definition of a tool with its links in the form that agents see; `None` if it has no such links.
    pub fn in_definition(&self, definition: &[u8]) -> Option<Vec<u8>> {
        let object = walk::whole(definition).ok()?;
        let mut patch = Patch::new(definition);
        self.in_meta(&mut patch, definition, &object);
        (!patch.is_empty()).then(|| patch.apply().into())
    }

    /// Gives the links in a result the form that agents see: in `_meta`, in content, and in the messages of a prompt.
    pub fn in_result(&self, patch: &mut Patch<'_>, answer: &[u8], result: &Span) {
        self.in_meta(patch, answer, result);
        for (key, _, value) in walk::members(answer, result) {
            match &*key {
                "content" => self.in_content(patch, answer, &value),
                "messages" => {
                    for message in walk::elements(answer, &value) {
                        let content = walk::member(answer, &message, "content");
                        content.into_iter().for_each(|content| self.in_content(patch, answer, &content));
                    }
                }
                _ => {}
            }
        }
    }

    /// Content is one block or an array of them.
    fn in_content(&self, patch: &mut Patch<'_>, answer: &[u8], content: &Span) {
        let blocks = walk::elements(answer, content);
        let one = (answer[content.start] == b'{').then(|| content.clone());
        for block in blocks.chain(one) {
            let kind = walk::member(answer, &block, "type").and_then(|kind| text::unescape(&answer[kind]));
            let linked = match kind.as_deref() {
                Some("resource_link") => Some(block),
                Some("resource") => walk::member(answer, &block, "resource"),
                Some(_) | None => None,
            };
            let link = linked.and_then(|linked| walk::member(answer, &linked, "uri"));
            self.replace(patch, answer, link);
        }
    }

    /// Links to a user interface: `_meta.ui.resourceUri`, and the flat key of older servers.
    fn in_meta(&self, patch: &mut Patch<'_>, body: &[u8], object: &Span) {
        if memmem::find(&body[object.clone()], b"resourceUri").is_none() {
            return;
        }
        let Some(meta) = walk::member(body, object, "_meta") else { return };
        let nested = walk::member(body, &meta, "ui").and_then(|ui| walk::member(body, &ui, "resourceUri"));
        self.replace(patch, body, nested);
        self.replace(patch, body, walk::member(body, &meta, "ui/resourceUri"));
    }

    fn replace(&self, patch: &mut Patch<'_>, body: &[u8], link: Option<Span>) {
        let Some(link) = link else { return };
        let qualified = text::unescape(&body[link.clone()]).and_then(|uri| self.qualified(&uri));
        if let Some(qualified) = qualified {
            patch.replace(link, text::quote(&qualified));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> ServerLinks {
        let uris = ["x://1", "ui://app"].map(str::to_owned).into();
        ServerLinks { server: ServerName::parse("s").unwrap(), uris }
    }

    fn in_result(result: &str) -> String {
        let mut patch = Patch::new(result.as_bytes());
        links().in_result(&mut patch, result.as_bytes(), &(0..result.len()));
        String::from_utf8(patch.apply().to_vec()).unwrap()
    }

    #[test]
    fn links_in_results_are_qualified_and_nothing_else() {
        let (shared, other) = (r#""uri":"x:\/\/1""#, r#""uri":"x://2""#);
        let qualified = r#""uri":"toolgate://res/s/eDovLzE""#;
        let result = |uri: &str| {
            format!(
                r#"{{"content":[{{"type":"resource_link",{uri}}},{{"type":"text","text":"x://1","uri":"x://1"}},
                {{"type":"resource","resource":{{{uri},"text":"x://1"}}}},5],
                "messages":[{{"content":{{{uri},"type":"resource_link"}}}},{{"content":[{{"type":"resource_link",{uri}}}]}}],
                "structuredContent":{{"content":[{{"type":"resource_link","uri":"x://1"}}]}}}}"#
            )
        };
        assert_eq!(in_result(&result(shared)), result(qualified));
        assert_eq!(in_result(&result(other)), result(other));
    }

    #[test]
    fn user_interfaces_keep_their_scheme() {
        let tool = |uri: &str| {
            format!(
                r#"{{"name":"t","_meta":{{"ui":{{"resourceUri":"{uri}"}},"ui/resourceUri":"{uri}","x":1.0}}}}"#
            )
        };
        let rewritten = links().in_definition(tool("ui://app").as_bytes()).unwrap();
        assert_eq!(String::from_utf8(rewritten).unwrap(), tool("ui://s.toolgate/dWk6Ly9hcHA"));
        assert_eq!(links().in_definition(tool("ui://other").as_bytes()), None);
        assert_eq!(in_result(&tool("ui://app")), tool("ui://s.toolgate/dWk6Ly9hcHA"));
        for odd in [r#"{"_meta":{"ui":"resourceUri"}}"#, r#"{"_meta":{"ui":{"resourceUri":["ui://app"]}}}"#] {
            assert_eq!(links().in_definition(odd.as_bytes()), None);
        }
    }
}
