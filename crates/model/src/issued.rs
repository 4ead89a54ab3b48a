//! Secrets that a server's authorization server gave us while the gateway runs. Clones share them, so that
//! whatever shows text of that server knows what to mask in it.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::Secret;

/// Two generations of an access token, a refresh token and a client secret, with room to spare.
const MOST: usize = 16;

#[derive(Clone, Default)]
pub struct Issued(Arc<Mutex<Vec<Secret>>>);

impl Issued {
    pub fn add(&self, secret: Secret) {
        let mut secrets = self.0.lock().expect("no code panics while it holds the secrets");
        secrets.retain(|known| *known != secret);
        secrets.push(secret);
        let surplus = secrets.len().saturating_sub(MOST);
        secrets.drain(..surplus);
    }

    pub fn secrets(&self) -> Vec<Secret> {
        self.0.lock().expect("no code panics while it holds the secrets").clone()
    }
}

/// What was issued is no part of how a server is registered.
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
