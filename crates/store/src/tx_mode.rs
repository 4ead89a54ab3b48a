//! Whether a transaction only reads; the same on every database.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TxMode {
    Read,
    Write,
}
