//! The progress of connecting to a server.

use std::sync::Mutex;

use super::Options;
use super::news::{News, Newsroom};
use model::{ServerConfig, ServerName};

/// The current step of connecting, for watchers and for the error when it times out.
pub struct Step {
    doing: Mutex<String>,
    /// How the process ended that was started first.
    died: Mutex<Option<String>>,
    server: ServerName,
    newsroom: Newsroom,
}

impl Step {
    pub fn of(config: &ServerConfig, options: &Options) -> Self {
        let (server, newsroom) = (config.name.clone(), options.newsroom.clone());
        Self { doing: Mutex::default(), died: Mutex::default(), server, newsroom }
    }

    pub fn set(&self, doing: impl Into<String>) {
        let doing = doing.into();
        self.newsroom.tell(News::Step(self.server.clone(), doing.clone()));
        *self.doing.lock().expect("no code panics while it holds the step") = doing;
    }

    pub fn doing(&self) -> String {
        self.doing.lock().expect("no code panics while it holds the step").clone()
    }

    /// Notes how a process ended that is started a second time.
    pub fn note_death(&self, reason: Option<String>) {
        *self.died.lock().expect("no code panics while it holds the reason") = reason;
    }

    pub fn death(&self) -> Option<String> {
        self.died.lock().expect("no code panics while it holds the reason").clone()
    }
}
