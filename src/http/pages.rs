//! What all lists of records have in common: a time, a number of rows, and pages.

use super::extract::Query;
use model::{FieldError, time};

/// How many rows are returned if the request does not say, and at most.
const USUAL: u32 = 100;
const MOST: u32 = 1000;

impl Query {
    /// The value of a parameter, which must be one of these; empty if it is missing.
    pub fn one_of(&self, key: &str, known: &[&str]) -> Result<String, FieldError> {
        match self.text(key) {
            Some(value) if !known.contains(&value) => {
                Err(FieldError::new(key, format!("must be one of {}", known.join(", "))))
            }
            value => Ok(value.unwrap_or_default().to_owned()),
        }
    }

    /// `since` and `until`, in milliseconds since 1970.
    pub fn period(&self) -> Result<(Option<i64>, Option<i64>), FieldError> {
        let time = |key: &str| {
            let wrong = || FieldError::new(key, "must be a time such as 2026-01-31T12:00:00Z");
            self.text(key).map(|text| time::parse(text).ok_or_else(wrong)).transpose()
        };
        let (since, until) = (time("since")?, time("until")?);
        match since.zip(until).is_some_and(|(since, until)| since > until) {
            true => Err(FieldError::new("until", "must not be before since")),
            false => Ok((since, until)),
        }
    }

    /// `limit`: the most rows of a page.
    pub fn limit(&self) -> Result<u32, FieldError> {
        let wrong = || FieldError::new("limit", format!("must be a number from 1 to {MOST}"));
        match self.text("limit") {
            None => Ok(USUAL),
            Some(text) => text.parse().ok().filter(|limit| (1..=MOST).contains(limit)).ok_or_else(wrong),
        }
    }
}

/// A page of rows, of which one more than the limit was read, and the id after which the next page begins.
pub fn page<T>(mut rows: Vec<T>, limit: u32, id: impl Fn(&T) -> String) -> (Vec<T>, Option<String>) {
    let has_more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| has_more).map(id);
    (rows, next)
}
