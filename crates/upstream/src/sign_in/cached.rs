//! A document of an identity provider that is kept in memory: fetched when it is first needed, again in the background when
//! it is old, and earlier if somebody needs a newer one. All callers share one fetch, which goes on if they leave.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::problem::IdpProblem;
use crate::Boxed;
use model::WallClock;

/// From this age on, a document is refreshed in the background when it is used.
const OLD_MS: i64 = 60 * 60 * 1000;
/// The shortest time between two attempts to fetch it.
const PAUSE_MS: i64 = 10 * 1000;

pub struct Cached<T> {
    /// What is fetched, for the log.
    name: &'static str,
    fetch: Box<dyn Fn() -> Boxed<'static, Result<T, IdpProblem>> + Send + Sync>,
    clock: WallClock,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// The document, and when it was received.
    current: Option<(Arc<T>, i64)>,
    /// When the last attempt began or, if it has, ended.
    attempted_at: Option<i64>,
    /// Why it failed.
    problem: Option<IdpProblem>,
    /// Closed when the fetch that is running ends.
    running: Option<watch::Receiver<()>>,
    task: JoinSet<()>,
}

impl<T> State<T> {
    fn newer(&self, than: &Arc<T>) -> Option<Arc<T>> {
        let current = self.current.as_ref().map(|(document, _)| document);
        current.filter(|document| !Arc::ptr_eq(document, than)).cloned()
    }
}

impl<T: Send + Sync + 'static> Cached<T> {
    pub fn new(
        name: &'static str,
        clock: WallClock,
        fetch: impl Fn() -> Boxed<'static, Result<T, IdpProblem>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let state =
            State { current: None, attempted_at: None, problem: None, running: None, task: JoinSet::new() };
        Arc::new(Self { name, fetch: Box::new(fetch), clock, state: Mutex::new(state) })
    }

    /// Returns the document; an old one at once, although it is then refreshed.
    pub async fn get(self: &Arc<Self>) -> Result<Arc<T>, IdpProblem> {
        let fetching = {
            let mut state = self.state();
            let current = state.current.clone();
            match current {
                Some((document, at)) => {
                    if self.age(at) >= OLD_MS {
                        self.start(&mut state);
                    }
                    return Ok(document);
                }
                None => self.start(&mut state),
            }
        };
        finished(fetching).await;
        let state = self.state();
        match (&state.current, &state.problem) {
            (Some((document, _)), _) => Ok(document.clone()),
            (None, Some(problem)) => Err(problem.clone()),
            (None, None) => Err(IdpProblem::Down(format!("{} could not be fetched", self.name))),
        }
    }

    /// Returns a document that was fetched after this one: it is fetched again unless that was attempted a moment ago.
    /// `None` if this one is still the newest.
    pub async fn newer(self: &Arc<Self>, than: &Arc<T>) -> Result<Option<Arc<T>>, IdpProblem> {
        let fetching = {
            let mut state = self.state();
            match state.newer(than) {
                Some(document) => return Ok(Some(document)),
                None => self.start(&mut state),
            }
        };
        finished(fetching).await;
        let state = self.state();
        match (state.newer(than), &state.problem) {
            (None, Some(problem)) => Err(problem.clone()),
            (newer, _) => Ok(newer),
        }
    }

    /// Starts a fetch, unless one is running or was attempted a moment ago.
    fn start(self: &Arc<Self>, state: &mut State<T>) -> Option<watch::Receiver<()>> {
        let running = state.running.as_ref().filter(|running| running.has_changed().is_ok());
        if let Some(running) = running {
            return Some(running.clone());
        }
        if state.attempted_at.is_some_and(|at| self.age(at) < PAUSE_MS) {
            return None;
        }
        state.attempted_at = Some(self.clock.now_ms());
        let (done, running) = watch::channel(());
        let (fetching, owner) = ((self.fetch)(), Arc::downgrade(self));
        while state.task.try_join_next().is_some() {}
        state.task.spawn(async move {
            let result = fetching.await;
            if let Some(owner) = owner.upgrade() {
                owner.keep(result);
            }
            drop(done);
        });
        state.running = Some(running.clone());
        Some(running)
    }

    fn keep(&self, result: Result<T, IdpProblem>) {
        let now = self.clock.now_ms();
        let mut state = self.state();
        state.attempted_at = Some(now);
        match result {
            Ok(document) => {
                state.current = Some((Arc::new(document), now));
                state.problem = None;
            }
            Err(problem) => {
                tracing::warn!(reason = %problem, "{} could not be fetched", self.name);
                state.problem = Some(problem);
            }
        }
    }

    /// The time since then. If the clock was set back, it is unknown, and as long as possible.
    fn age(&self, then: i64) -> i64 {
        let age = self.clock.now_ms() - then;
        if age < 0 { i64::MAX } else { age }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no code panics while it holds the state")
    }
}

async fn finished(fetching: Option<watch::Receiver<()>>) {
    if let Some(mut fetching) = fetching {
        // Nothing is ever sent: it ends when the sender is dropped.
        let _ = fetching.changed().await;
    }
}
