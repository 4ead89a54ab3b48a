//! Events of servers, broadcast to the current watchers. Sending never waits: a slow watcher is told that it missed
//! events and then reads the state itself.

use tokio::sync::broadcast;

use model::ServerName;

/// The number of unread events kept for a slow watcher.
const BACKLOG: usize = 256;

#[derive(Clone, Debug)]
pub enum News {
    /// The current step of connecting to a server, which may not be registered yet.
    Step(ServerName, String),
    /// The status of a server, or the reason for it, changed.
    Status(ServerName),
    /// A call failed.
    Failure,
}

/// Sends events to all watchers; clones share the watchers.
#[derive(Clone)]
pub struct Newsroom(broadcast::Sender<News>);

impl Default for Newsroom {
    fn default() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }
}

impl Newsroom {
    pub fn tell(&self, news: News) {
        // Having no watchers is not an error.
        let _ = self.0.send(news);
    }

    pub fn watch(&self) -> broadcast::Receiver<News> {
        self.0.subscribe()
    }
}
