//! Which servers an MCP client may use. Names of servers that do not exist are fine: they match when one comes.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

/// Stands for all servers, those to come included.
const EVERYTHING: &str = "*";

#[derive(Clone, Debug, Default)]
pub struct AllowList {
    /// In the order in which they were given, for showing.
    names: Vec<String>,
    index: HashSet<String>,
}

impl AllowList {
    pub fn new(names: Vec<String>) -> Self {
        Self { index: names.iter().cloned().collect(), names }
    }

    pub fn everything() -> Self {
        Self::new(vec![EVERYTHING.to_owned()])
    }

    pub fn allows(&self, server: &str) -> bool {
        self.index.contains(server) || self.index.contains(EVERYTHING)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }
}

impl PartialEq for AllowList {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl Eq for AllowList {}

impl Hash for AllowList {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.names.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_star_stands_for_more_than_one_server() {
        let list = AllowList::new(vec!["a".into(), "b*".into()]);
        assert!(list.allows("a"));
        for foreign in ["b", "b*c", "A", "", "*"] {
            assert!(!list.allows(foreign), "{foreign}");
        }
        assert!(AllowList::everything().allows("a"));
        assert!(AllowList::new(vec!["a".into(), "*".into()]).allows("z"));
        assert!(!AllowList::default().allows("a"));
    }
}
