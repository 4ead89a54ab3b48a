//! What a message costs while it is being received: its bytes are charged to the budget of bytes in transit.

use bytes::Bytes;

use budget::{Budget, Exceeded, Taken};

/// Messages up to this size are free: their number is limited by that of calls.
const FREE: usize = 128 * 1024;

/// The charge for one message at a time.
pub struct Charge {
    budget: Budget,
    taken: Option<Taken>,
}

impl Charge {
    pub fn new(budget: &Budget) -> Self {
        Self { budget: budget.clone(), taken: None }
    }

    /// Charges for a message of which this many bytes are held.
    pub fn cover(&mut self, bytes: usize) -> Result<(), Exceeded> {
        if bytes <= FREE {
            return Ok(());
        }
        match &mut self.taken {
            None => self.taken = Some(self.budget.take(bytes as u64)?),
            Some(taken) => taken.grow((bytes as u64).saturating_sub(taken.amount()))?,
        }
        Ok(())
    }

    /// Gives the charge back: the message was dropped.
    pub fn release(&mut self) {
        self.taken = None;
    }

    /// Ties the charge to the message, which is complete; the next message is charged anew.
    pub fn attach(&mut self, message: Bytes) -> Bytes {
        match self.taken.take() {
            None => message,
            Some(taken) => budget::charged(message, taken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::{Bound, Refusals};

    #[test]
    fn only_large_messages_are_charged_and_for_as_long_as_they_live() {
        let budget = Budget::new(Bound::BufferedBytes, 3 * FREE as u64, &Refusals::default());
        let mut charge = Charge::new(&budget);
        charge.cover(FREE).unwrap();
        assert_eq!(budget.used(), 0);
        charge.cover(FREE + 1).unwrap();
        charge.cover(2 * FREE).unwrap();
        assert_eq!(budget.used(), 2 * FREE as u64);
        let message = charge.attach(Bytes::from(vec![0; 2 * FREE]));
        assert!(charge.cover(2 * FREE).is_err());
        drop(message);
        charge.cover(2 * FREE).unwrap();
        charge.release();
        assert_eq!(budget.used(), 0);
        charge.cover(2 * FREE).unwrap();
        drop(charge);
        assert_eq!(budget.used(), 0);
    }
}
