//! The lists that agents read, rendered once per change, scope and allow list, and then handed out as the same bytes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;

use super::Gateway;
use super::caller::{Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::greeting::Greeting;
use super::view::View;
use crate::model::{AllowList, Mode, uri};
use crate::wire::{Patch, scan, text};

/// What is kept at most, in bytes. Beyond that lists are rendered again.
const LARGEST_CACHE: usize = 64 * 1024 * 1024;
/// What keeping lists costs beside their bytes, roughly.
const KEEPING: usize = 1024;

/// How long the parts of a list hold where their servers do not say.
const DEFAULT_TTL_MS: u64 = 5000;

/// The results of the four list methods, and what the endpoint says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    pub tools: List,
    pub prompts: List,
    pub resources: List,
    pub templates: List,
    pub greeting: Greeting,
    /// For how long and for whom all of it together is good.
    pub caching: Caching,
}

/// One rendered list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// An object with one member, which is the list.
    pub result: Bytes,
    pub caching: Caching,
}

/// For how long a result holds and whether it is for one client only, as modern results say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    pub ttl_ms: u64,
    pub is_private: bool,
}

impl Caching {
    /// Each server counts with what it says itself; the strictest decides.
    fn of<'a>(entries: impl IntoIterator<Item = &'a &'a Arc<Entry>>, mode: Mode) -> Self {
        let start = Self { ttl_ms: u64::MAX, is_private: mode == Mode::Enterprise };
        let strictest =
            entries.into_iter().map(|entry| entry.offering()).fold(start, |so_far, offering| Self {
                ttl_ms: so_far.ttl_ms.min(offering.ttl_ms.unwrap_or(DEFAULT_TTL_MS)),
                is_private: so_far.is_private || offering.is_private,
            });
        let ttl_ms = if strictest.ttl_ms == u64::MAX { DEFAULT_TTL_MS } else { strictest.ttl_ms };
        Self { ttl_ms, ..strictest }
    }

    /// As JSON.
    pub fn scope(self) -> &'static [u8] {
        if self.is_private { br#""private""# } else { br#""public""# }
    }
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
        let view = catalog.view(&lens);
        let greeting = Greeting::of(&catalog, &lens, &view, &viewer.scope)?;
        let rendered = Lists::render(&view, &viewer.scope, greeting, self.mode);
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
        let Self { tools, prompts, resources, templates, .. } = self;
        KEEPING + [tools, prompts, resources, templates].map(|list| list.result.len()).iter().sum::<usize>()
    }

    fn render(view: &View<'_>, scope: &Scope, greeting: Greeting, mode: Mode) -> Self {
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
        let servers = [
            servers_of(&view.tools),
            servers_of(&view.prompts),
            servers_of(&view.resources),
            servers_of(&view.templates),
        ];
        let list = |index: usize, result: Bytes| List { result, caching: Caching::of(&servers[index], mode) };
        Self {
            tools: list(0, render("tools", tools)),
            prompts: list(1, render("prompts", prompts)),
            resources: list(2, render("resources", resources)),
            templates: list(3, render("resourceTemplates", templates)),
            caching: Caching::of(servers.iter().flatten(), mode),
            greeting,
        }
    }
}

fn servers_of<'a, T>(listed: &[(&'a Arc<Entry>, &'a T)]) -> Vec<&'a Arc<Entry>> {
    let mut servers: Vec<_> = listed.iter().map(|(entry, _)| *entry).collect();
    servers.dedup_by_key(|entry| entry.name());
    servers
}

/// A definition with one member replaced and every other byte as it was.
fn with_member(definition: &str, key: &str, value: &str) -> Vec<u8> {
    let body = definition.as_bytes();
    let Ok(object) = scan::whole(body) else { return body.to_vec() };
    let mut patch = Patch::new(body);
    patch.set_member(&object, key, &text::quote(value));
    patch.apply().into()
}

fn render(member: &str, items: impl Iterator<Item = Vec<u8>>) -> Bytes {
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
            let caching = Caching { ttl_ms: 0, is_private: false };
            let list = |size: usize| List { result: vec![b' '; size].into(), caching };
            let (tools, prompts, resources, templates) = (list(size), list(0), list(0), list(0));
            let greeting = Greeting::default();
            Arc::new(Lists { tools, prompts, resources, templates, greeting, caching })
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
