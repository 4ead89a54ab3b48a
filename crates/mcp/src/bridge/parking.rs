//! Parked calls: calls to legacy servers that wait until their modern clients have answered the server's questions. A
//! client comes back with the state that it was given, once. A parked call ends when its client does not come back in
//! time, when its token is revoked, and when the gateway stops; if there are too many, the oldest ends first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::open_questions::{OpenQuestions, QuestionKey};
use budget::{Bound, Budgets, Exceeded, Taken};
use gateway::answer::Answer;
use gateway::forward::Forward;
use gateway::trail::Trail;
use gateway::usage::Usage;
use model::PrincipalId;

/// A call that waits for its client.
pub struct ParkedCall {
    pub open: OpenQuestions,
    pub waits: Waits,
    /// What is recorded of it.
    pub trail: Trail,
}

/// What goes on when the client comes back.
pub enum Waits {
    /// The call itself, which is still open at the server.
    Call(Box<Forward>),
    /// The server refused the call until pages are visited (error -32042); it is then made again.
    Pages(Answer),
}

/// The way back to a parked call: whoever sends the other end gets it.
pub type Claim = oneshot::Sender<oneshot::Sender<ParkedCall>>;
/// The end of it that the parked call keeps.
pub type Claimed = oneshot::Receiver<oneshot::Sender<ParkedCall>>;

#[derive(Default)]
pub struct Parking(Mutex<Lot>);

#[derive(Default)]
struct Lot {
    calls: HashMap<u64, Spot>,
    /// The numbers of calls in the order in which they were parked, of all principals and of each.
    order: BTreeMap<u64, u64>,
    by_client: HashMap<Option<PrincipalId>, BTreeMap<u64, u64>>,
    last_position: u64,
}

struct Spot {
    position: u64,
    client: Option<PrincipalId>,
    keys: Arc<[QuestionKey]>,
    claim: Claim,
    _taken: [Taken; 2],
}

impl Parking {
    /// Registers a parked call under a number, which nobody can guess. If there are too many, the oldest expires.
    pub fn add(
        &self,
        number: u64,
        client: Option<PrincipalId>,
        keys: Vec<QuestionKey>,
        usage: &Usage,
        budgets: &Budgets,
    ) -> Result<Claimed, Exceeded> {
        let mut lot = self.lock();
        while usage.parked.used() >= usage.parked.limit() && lot.expire_oldest_of(client) {
            budgets.refusals.count(Bound::ParkedCalls);
        }
        while budgets.parked.used() >= budgets.parked.limit() && lot.expire_oldest() {
            budgets.refusals.count(Bound::ParkedCalls);
        }
        let taken = [usage.parked.take(1)?, budgets.parked.take(1)?];
        let (claim, claimed) = oneshot::channel();
        lot.last_position += 1;
        let position = lot.last_position;
        lot.order.insert(position, number);
        lot.by_client.entry(client).or_default().insert(position, number);
        lot.calls.insert(number, Spot { position, client, keys: keys.into(), claim, _taken: taken });
        Ok(claimed)
    }

    /// What a parked call asks for; `None` if it is not parked, or no longer.
    pub fn keys(&self, number: u64) -> Option<Arc<[QuestionKey]>> {
        self.lock().calls.get(&number).map(|spot| spot.keys.clone())
    }

    /// Takes a call out, for the client that came back or because it ended.
    pub fn take(&self, number: u64) -> Option<Claim> {
        self.lock().remove(number).map(|spot| spot.claim)
    }

    fn lock(&self) -> MutexGuard<'_, Lot> {
        self.0.lock().expect("no code panics while it holds the parked calls")
    }
}

impl Lot {
    fn remove(&mut self, number: u64) -> Option<Spot> {
        let spot = self.calls.remove(&number)?;
        self.order.remove(&spot.position);
        if let Some(own) = self.by_client.get_mut(&spot.client) {
            own.remove(&spot.position);
            if own.is_empty() {
                self.by_client.remove(&spot.client);
            }
        }
        Some(spot)
    }

    /// Expires the oldest call; dropping its claim ends it.
    fn expire_oldest(&mut self) -> bool {
        let oldest = self.order.first_key_value().map(|(_, number)| *number);
        oldest.and_then(|number| self.remove(number)).is_some()
    }

    fn expire_oldest_of(&mut self, client: Option<PrincipalId>) -> bool {
        let own = self.by_client.get(&client).and_then(BTreeMap::first_key_value);
        let oldest = own.map(|(_, number)| *number);
        oldest.and_then(|number| self.remove(number)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::PARKED_OF_PRINCIPAL;
    use gateway::usage::Usages;

    #[test]
    fn the_oldest_call_of_a_principal_expires_first() {
        let budgets = Budgets::default();
        let usages = Usages::new(&budgets);
        let (usage, other) = (usages.of(PrincipalId(1), &budgets), usages.of(PrincipalId(2), &budgets));
        let parking = Parking::default();
        let add = |number, client, usage: &Usage| {
            parking.add(number, Some(PrincipalId(client)), Vec::new(), usage, &budgets).unwrap()
        };
        let mut foreign = add(0, 2, &other);
        let mut claimed: Vec<_> =
            (1..=PARKED_OF_PRINCIPAL + 1).map(|number| add(number, 1, &usage)).collect();
        assert!(matches!(claimed[0].try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(matches!(claimed[1].try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        assert!(matches!(foreign.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        assert!(parking.keys(1).is_none() && parking.keys(2).is_some());
        assert_eq!(usage.parked.used(), PARKED_OF_PRINCIPAL);
        assert!(parking.take(2).is_some() && parking.take(2).is_none());
        assert_eq!(
            (usage.parked.used(), budgets.parked.used()),
            (PARKED_OF_PRINCIPAL - 1, PARKED_OF_PRINCIPAL)
        );
        for number in 0..=PARKED_OF_PRINCIPAL + 1 {
            parking.take(number);
        }
        assert_eq!((usage.parked.used(), budgets.parked.used()), (0, 0));
        assert!(parking.lock().order.is_empty() && parking.lock().by_client.is_empty());
    }
}
