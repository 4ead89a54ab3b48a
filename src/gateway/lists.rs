//! The lists that agents read, rendered once per change, scope and allow list, and then handed out as the same bytes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use super::Gateway;
use super::caller::{Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::view::View;
use crate::model::{AllowList, uri};
use crate::wire::{Patch, scan, text};

/// What is kept at most, in bytes. Beyond that lists are rendered again.
const LARGEST_CACHE: usize = 64 * 1024 * 1024;
/// What keeping lists costs beside their bytes, roughly.
const KEEPING: usize = 1024;

/// The results of the four list methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    pub tools: Bytes,
    pub prompts: Bytes,
    pub resources: Bytes,
    pub templates: Bytes,
}

#[derive(Default)]
pub struct ListCache(Mutex<Renderings>);

#[derive(Default)]
struct Renderings {
    by_scope: HashMap<Scope, HashMap<AllowList, Rendered>>,
    bytes: usize,
}

/// Lists, and the catalog that they were rendered from, which they do not keep alive.
struct Rendered {
    from: Weak<Catalog>,
    lists: Arc<Lists>,
}

impl Gateway {
    /// `None` when what the viewer looks at does not exist (any more).
    pub fn lists(&self, viewer: &Viewer) -> Option<Arc<Lists>> {
        let catalog = self.catalog();
        let lens = catalog.lens(viewer)?;
        let mut cache = self.lists.0.lock().expect("no code panics while it holds the lists");
        let before = cache.find(&viewer.scope, lens.allowed);
        if let Some(before) = before
            && before.is_from(&catalog)
        {
            return Some(before.lists.clone());
        }
        let rendered = Lists::render(&catalog.view(&lens), &viewer.scope);
        // What did not change stays the same allocation, so that comparing is cheap for everybody.
        let lists = match before {
            Some(before) if *before.lists == rendered => before.lists.clone(),
            Some(_) | None => Arc::new(rendered),
        };
        cache.keep(&catalog, &viewer.scope, lens.allowed, lists.clone());
        Some(lists)
    }
}

impl Renderings {
    fn find(&self, scope: &Scope, allowed: &AllowList) -> Option<&Rendered> {
        self.by_scope.get(scope)?.get(allowed)
    }

    fn keep(&mut self, catalog: &Arc<Catalog>, scope: &Scope, allowed: &AllowList, lists: Arc<Lists>) {
        let size = lists.size();
        if self.bytes + size > LARGEST_CACHE {
            self.forget(|rendered| !rendered.is_from(catalog));
        }
        if self.bytes + size > LARGEST_CACHE {
            self.forget(|_| true);
        }
        self.bytes += size;
        let rendered = Rendered { from: Arc::downgrade(catalog), lists };
        let of_scope = self.by_scope.entry(scope.clone()).or_default();
        if let Some(replaced) = of_scope.insert(allowed.clone(), rendered) {
            self.bytes -= replaced.lists.size();
        }
    }

    fn forget(&mut self, is_over: impl Fn(&Rendered) -> bool) {
        for of_scope in self.by_scope.values_mut() {
            of_scope.retain(|_, rendered| !is_over(rendered));
        }
        self.by_scope.retain(|_, of_scope| !of_scope.is_empty());
        let kept = self.by_scope.values().flat_map(HashMap::values);
        self.bytes = kept.map(|rendered| rendered.lists.size()).sum();
    }
}

impl Rendered {
    fn is_from(&self, catalog: &Arc<Catalog>) -> bool {
        std::ptr::eq(self.from.as_ptr(), Arc::as_ptr(catalog))
    }
}

impl Lists {
    fn size(&self) -> usize {
        let Self { tools, prompts, resources, templates } = self;
        KEEPING + tools.len() + prompts.len() + resources.len() + templates.len()
    }

    fn render(view: &View<'_>, scope: &Scope) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_the_current_lists_stay_longest() {
        let lists = |size: usize| {
            let empty = Bytes::new();
            let (prompts, resources, templates) = (empty.clone(), empty.clone(), empty);
            Arc::new(Lists { tools: vec![b' '; size].into(), prompts, resources, templates })
        };
        let (old, current) = (Arc::new(Catalog::default()), Arc::new(Catalog::default()));
        let allowed = |name: &str| AllowList::new(vec![name.to_owned()]);
        let mut cache = Renderings::default();
        let half = LARGEST_CACHE / 2 - KEEPING;
        for size in [half / 2, half] {
            cache.keep(&old, &Scope::Group("g".into()), &allowed("b"), lists(size));
        }
        cache.keep(&current, &Scope::Everything, &allowed("a"), lists(half));
        assert_eq!(cache.bytes, LARGEST_CACHE);
        cache.keep(&current, &Scope::Everything, &allowed("c"), lists(half));
        assert!(cache.find(&Scope::Everything, &allowed("a")).is_some());
        assert!(cache.find(&Scope::Group("g".into()), &allowed("b")).is_none());
        cache.keep(&current, &Scope::Everything, &allowed("d"), lists(1));
        assert_eq!((cache.bytes, cache.by_scope[&Scope::Everything].len()), (KEEPING + 1, 1));
    }
}
