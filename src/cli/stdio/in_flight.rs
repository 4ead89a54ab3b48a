//! The requests of the client that are not answered yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use wire::{Era, OwnedId};

/// A request that is not answered yet.
#[derive(Clone)]
pub struct Pending {
    pub era: Era,
    /// Cancelled when the request is being written to the gateway.
    pub written: CancellationToken,
    /// Cancelled when the client does not want the answer any more.
    pub cancelled: CancellationToken,
}

/// The requests by the keys of their ids, each with its id as the client wrote it.
#[derive(Clone, Default)]
pub struct InFlight(Arc<Mutex<HashMap<OwnedId, (OwnedId, Pending)>>>);

/// Registers a request; dropping it deregisters the request.
pub struct Registered {
    in_flight: InFlight,
    pub id: OwnedId,
    pub pending: Pending,
}

impl InFlight {
    pub fn add(&self, id: OwnedId, era: Era) -> Registered {
        let pending = Pending { era, written: CancellationToken::new(), cancelled: CancellationToken::new() };
        self.lock().insert(OwnedId::key_of(&id), (id.clone(), pending.clone()));
        Registered { in_flight: self.clone(), id, pending }
    }

    pub fn find(&self, id: &[u8]) -> Option<Pending> {
        self.lock().get(&OwnedId::key_of(id)).map(|(_, pending)| pending.clone())
    }

    pub fn all(&self) -> Vec<(OwnedId, Pending)> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnedId, (OwnedId, Pending)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.in_flight.lock().remove(&OwnedId::key_of(&self.id));
        // A message that waits for it to be written goes on.
        self.pending.written.cancel();
    }
}
