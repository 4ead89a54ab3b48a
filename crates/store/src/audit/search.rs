//! Reads entries of the audit.

use sqlx::AssertSqlSafe;

use super::{COLUMNS, EntryRow, StoredEntry, values};
use crate::db::on;
use crate::{Store, StoreError};
use model::AuditEntry;

/// How many entries are looked at in one transaction: no search holds up a change for long.
const PORTION: i64 = 2000;

/// Which entries are wanted. Empty texts fit everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The name of an actor.
    pub actor: String,
    /// `server.register`, or `server` for all actions of that noun.
    pub action: String,
    pub target: String,
    pub outcome: String,
    /// Milliseconds since 1970, both included.
    pub since_ms: Option<i64>,
    pub until_ms: Option<i64>,
    /// A part of actor, action, target or address, whatever its case.
    pub text: String,
    /// Only entries with smaller numbers.
    pub before: Option<i64>,
    /// The most that are returned.
    pub limit: u32,
}

enum Bound {
    Text(String),
    Number(i64),
}

impl AuditFilter {
    fn conditions(&self) -> (String, Vec<Bound>) {
        let (mut conditions, mut values) = (String::new(), Vec::new());
        // The first two parameters are the range of numbers, the third one is the limit.
        let mut add = |condition: &str, value: Bound| {
            values.push(value);
            conditions += &format!(" AND {}", condition.replace('?', &format!("${}", values.len() + 3)));
        };
        let action = self.action.strip_suffix(".*").unwrap_or(&self.action);
        let is_noun = !action.is_empty() && !action.contains('.');
        let noun = if is_noun { format!("{}.%", escaped(action)) } else { String::new() };
        let action = if is_noun { "" } else { action };
        let searched = match self.text.is_empty() {
            true => String::new(),
            false => format!("%{}%", escaped(&self.text)),
        };
        let texts = [
            ("actor = ?", self.actor.as_str()),
            ("action = ?", action),
            (r"action LIKE ? ESCAPE '\'", &noun),
            ("target = ?", &self.target),
            ("outcome = ?", &self.outcome),
            (
                r"LOWER(actor || ' ' || action || ' ' || target || ' ' || COALESCE(address, ''))
                LIKE LOWER(?) ESCAPE '\'",
                &searched,
            ),
        ];
        for (condition, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            add(condition, Bound::Text(text.to_owned()));
        }
        for (condition, number) in [("at >= ?", self.since_ms), ("at <= ?", self.until_ms)] {
            if let Some(number) = number {
                add(condition, Bound::Number(number));
            }
        }
        (conditions, values)
    }
}

impl Store {
    /// The entries that fit, newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>, StoreError> {
        const ENDS: &str = "SELECT MIN(number), MAX(number) FROM audit";
        let mut tx = self.read().await?;
        let ends: (Option<i64>, Option<i64>) = on!(&mut tx, |db| sqlx::query_as(ENDS).fetch_one(db).await)?;
        tx.commit().await?;
        let (Some(first), Some(last)) = ends else { return Ok(Vec::new()) };
        let (conditions, bounds) = filter.conditions();
        let sql = format!(
            "SELECT {COLUMNS} FROM audit WHERE number <= $1 AND number >= $2{conditions} ORDER BY number DESC LIMIT $3"
        );
        let values = values(&self.seal);
        let mut end = filter.before.map_or(last, |before| last.min(before.saturating_sub(1)));
        let mut found = Vec::new();
        while end >= first && found.len() < filter.limit as usize {
            let begin = end.saturating_sub(PORTION - 1);
            let left = i64::from(filter.limit) - i64::try_from(found.len()).unwrap_or(i64::MAX);
            let mut tx = self.read().await?;
            let rows: Vec<EntryRow> = on!(&mut tx, |db| {
                let mut query = sqlx::query_as(AssertSqlSafe(sql.clone())).bind(end).bind(begin).bind(left);
                for bound in &bounds {
                    query = match bound {
                        Bound::Text(text) => query.bind(text),
                        Bound::Number(number) => query.bind(number),
                    };
                }
                query.fetch_all(db).await
            })?;
            tx.commit().await?;
            for row in rows {
                let number = row.0;
                let damaged =
                    |problem| StoreError::Corrupt(format!("entry {number} of the audit: {problem}"));
                found.push(StoredEntry::read(row, &values).map_err(damaged)?.entry);
            }
            end = begin - 1;
        }
        Ok(found)
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_")
}
