//! The servers that an MCP client may use. A list may name servers that do not exist yet: it applies to them once they
//! are registered.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Allows all servers, including those registered later.
const EVERYTHING: &str = "*";

/// A list of server names. Clones share the names, and two lists are equal if they allow the same servers. A list can
/// be a map key: cloning and hashing take the same time however long it is.
#[derive(Clone, Debug)]
pub struct AllowList(Arc<Names>);

#[derive(Debug)]
struct Names {
    /// The names as given, in the same order, for display.
    given: Vec<String>,
    /// The names sorted and without duplicates; only the star if the list contains it.
    allowed: Vec<String>,
    /// The hash of `allowed`.
    hash: u64,
}

impl AllowList {
    pub fn new(names: Vec<String>) -> Self {
        let mut allowed = match names.iter().any(|name| name == EVERYTHING) {
            true => vec![EVERYTHING.to_owned()],
            false => names.clone(),
        };
        allowed.sort_unstable();
        allowed.dedup();
        let mut hasher = DefaultHasher::new();
        allowed.hash(&mut hasher);
        Self(Arc::new(Names { given: names, allowed, hash: hasher.finish() }))
    }

    pub fn everything() -> Self {
        Self::new(vec![EVERYTHING.to_owned()])
    }

    pub fn allows(&self, server: &str) -> bool {
        let allowed = &self.0.allowed;
        allowed.binary_search_by(|name| name.as_str().cmp(server)).is_ok() || self.allows_everything()
    }

    /// Whether all servers are allowed, including those registered later.
    pub fn allows_everything(&self) -> bool {
        self.0.allowed.first().is_some_and(|name| name == EVERYTHING)
    }

    pub fn names(&self) -> &[String] {
        &self.0.given
    }
}

impl Default for AllowList {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl PartialEq for AllowList {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.hash == other.0.hash && self.0.allowed == other.0.allowed
    }
}

impl Eq for AllowList {}

impl Hash for AllowList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> AllowList {
        AllowList::new(names.iter().map(|name| name.to_string()).collect())
    }

    #[test]
    fn only_a_star_stands_for_more_than_one_server() {
        let some = list(&["b*", "a"]);
        assert!(some.allows("a"));
        for foreign in ["b", "b*c", "A", "", "*"] {
            assert!(!some.allows(foreign), "{foreign}");
        }
        assert!(AllowList::everything().allows("a"));
        assert!(list(&["a", "*"]).allows("z"));
        assert!(!AllowList::default().allows("a"));
    }

    #[test]
    fn lists_that_allow_the_same_are_equal_and_keep_their_names_as_given() {
        let hash = |list: &AllowList| {
            let mut hasher = DefaultHasher::new();
            list.hash(&mut hasher);
            hasher.finish()
        };
        for (one, other) in [(list(&["a", "b", "a"]), list(&["b", "a"])), (list(&["a", "*"]), list(&["*"]))] {
            assert_eq!(one, other);
            assert_eq!(hash(&one), hash(&other));
        }
        assert_eq!(list(&["b", "a", "b"]).names(), ["b", "a", "b"]);
        for (one, other) in [(list(&["a"]), list(&["a", "b"])), (list(&["a"]), list(&["*"]))] {
            assert_ne!(one, other);
        }
    }
}
