//! The MCP clients that connected last, for a person who waits for one to appear. Kept in memory only, and only in
//! development mode: the dashboard, which shows them, exists in no other.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::Gateway;
use super::caller::Scope;
use model::Mode;

/// How many clients are kept.
const MOST: usize = 10;
/// How many characters of a name or version are kept: they are the client's own words.
const LONGEST: usize = 80;
/// A client that connects again within this time is not announced again.
const QUIET: Duration = Duration::from_secs(1);

/// A client, by what it says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentClient {
    pub name: Arc<str>,
    pub version: Arc<str>,
    /// The endpoint that it uses.
    pub scope: Scope,
    /// When it connected last.
    pub at: SystemTime,
}

#[derive(Default)]
pub struct RecentClients {
    /// Newest first.
    latest: Mutex<VecDeque<RecentClient>>,
    arrived: watch::Sender<()>,
}

impl Gateway {
    /// Notes that a client connected.
    pub fn note_client(&self, name: &Arc<str>, version: &Arc<str>, scope: &Scope) {
        // A link of another gateway is no client.
        let is_client = !name.is_empty() && scope.link().is_none();
        if self.mode == Mode::Development && is_client {
            self.recent_clients.note(bounded(name), bounded(version), scope, SystemTime::now());
        }
    }

    /// The clients that connected last, newest first.
    pub fn recent_clients(&self) -> Vec<RecentClient> {
        self.recent_clients.latest().iter().cloned().collect()
    }

    /// Signals that a client connected.
    pub fn client_arrivals(&self) -> watch::Receiver<()> {
        self.recent_clients.arrived.subscribe()
    }
}

impl RecentClients {
    fn note(&self, name: Arc<str>, version: Arc<str>, scope: &Scope, at: SystemTime) {
        let mut latest = self.latest();
        let is_same = |one: &RecentClient| one.name == name && one.version == version && one.scope == *scope;
        let before = latest.iter().position(is_same).and_then(|position| latest.remove(position));
        latest.truncate(MOST - 1);
        latest.push_front(RecentClient { name, version, scope: scope.clone(), at });
        drop(latest);
        let since = before.and_then(|before| at.duration_since(before.at).ok());
        if since.is_none_or(|since| since >= QUIET) {
            self.arrived.send_replace(());
        }
    }

    fn latest(&self) -> std::sync::MutexGuard<'_, VecDeque<RecentClient>> {
        self.latest.lock().expect("no code panics while it holds the clients")
    }
}

/// The beginning of a text, without control characters.
fn bounded(text: &Arc<str>) -> Arc<str> {
    if text.len() <= LONGEST && !text.contains(char::is_control) {
        return text.clone();
    }
    text.chars().filter(|character| !character.is_control()).take(LONGEST).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_list_is_bounded_and_has_each_client_once_newest_first() {
        let clients = RecentClients::default();
        for number in 0..2 * MOST {
            clients.note(
                format!("client {number}").into(),
                "1".into(),
                &Scope::Everything,
                at(number as u64),
            );
        }
        clients.note("client 15".into(), "1".into(), &Scope::Everything, at(100));
        let names: Vec<_> = clients.latest().iter().map(|one| one.name.to_string()).collect();
        assert_eq!((names.len(), names[0].as_str(), names[1].as_str()), (MOST, "client 15", "client 19"));
        clients.note("client 15".into(), "1".into(), &Scope::Group("few".into()), at(101));
        assert_eq!(clients.latest().iter().filter(|one| &*one.name == "client 15").count(), 2);
    }

    #[test]
    fn a_client_that_connects_often_is_announced_rarely() {
        let clients = RecentClients::default();
        let mut arrived = clients.arrived.subscribe();
        let mut note = |seconds: f64| {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs_f64(seconds);
            clients.note("a".into(), "1".into(), &Scope::Everything, at);
            let is_new = arrived.has_changed().unwrap();
            arrived.mark_unchanged();
            is_new
        };
        assert_eq!([note(10.0), note(10.2), note(12.0)], [true, false, true]);
    }

    #[test]
    fn texts_are_bounded_and_have_no_control_characters() {
        assert_eq!(&*bounded(&"a\u{1b}[31m\nb".into()), "a[31mb");
        assert_eq!(bounded(&"é".repeat(500).into()).chars().count(), LONGEST);
    }
}
