//! The lists that agents read: rendered once per catalog, scope and allow list, and then sent as the same bytes.
//! Open streams keep fingerprints of them, which are computed without rendering.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use serde_json::value::RawValue;

use super::Gateway;
use super::caller::{Profile, Scope, Viewer};
use super::catalog::{Catalog, Entry};
use super::greeting::Greeting;
use super::shared_uris::SharedUris;
use super::view::{Lens, View};
use model::{AllowList, Mode, OwnMeta, Resource};

/// Maximum size of the cache, in bytes. Beyond that the oldest lists are dropped, and rendered again on demand.
const LARGEST_CACHE: usize = 64 * 1024 * 1024;
/// Approximate overhead of cached lists, in bytes.
const KEEPING: usize = 1024;

/// The most endpoints and profiles that are known to have all their lists read.
const MOST_PREPARED: usize = 1000;

/// The TTL for servers that declare none.
const DEFAULT_TTL_MS: u64 = 5000;

/// The results of the four list methods, and the greeting of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    pub tools: List,
    pub prompts: List,
    pub resources: List,
    pub templates: List,
    pub greeting: Greeting,
    /// The cache settings for all of it together.
    pub caching: Caching,
}

/// One rendered list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// An object with the list, and at the endpoint of one server the `_meta` that the server sent with it.
    pub result: Bytes,
    /// The member of the result that is the list.
    pub member: Bytes,
    /// That `_meta`, as JSON.
    pub meta: Option<Vec<u8>>,
    pub caching: Caching,
}

/// Hashes of the contents of a viewer's lists. Equal fingerprints mean equal lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    pub tools: u64,
    pub prompts: u64,
    /// Includes templates: one notification covers both.
    pub resources: u64,
}

/// The cache settings of a modern result: its TTL, and whether it is for one client only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    pub ttl_ms: u64,
    pub is_private: bool,
}

impl Caching {
    /// The strictest of the settings that the servers declare.
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

    /// The value of `cacheScope`, as JSON.
    pub fn scope(self) -> &'static [u8] {
        if self.is_private { br#""private""# } else { br#""public""# }
    }
}

/// The lists and fingerprints of the current catalog. Nothing of an earlier catalog is kept, so those of a deleted
/// client or group are dropped with the change that deletes it.
#[derive(Default)]
pub struct ListCache(Mutex<Renderings>);

#[derive(Default)]
struct Renderings {
    /// The generation of the catalog that all of it was computed from.
    generation: u64,
    views: HashMap<ViewKey, Arc<CachedView>>,
    /// The keys of views with rendered lists, oldest first, with the size of their lists.
    rendered: VecDeque<(ViewKey, usize)>,
    bytes: usize,
    /// The endpoints and profiles for which every server has read its lists.
    prepared: HashSet<(Scope, AllowList, Profile)>,
}

/// The last part is the audience of the catalog.
type ViewKey = (Scope, AllowList, u64);

/// The cached parts of one view. Each part is computed by the first request that needs it, outside of the cache's lock,
/// while other requests that need the same part wait for it.
#[derive(Default)]
struct CachedView {
    fingerprint: OnceLock<Fingerprint>,
    lists: OnceLock<Option<Arc<Lists>>>,
    shared: OnceLock<Arc<SharedUris>>,
}

impl Gateway {
    /// The lists of a viewer; `None` if its endpoint does not exist (any more).
    pub fn lists(&self, viewer: &Viewer, profile: &Profile) -> Option<Arc<Lists>> {
        let catalog = self.catalog_for(profile);
        let (lens, scope) = (catalog.lens(viewer)?, viewer.scope.of_lists());
        let cached = self.lists.cached(&catalog, &scope, lens.allowed);
        let mut size = None;
        let lists = cached.lists.get_or_init(|| {
            let view = catalog.view(&lens);
            let greeting = Greeting::of(&catalog, &lens, &view, &scope)?;
            let native = scope.server().and_then(|name| catalog.get(name));
            let meta = native.map(|entry| &entry.offering().meta);
            let lists = Lists::render(&view, greeting, meta, self.mode);
            size = Some(lists.size());
            Some(Arc::new(lists))
        });
        if let Some(size) = size {
            let key = (scope.into_owned(), lens.allowed.clone(), catalog.audience);
            self.lists.account(&catalog, key, size);
        }
        lists.clone()
    }

    /// The fingerprint of a viewer's lists; `None` if its endpoint does not exist (any more).
    pub fn fingerprint(&self, viewer: &Viewer, profile: &Profile) -> Option<Fingerprint> {
        let catalog = self.catalog_for(profile);
        let (lens, scope) = (catalog.lens(viewer)?, viewer.scope.of_lists());
        let cached = self.lists.cached(&catalog, &scope, lens.allowed);
        Some(*cached.fingerprint.get_or_init(|| Fingerprint::of(&catalog, &lens)))
    }
}

impl ListCache {
    /// Drops everything that was computed from an earlier catalog.
    pub fn follow(&self, catalog: &Catalog) {
        let forgotten = self.lock().follow(catalog);
        // Outside of the lock, since freeing many lists takes a while.
        drop(forgotten);
    }

    fn cached(&self, catalog: &Catalog, scope: &Scope, allowed: &AllowList) -> Arc<CachedView> {
        let mut cache = self.lock();
        let forgotten = cache.follow(catalog);
        // A request that still uses an earlier catalog computes its own view, which is not cached.
        let cached = match cache.generation == catalog.generation {
            true => {
                let key = (scope.clone(), allowed.clone(), catalog.audience);
                cache.views.entry(key).or_default().clone()
            }
            false => Arc::default(),
        };
        drop(cache);
        drop(forgotten);
        cached
    }

    /// The URIs that more than one server of the view has.
    pub fn shared_uris(&self, catalog: &Catalog, scope: &Scope, lens: &Lens<'_>) -> Arc<SharedUris> {
        let cached = self.cached(catalog, scope, lens.allowed);
        cached.shared.get_or_init(|| Arc::new(SharedUris::of(&catalog.view(lens)))).clone()
    }

    /// Adds the size of newly rendered lists, and drops the oldest lists beyond the limit.
    fn account(&self, catalog: &Catalog, key: ViewKey, size: usize) {
        let mut forgotten = Vec::new();
        let mut cache = self.lock();
        if cache.generation != catalog.generation {
            return;
        }
        cache.bytes += size;
        cache.rendered.push_back((key, size));
        while cache.bytes > LARGEST_CACHE && cache.rendered.len() > 1 {
            let Some((oldest, size)) = cache.rendered.pop_front() else { break };
            cache.bytes -= size;
            forgotten.extend(cache.views.remove(&oldest));
        }
        drop(cache);
    }

    /// Whether all lists of a viewer with this profile were read.
    pub fn is_prepared(
        &self,
        catalog: &Catalog,
        viewer: &Viewer,
        allowed: &AllowList,
        profile: &Profile,
    ) -> bool {
        let key = (viewer.scope.of_lists().into_owned(), allowed.clone(), profile.shared());
        let cache = self.lock();
        cache.generation == catalog.generation && cache.prepared.contains(&key)
    }

    /// Notes that all lists of a viewer with this profile were read, as of this catalog.
    pub fn set_prepared(&self, catalog: &Catalog, viewer: &Viewer, profile: &Profile) {
        let Some(lens) = catalog.lens(viewer) else { return };
        let key = (viewer.scope.of_lists().into_owned(), lens.allowed.clone(), profile.shared());
        let mut cache = self.lock();
        if cache.generation == catalog.generation {
            if cache.prepared.len() >= MOST_PREPARED {
                cache.prepared.clear();
            }
            cache.prepared.insert(key);
        }
    }

    /// Drops the lists of audiences that do not exist any more.
    pub fn forget_audiences(&self, audiences: &[u64]) {
        if audiences.is_empty() {
            return;
        }
        let mut cache = self.lock();
        let forgotten: Vec<_> =
            cache.views.extract_if(|(_, _, audience), _| audiences.contains(audience)).collect();
        let freed: usize = cache
            .rendered
            .iter()
            .filter(|((_, _, audience), _)| audiences.contains(audience))
            .map(|(_, size)| size)
            .sum();
        cache.rendered.retain(|((_, _, audience), _)| !audiences.contains(audience));
        cache.bytes -= freed;
        drop(cache);
        drop(forgotten);
    }

    fn lock(&self) -> MutexGuard<'_, Renderings> {
        self.0.lock().expect("no code panics while it holds the lists")
    }
}

impl Renderings {
    /// Starts empty if the catalog is a later one; returns the old content, if so.
    fn follow(&mut self, catalog: &Catalog) -> Option<Renderings> {
        let is_later = catalog.generation > self.generation;
        is_later.then(|| {
            let new = Renderings { generation: catalog.generation, ..Renderings::default() };
            std::mem::replace(self, new)
        })
    }
}

impl Fingerprint {
    fn of(catalog: &Catalog, lens: &Lens<'_>) -> Self {
        let view = catalog.view(lens);
        let (mut tools, mut prompts, mut resources) =
            (DefaultHasher::new(), DefaultHasher::new(), DefaultHasher::new());
        let shared = SharedUris::of(&view);
        for (entry, tool) in &view.tools {
            (entry.name().as_str(), tool.digest).hash(&mut tools);
            // Its links change when a URI begins or ends to be shared.
            let links = shared.of_server(entry.name());
            links.and_then(|links| links.in_definition(tool.definition.get().as_bytes())).hash(&mut tools);
        }
        for (entry, prompt) in &view.prompts {
            (entry.name().as_str(), prompt.digest).hash(&mut prompts);
        }
        for (entry, resource) in &view.resources {
            // Only a shared URI is listed in its qualified form, which names the server.
            let qualified = shared.of_server(entry.name()).and_then(|links| links.qualified(&resource.uri));
            (qualified, resource.digest).hash(&mut resources);
        }
        for (_, template) in &view.templates {
            template.digest.hash(&mut resources);
        }
        Self { tools: tools.finish(), prompts: prompts.finish(), resources: resources.finish() }
    }
}

impl List {
    fn new(member: Vec<u8>, meta: Option<Vec<u8>>, caching: Caching) -> Self {
        let length = member.len();
        let mut result = [b"{", member.as_slice()].concat();
        if let Some(meta) = &meta {
            result.extend_from_slice(br#","_meta":"#);
            result.extend_from_slice(meta);
        }
        result.push(b'}');
        let result = pages::keep(result);
        Self { member: result.slice(1..=length), result, meta, caching }
    }
}

impl Lists {
    fn size(&self) -> usize {
        let Self { tools, prompts, resources, templates, .. } = self;
        KEEPING + [tools, prompts, resources, templates].map(|list| list.result.len()).iter().sum::<usize>()
    }

    /// Renders what is in a view; `native` is the `_meta` of the server, at the endpoint of one server.
    fn render(view: &View<'_>, greeting: Greeting, native: Option<&OwnMeta>, mode: Mode) -> Self {
        let is_native = native.is_some();
        let nothing = OwnMeta::default();
        let meta = native.unwrap_or(&nothing);
        let shared = SharedUris::of(view);
        let tools = render("tools", &view.tools, |entry, tool, out| match is_native {
            true => out.extend_from_slice(tool.definition.get().as_bytes()),
            false => {
                let start = out.len();
                entry.write_tool(tool, out);
                let links = shared.of_server(entry.name());
                if let Some(linked) = links.and_then(|links| links.in_definition(&out[start..])) {
                    out.truncate(start);
                    out.extend_from_slice(&linked);
                }
            }
        });
        let prompts = render("prompts", &view.prompts, |entry, prompt, out| match is_native {
            true => out.extend_from_slice(prompt.definition.get().as_bytes()),
            false => entry.write_prompt(prompt, out),
        });
        let resources = render("resources", &view.resources, |entry, resource, out| {
            write_resource(entry, resource, &shared, out);
        });
        let templates = render("resourceTemplates", &view.templates, |_, template, out| {
            out.extend_from_slice(template.definition.get().as_bytes());
        });
        let servers = [
            servers_of(&view.tools),
            servers_of(&view.prompts),
            servers_of(&view.resources),
            servers_of(&view.templates),
        ];
        let list = |index: usize, member: Vec<u8>, meta: &Option<Box<RawValue>>| {
            let meta = meta.as_deref().map(|meta| meta.get().as_bytes().to_vec());
            List::new(member, meta, Caching::of(&servers[index], mode))
        };
        Self {
            tools: list(0, tools, &meta.tools),
            prompts: list(1, prompts, &meta.prompts),
            resources: list(2, resources, &meta.resources),
            templates: list(3, templates, &meta.templates),
            caching: Caching::of(servers.iter().flatten(), mode),
            greeting,
        }
    }
}

fn write_resource(entry: &Entry, resource: &Resource, shared: &SharedUris, out: &mut Vec<u8>) {
    let definition = resource.definition.get().as_bytes();
    match shared.of_server(entry.name()).and_then(|links| links.qualified(&resource.uri)) {
        Some(qualified) => {
            out.extend_from_slice(&super::catalog::with_member(definition, "uri", &qualified));
        }
        None => out.extend_from_slice(definition),
    }
}

fn servers_of<'a, T>(listed: &[(&'a Arc<Entry>, &'a T)]) -> Vec<&'a Arc<Entry>> {
    let mut servers: Vec<_> = listed.iter().map(|(entry, _)| *entry).collect();
    servers.dedup_by_key(|entry| entry.name());
    servers
}

/// Writes a list with its key.
fn render<T>(member: &str, items: &[(&Arc<Entry>, &T)], write: impl Fn(&Entry, &T, &mut Vec<u8>)) -> Vec<u8> {
    let mut json = format!("\"{member}\":[").into_bytes();
    for (index, (entry, item)) in items.iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write(entry, item, &mut json);
    }
    json.push(b']');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ViewKey {
        (Scope::Everything, AllowList::new(vec![name.to_owned()]), 0)
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let (cache, catalog) = (ListCache::default(), Catalog::default());
        let half = LARGEST_CACHE / 2;
        for name in ["a", "b", "c"] {
            let (scope, allowed, _) = key(name);
            cache.cached(&catalog, &scope, &allowed);
            cache.account(&catalog, key(name), half);
        }
        let kept = cache.lock();
        assert_eq!(kept.bytes, LARGEST_CACHE);
        assert!(!kept.views.contains_key(&key("a")));
        assert!(kept.views.contains_key(&key("b")) && kept.views.contains_key(&key("c")));
    }

    #[test]
    fn what_is_equal_is_kept_once() {
        let (cache, catalog) = (ListCache::default(), Catalog::default());
        let of = |names: &[&str]| AllowList::new(names.iter().map(|name| name.to_string()).collect());
        let cached = |names: &[&str]| cache.cached(&catalog, &Scope::Everything, &of(names));
        assert!(Arc::ptr_eq(&cached(&["a", "b"]), &cached(&["b", "a", "b"])));
        assert!(!Arc::ptr_eq(&cached(&["a", "b"]), &cached(&["a"])));
        assert_eq!(cache.lock().views.len(), 2);
    }

    #[test]
    fn nothing_of_an_earlier_catalog_is_kept() {
        let (cache, old) = (ListCache::default(), Catalog::default().following(0));
        let new = Catalog::default().following(1);
        let (scope, allowed, _) = key("a");
        let cached = cache.cached(&old, &scope, &allowed);
        cache.account(&old, key("a"), 1);
        assert!(Arc::ptr_eq(&cached, &cache.cached(&old, &scope, &allowed)));
        cache.follow(&new);
        // Lists that were still being rendered when the catalog changed are not counted.
        cache.account(&old, key("a"), 1);
        let kept = cache.lock();
        assert_eq!((kept.views.len(), kept.rendered.len(), kept.bytes), (0, 0, 0));
    }
}
