//! The tasks that each principal started, bounded and in memory only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// How many tasks of one principal are remembered; beyond it, the oldest one is forgotten and counts as unknown.
const REMEMBERED: usize = 1000;
/// A task whose id is longer is not remembered.
const LONGEST_ID: usize = 512;

/// The tasks that one principal started, as server and id, with the session that started each.
#[derive(Debug, Default)]
pub struct OwnTasks(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    tasks: HashMap<Arc<(String, String)>, Option<u64>>,
    order: VecDeque<Arc<(String, String)>>,
}

impl OwnTasks {
    /// Remembers a task. `session` is the serial of the session that started it.
    pub fn add(&self, server: &str, id: &str, session: Option<u64>) {
        if id.len() > LONGEST_ID {
            return;
        }
        let task = Arc::new((server.to_owned(), id.to_owned()));
        let mut known = self.lock();
        if known.tasks.insert(task.clone(), session).is_none() {
            known.order.push_back(task);
        }
        if known.order.len() > REMEMBERED
            && let Some(oldest) = known.order.pop_front()
        {
            known.tasks.remove(&oldest);
        }
    }

    pub fn has(&self, server: &str, id: &str) -> bool {
        self.lock().tasks.contains_key(&(server.to_owned(), id.to_owned()))
    }

    /// The session that started a task.
    pub fn session_of(&self, server: &str, id: &str) -> Option<u64> {
        self.lock().tasks.get(&(server.to_owned(), id.to_owned())).copied().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().expect("no code panics while it holds the tasks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_tasks_are_forgotten_first() {
        let tasks = OwnTasks::default();
        for number in 0..=REMEMBERED {
            tasks.add("s", &number.to_string(), None);
            tasks.add("s", &number.to_string(), Some(7));
        }
        assert!(!tasks.has("s", "0") && tasks.has("s", "1") && tasks.has("s", &REMEMBERED.to_string()));
        assert!(!tasks.has("t", "1"));
        assert_eq!((tasks.session_of("s", "1"), tasks.session_of("s", "0")), (Some(7), None));
        tasks.add("s", &"x".repeat(LONGEST_ID + 1), None);
        assert!(!tasks.has("s", &"x".repeat(LONGEST_ID + 1)) && tasks.has("s", "1"));
    }
}
