//! The lists that agents read, rendered once per change and scope and then handed out as the same bytes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::caller::Scope;
use super::catalog::{Catalog, Entry};
use super::view::View;
use super::{Gateway, caller};
use crate::model::uri;
use crate::wire::{Patch, scan, text};

/// The results of the four list methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    pub tools: Bytes,
    pub prompts: Bytes,
    pub resources: Bytes,
    pub templates: Bytes,
}

#[derive(Default)]
pub struct ListCache(Mutex<HashMap<Scope, Rendered>>);

/// Lists, and the catalog that they were rendered from.
struct Rendered {
    from: Arc<Catalog>,
    lists: Arc<Lists>,
}

impl Gateway {
    /// `None` when the scope does not exist (any more).
    pub fn lists(&self, scope: &Scope) -> Option<Arc<Lists>> {
        let catalog = self.catalog();
        let mut cache = self.lists.0.lock().expect("no code panics while it holds the lists");
        if let Some(rendered) = cache.get(scope)
            && Arc::ptr_eq(&rendered.from, &catalog)
        {
            return Some(rendered.lists.clone());
        }
        cache.retain(|scope, _| catalog.lens(scope).is_some());
        let lens = catalog.lens(scope)?;
        let rendered = Lists::render(&catalog.view(&lens, |_| true), scope);
        // What did not change stays the same allocation, so that comparing is cheap for everybody.
        let lists = match cache.get(scope) {
            Some(before) if *before.lists == rendered => before.lists.clone(),
            Some(_) | None => Arc::new(rendered),
        };
        cache.insert(scope.clone(), Rendered { from: catalog.clone(), lists: lists.clone() });
        Some(lists)
    }
}

impl Lists {
    fn render(view: &View<'_>, scope: &caller::Scope) -> Self {
        let is_native = matches!(scope, Scope::Server(_));
        let named = |entry: &Entry, name: &str, definition: &str| match is_native {
            true => definition.as_bytes().to_vec(),
            false => with_member(definition, "name", &entry.name().qualify(name)),
        };
        let mut seen = HashSet::new();
        let shared: HashSet<_> =
            view.resources.iter().map(|(_, found)| &found.uri).filter(|uri| !seen.insert(*uri)).collect();
        let tools = view.tools.iter().map(|(entry, tool)| named(entry, &tool.name, tool.definition.get()));
        let prompts =
            view.prompts.iter().map(|(entry, prompt)| named(entry, &prompt.name, prompt.definition.get()));
        let resources = view.resources.iter().map(|(entry, resource)| match shared.contains(&resource.uri) {
            true => with_member(resource.definition.get(), "uri", &uri::qualify(entry.name(), &resource.uri)),
            false => resource.definition.get().as_bytes().to_vec(),
        });
        let templates =
            view.templates.iter().map(|(_, template)| template.definition.get().as_bytes().to_vec());
        Self {
            tools: list("tools", tools),
            prompts: list("prompts", prompts),
            resources: list("resources", resources),
            templates: list("resourceTemplates", templates),
        }
    }
}

/// A definition with one member replaced and every other byte as it was.
fn with_member(definition: &str, key: &str, value: &str) -> Vec<u8> {
    let body = definition.as_bytes();
    let Ok(object) = scan::whole(body) else { return body.to_vec() };
    let mut patch = Patch::new(body);
    patch.set_member(&object, key, &text::quote(value));
    patch.apply().into()
}

fn list(member: &str, items: impl Iterator<Item = Vec<u8>>) -> Bytes {
    let mut json = format!("{{\"{member}\":[").into_bytes();
    for (index, item) in items.enumerate() {
        if index > 0 {
            json.push(b',');
        }
        json.extend_from_slice(&item);
    }
    json.extend_from_slice(b"]}");
    json.into()
}
