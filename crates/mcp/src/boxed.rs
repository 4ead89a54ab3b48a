//! Futures in boxes.

use std::pin::Pin;

/// A future that is made in its box. `Box::pin` makes it elsewhere first, and moving a large future is expensive.
pub fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
