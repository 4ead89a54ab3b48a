//! What happens to servers, for whoever watches at that moment. Nobody is waited for: a slow watcher is told that it
//! missed something and looks for itself.

use tokio::sync::broadcast;

use model::ServerName;

/// News that may wait for somebody who is slow to read them.
const BACKLOG: usize = 256;

#[derive(Clone, Debug)]
pub enum News {
    /// Connecting to a server, which may not be registered yet, is busy with this.
    Step(ServerName, String),
    /// The status of a server, or the reason for it, is another than before.
    Status(ServerName),
    /// A call failed.
    Failure,
}

/// Tells all watchers; clones tell the same ones.
#[derive(Clone)]
pub struct Newsroom(broadcast::Sender<News>);

impl Default for Newsroom {
    fn default() -> Self {
        Self(broadcast::Sender::new(BACKLOG))
    }
}

impl Newsroom {
    pub fn tell(&self, news: News) {
        // That nobody watches is no error.
        let _ = self.0.send(news);
    }

    pub fn watch(&self) -> broadcast::Receiver<News> {
        self.0.subscribe()
    }
}
