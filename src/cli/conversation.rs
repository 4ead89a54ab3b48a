//! The questions of one call: asked one after the other, each answered by a request of its own. Meanwhile the events of
//! the call are read on, since a call can end while a person thinks.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::answer;
use super::output::{self, Prompter, Spinner};
use super::question::{InputEvent, PendingQuestion};
use super::remote::{ApiRequest, Remote, RemoteError};
use crate::config;

pub struct Conversation<'a> {
    remote: &'a Remote,
    tool: &'a str,
    /// The identifier of the call, in which its answers are sent.
    call: String,
    waiting: VecDeque<PendingQuestion>,
    /// The person who is being asked now, on a thread that waits for the terminal.
    asking: Option<JoinHandle<Answered>>,
    /// Shown while nobody is asked.
    spinner: Option<Spinner>,
    progress: String,
}

pub struct Answered {
    open: PendingQuestion,
    answer: Value,
}

impl<'a> Conversation<'a> {
    pub fn start(remote: &'a Remote, tool: &'a str) -> Self {
        let progress = "calling".to_owned();
        let spinner = Some(Spinner::start(&progress));
        Self { remote, tool, call: String::new(), waiting: VecDeque::new(), asking: None, spinner, progress }
    }

    /// Shows progress, at the latest when nobody is asked any more.
    pub fn tell(&mut self, progress: String) {
        if let Some(spinner) = &self.spinner {
            spinner.tell(&progress);
        }
        self.progress = progress;
    }

    /// Takes over the questions of an event.
    pub fn add(&mut self, event: &str) -> Result<(), RemoteError> {
        let event: InputEvent = serde_json::from_str(event).map_err(|error| RemoteError::Foreign {
            registry: self.remote.registry().to_owned(),
            found: format!("its question cannot be read: {error}"),
        })?;
        self.call.clone_from(&event.call);
        self.waiting.extend(event.questions());
        self.ask_next();
        Ok(())
    }

    /// Waits until the person has answered a question; forever if there is none.
    pub async fn next_answer(&mut self) -> Answered {
        let Some(asking) = &mut self.asking else { return std::future::pending().await };
        let answered = asking.await.expect("asking neither panics nor is aborted");
        self.asking = None;
        answered
    }

    /// Sends an answer, then asks the next question. What the gateway does not accept is asked again.
    pub async fn send(&mut self, Answered { open, answer }: Answered) -> Result<(), RemoteError> {
        let is_filled_in = !answer["content"].is_null();
        let body = json!({"responses": {&open.key: answer}});
        let request = ApiRequest::post(&["tools", "invoke", &self.call, "input"]).body(body.to_string());
        match self.remote.ask(request).await {
            Ok(_) => {}
            Err(RemoteError::Refused { status: 400, sentence, .. }) if is_filled_in => {
                output::message(&sentence);
                self.waiting.push_front(open);
            }
            // The call ended meanwhile; its last event says how.
            Err(RemoteError::Refused { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        self.ask_next();
        Ok(())
    }

    fn ask_next(&mut self) {
        if self.asking.is_some() {
            return;
        }
        let Some(open) = self.waiting.pop_front() else {
            if self.spinner.is_none() {
                self.spinner = Some(Spinner::start(&self.progress));
            }
            return;
        };
        self.spinner = None;
        let (tool, home) = (self.tool.to_owned(), config::variable("HOME"));
        self.asking = Some(tokio::task::spawn_blocking(move || {
            let mut prompter = Prompter::of_terminal();
            let answer = answer::ask(&mut prompter, &tool, &open.question, home.as_deref());
            Answered { open, answer }
        }));
    }
}

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        if self.asking.is_some() {
            // What is printed next begins on a line of its own, not behind the prompt.
            output::message("");
        }
    }
}
