//! What a client or user may use: a list of rules. A deny always wins. A list may name what does not exist yet: it applies
//! once that appears.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::rule::{EVERYTHING, Item, Rule, RuleSubject};
use super::{FieldError, Fields};

/// The most entries of one list.
const MOST: usize = 1000;

/// A list of rules. Clones share them, and lists with the same rules are equal. A list can be a map key: cloning and
/// hashing take the same time however long it is.
#[derive(Clone, Debug)]
pub struct AllowList(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    /// The entries as given, in the same order, for display.
    given: Vec<String>,
    /// The rules sorted and without duplicates; only the star if everything is allowed and nothing denied.
    rules: Vec<Rule>,
    /// The servers that are allowed as a whole, and those that are denied as a whole; sorted.
    allowed: Vec<String>,
    denied: Vec<String>,
    allows_all_servers: bool,
    denies_all_servers: bool,
    /// Whether all rules are about whole servers.
    is_plain: bool,
    /// The hash of `rules`.
    hash: u64,
}

impl AllowList {
    /// A list that was stored. An entry of a form that is not known stays in it and matches nothing.
    pub fn new(given: Vec<String>) -> Self {
        let rules = given.iter().filter_map(|text| Rule::parse(text).ok()).collect();
        Self(Arc::new(Rules::new(given, rules)))
    }

    /// Takes a list out of the fields of a request body.
    pub fn take(fields: &mut Fields, field: &str) -> Result<Option<Self>, FieldError> {
        let Some(given) = fields.texts(field)? else { return Ok(None) };
        if given.len() > MOST {
            return Err(FieldError::new(field, format!("may have at most {MOST} entries")));
        }
        let parse = |(index, text): (usize, &String)| {
            Rule::parse(text).map_err(|problem| FieldError::new(format!("{field}[{index}]"), problem))
        };
        let rules = given.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        Ok(Some(Self(Arc::new(Rules::new(given, rules)))))
    }

    pub fn everything() -> Self {
        Self::new(vec![EVERYTHING.to_owned()])
    }

    /// The rules of several lists as one list.
    pub fn joined<'a>(lists: impl IntoIterator<Item = &'a AllowList>) -> Self {
        Self::new(lists.into_iter().flat_map(|list| list.entries().iter().cloned()).collect())
    }

    /// Whether a server is allowed as a whole. Rules about single names may still hide or show some of it.
    pub fn allows(&self, server: &str) -> bool {
        let has = |names: &[String]| names.binary_search_by(|name| name.as_str().cmp(server)).is_ok();
        let Rules { allowed, denied, allows_all_servers, denies_all_servers, .. } = &*self.0;
        (*allows_all_servers || has(allowed)) && !denies_all_servers && (denied.is_empty() || !has(denied))
    }

    /// Whether a server is denied as a whole.
    pub fn denies(&self, server: &str) -> bool {
        self.0.denies_all_servers || self.0.denied.binary_search_by(|name| name.as_str().cmp(server)).is_ok()
    }

    /// Whether everything is allowed, including what is registered later.
    pub fn allows_everything(&self) -> bool {
        self.0.allows_all_servers && self.0.rules.len() == 1
    }

    /// Whether all rules are about whole servers, so that [`Self::allows`] says everything.
    pub fn is_plain(&self) -> bool {
        self.0.is_plain
    }

    /// Whether something of a server is allowed. `contains` tells whether a tool group contains it.
    pub fn decide(&self, server: &str, item: Item<'_>, contains: impl Fn(&str) -> bool) -> bool {
        let mut is_allowed = false;
        for rule in &self.0.rules {
            // A rule that would not change the answer need not be compared.
            if (rule.denies || !is_allowed) && rule.matches(server, item, &contains) {
                if rule.denies {
                    return false;
                }
                is_allowed = true;
            }
        }
        is_allowed
    }

    pub fn rules(&self) -> &[Rule] {
        &self.0.rules
    }

    /// The entries as given.
    pub fn entries(&self) -> &[String] {
        &self.0.given
    }
}

impl Rules {
    fn new(given: Vec<String>, mut rules: Vec<Rule>) -> Self {
        let is = |rule: &Rule, denies: bool| rule.denies == denies && rule.subject == RuleSubject::Everything;
        let allows_all_servers = rules.iter().any(|rule| is(rule, false));
        let denies_all_servers = rules.iter().any(|rule| is(rule, true));
        if allows_all_servers {
            // What else is allowed makes no difference.
            rules.retain(|rule| rule.denies || rule.subject == RuleSubject::Everything);
        }
        rules.sort_unstable();
        rules.dedup();
        let servers = |denies: bool| {
            let servers = rules.iter().filter(|rule| rule.denies == denies);
            let mut servers: Vec<_> = servers.filter_map(|rule| rule.server().map(str::to_owned)).collect();
            servers.sort_unstable();
            servers
        };
        let (allowed, denied) = (servers(false), servers(true));
        let mut hasher = DefaultHasher::new();
        rules.hash(&mut hasher);
        Self {
            given,
            is_plain: rules.iter().all(Rule::is_plain),
            hash: hasher.finish(),
            rules,
            allowed,
            denied,
            allows_all_servers,
            denies_all_servers,
        }
    }
}

impl Default for AllowList {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl PartialEq for AllowList {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.hash == other.0.hash && self.0.rules == other.0.rules
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
    use serde_json::{Value, json};

    use super::*;

    fn list(entries: &[&str]) -> AllowList {
        AllowList::new(entries.iter().map(|entry| entry.to_string()).collect())
    }

    fn take(value: Value) -> Result<Option<AllowList>, FieldError> {
        let mut fields = Fields::new(json!({"allow_list": value}).as_object().unwrap().clone());
        AllowList::take(&mut fields, "allow_list")
    }

    #[test]
    fn whole_servers_are_allowed_unless_denied() {
        let some = list(&["b*", "a"]);
        assert!(some.allows("a"));
        for foreign in ["b", "b*c", "A", "", "*"] {
            assert!(!some.allows(foreign), "{foreign}");
        }
        assert!(AllowList::everything().allows("a"));
        assert!(list(&["a", "*"]).allows("z"));
        assert!(!AllowList::default().allows("a"));
        for denied in [&["!a", "a"][..], &["a", "!a"], &["*", "!a"], &["a", "!*"], &["!*", "*"]] {
            assert!(!list(denied).allows("a"), "{denied:?}");
            assert!(list(denied).denies("a"), "{denied:?}");
        }
        assert!(list(&["*", "!a"]).allows("b") && !list(&["*", "!a"]).denies("b"));
        assert!(list(&["*", "!a__x"]).allows("a"));
        assert!(!list(&["a__*", "group:g"]).allows("a"));
    }

    #[test]
    fn a_deny_wins_whatever_the_order() {
        let decides =
            |entries: &[&str], item: Item<'_>| list(entries).decide("a", item, |group| group == "has");
        let (x, y, uri) = (Item::Tool("x"), Item::Prompt("y"), Item::Resource("u://1"));
        assert!(decides(&["a__x"], x) && !decides(&["a__x"], y) && !decides(&["a__*"], uri));
        assert!(decides(&["*", "!a__x"], y) && !decides(&["*", "!a__x"], x) && decides(&["*", "!a__*"], uri));
        for entries in
            [["a__x", "!a__x"], ["!a__x", "a__x"], ["!*__x", "a"], ["!group:has", "a"], ["a", "!a"]]
        {
            assert!(!decides(&entries, x), "{entries:?}");
        }
        for item in [x, y, uri, Item::Templates] {
            assert!(decides(&["group:has"], item) && !decides(&["group:other"], item));
        }
        assert!(!decides(&[], x) && !decides(&["!b"], x));
    }

    #[test]
    fn lists_with_the_same_rules_are_equal_and_keep_their_entries_as_given() {
        let hash = |list: &AllowList| {
            let mut hasher = DefaultHasher::new();
            list.hash(&mut hasher);
            hasher.finish()
        };
        for (one, other) in [
            (list(&["a", "b", "a"]), list(&["b", "a"])),
            (list(&["a", "*"]), list(&["*"])),
            (list(&["a__x", "!b", "*"]), list(&["*", "!b"])),
        ] {
            assert_eq!(one, other);
            assert_eq!(hash(&one), hash(&other));
        }
        assert_eq!(list(&["b", "a", "b", "git*"]).entries(), ["b", "a", "b", "git*"]);
        for (one, other) in [
            (list(&["a"]), list(&["a", "b"])),
            (list(&["a"]), list(&["*"])),
            (list(&["*", "!a"]), list(&["*"])),
        ] {
            assert_ne!(one, other);
        }
        assert!(list(&["*", "a"]).allows_everything());
        for less in [&["*", "!a"][..], &["*", "!a__x"], &["*", "!*"], &["!*"], &["a"]] {
            assert!(!list(less).allows_everything(), "{less:?}");
        }
        assert!(list(&["*", "!a", "b"]).is_plain() && !list(&["a", "group:g"]).is_plain());
        let joined = AllowList::joined([&list(&["a"]), &list(&["!a__x", "b"])]);
        assert_eq!(joined.entries(), ["a", "!a__x", "b"]);
    }

    #[test]
    fn a_wrong_entry_of_a_request_is_named() {
        let wrong = |value: Value| take(value).unwrap_err();
        assert_eq!(wrong(json!("*")).field, "allow_list");
        assert_eq!(wrong(json!(["a", "git*"])).field, "allow_list[1]");
        assert!(wrong(json!(["a", "git*"])).problem.contains("git*"));
        assert_eq!(wrong(json!(vec!["a"; MOST + 1])).field, "allow_list");
        assert_eq!(take(json!(vec!["a"; MOST])).unwrap().unwrap().entries().len(), MOST);
        assert_eq!(take(json!(null)).unwrap(), None);
    }
}
