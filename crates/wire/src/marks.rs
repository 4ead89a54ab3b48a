//! What a result says about itself at its top level: whether a tool failed, and of which type the result is.

use super::scan::{Scan, Span, SyntaxError};
use super::text;

/// What a result says about itself at its top level.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    pub(super) is_error: Option<Span>,
    pub(super) result_type: Option<Span>,
}

impl Marks {
    /// Reads the object that comes next. Of several members with the same key the first counts.
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
