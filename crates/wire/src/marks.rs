//! The top-level members of a result that the gateway reads: whether a tool failed, and the type of the result.

use super::scan::{Scan, Span, SyntaxError};
use super::text;

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
            let key = &scan.body[key];
            if text::says(key, "isError") {
                marks.is_error.get_or_insert(value);
            } else if text::says(key, "resultType") {
                marks.result_type.get_or_insert(value);
            }
        }
        Ok((start..scan.position(), marks))
    }
}
