//! Secrets that a server's authorization server has issued while the gateway runs. Clones share them, so that all code
//! that shows text of that server can mask them.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::Secret;

/// The largest number of secrets kept: more than two generations of access token, refresh token and client secret.
const MOST: usize = 16;

#[derive(Clone, Default)]
pub struct Issued(Arc<Mutex<Vec<Secret>>>);

impl Issued {
    pub fn add(&self, secret: Secret) {
        let mut secrets = self.0.lock().expect("no code panics while it holds the lock");
        secrets.retain(|known| *known != secret);
        secrets.push(secret);
        let surplus = secrets.len().saturating_sub(MOST);
        secrets.drain(..surplus);
    }

    pub fn secrets(&self) -> Vec<Secret> {
        self.0.lock().expect("no code panics while it holds the lock").clone()
    }
}

/// All values are equal, because issued secrets are not part of a server's registration.
impl PartialEq for Issued {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
