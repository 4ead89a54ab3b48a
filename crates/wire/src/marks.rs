//! The top-level members of a result that the gateway reads: whether a tool failed, and the type of the result.

use super::keys::{Known, known_keys};
use super::scan::{Scan, Span, SyntaxError};

known_keys!(Key { IsError = "isError", ResultType = "resultType", });

/// The values of `isError` and `resultType` at the top level of a result.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    pub(super) is_error: Option<Span>,
    pub(super) result_type: Option<Span>,
}

impl Marks {
    /// Reads the object that comes next. If a key occurs several times, the first one counts.
    pub(super) fn read(scan: &mut Scan<'_>) -> Result<(Span, Self), SyntaxError> {
        let mut marks = Self::default();
        let start = scan.enter()?;
        while let Some(key) = scan.key()? {
            let value = scan.value()?;
            match Key::of(&scan.body[key]) {
                Some(Key::IsError) => _ = marks.is_error.get_or_insert(value),
                Some(Key::ResultType) => _ = marks.result_type.get_or_insert(value),
                None => {}
            }
        }
        Ok((start..scan.position(), marks))
    }
}
